"""The Telegram door: schedules by chat."""
