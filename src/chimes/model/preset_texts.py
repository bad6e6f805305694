"""What presets and templates are called, and how one says their times; the catalogues have it in
every language.

`example` is what a person would type; with a prompt behind it, it is the whole schedule in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from chimes.wording import in_language, say


class Text(NamedTuple):
    name: str
    description: str
    example: str
    prompt: str = ""

    def said_in(self, language: str) -> Text:
        return Text(*(in_language(each, language) for each in self))


TEXTS: Mapping[str, Text] = {
    "hourly": Text(say("Hourly"), say("At the start of every hour"), say("every hour")),
    "daily_midnight": Text(
        say("Daily Midnight"), say("Every day at midnight"), say("every day at 00:00")
    ),
    "daily_9am": Text(say("Daily 9 AM"), say("Every day at 9 AM"), say("every day at 09:00")),
    "weekly_monday_8am": Text(
        say("Weekly Monday 8 AM"), say("Every Monday at 8 AM"), say("every Monday at 08:00")
    ),
    "daily_summary": Text(
        say("Daily summary"),
        say("What happened today, every evening"),
        say("every day at 18:00"),
        say("Summarise what happened today in at most ten points, the most important first."),
    ),
    "news_digest": Text(
        say("News digest"),
        say("The news of the last day, every morning"),
        say("every day at 07:00"),
        say(
            "Collect the most important news of the last day in five points, each with its source."
        ),
    ),
    "morning_brief": Text(
        say("AI morning brief"),
        say("What the day brings, before work begins"),
        say("every weekday at 08:00"),
        say(
            "Prepare a short brief for my working day: "
            "the weather, what is due, what is still open."
        ),
    ),
    "weekly_report": Text(
        say("Weekly report"),
        say("The week that was, on Monday morning"),
        say("every Monday at 09:00"),
        say(
            "Write a report of last week: what was achieved, the key figures, risks and next steps."
        ),
    ),
    "reminder": Text(
        say("Reminder"),
        say("A message at a set time"),
        say("every Friday at 16:30"),
        say("Remind me to write down my working hours, in one friendly sentence."),
    ),
    "month_end": Text(
        say("Month-end closing"),
        say("Calls an address on the last day of each month"),
        say("on the last day of every month at 18:00"),
    ),
    "health_ping": Text(
        say("Health ping"),
        say("Calls an address and tells you when it stops answering, and when it is back"),
        say("every 5 minutes"),
    ),
    "heartbeat": Text(
        say("Heartbeat"),
        say("A sign of life every minute, for a monitor that misses it when it stays away"),
        say("every minute"),
    ),
    "nightly_backup": Text(
        say("Nightly backup"), say("Starts a backup when nobody works"), say("every day at 02:00")
    ),
    "data_sync": Text(
        say("Data sync"),
        say("Brings two systems to the same state every half hour"),
        say("every 30 minutes"),
    ),
    "certificate_check": Text(
        say("Certificate check"),
        say("Calls an https address each day; an expired certificate makes the call fail"),
        say("every day at 06:00"),
    ),
    "cleanup": Text(
        say("Clean-up"),
        say("Removes what is no longer needed, once a week"),
        say("every Sunday at 03:00"),
    ),
}
