"""In which language the bot answers, and what it says more than once.

Where users of the seed know a sentence by heart (`Schedule created: <id>`), the catalogues have it
beside the chat's own language: what they built on it goes on working.
"""

from __future__ import annotations

from typing import Literal

from chimes.wording import Wording, say

Language = Literal["en", "th", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "th", "zh")

#: Can be read as it stands, in every language.
EXAMPLE = say("every weekday at 9:00 summarise the news")
FAILED = say("That did not work because of a fault here. Please try again.")
HELP = say(
    "Write when and what, for example:\n{example}\n\n"
    "/schedule <words> – make a schedule\n/schedules – list them\n"
    "/schedule_runs <id> – what became of one\n/schedule_pause <id>\n/schedule_resume <id>\n"
    "/schedule_run <id> – run it now\n/schedule_delete <id>\n"
    "/language en|th|zh\n/timezone Asia/Bangkok",
    example=EXAMPLE,
)


def parse_error(message: str) -> Wording:
    return say("Schedule parse error: {message}", message=message)


def language_of(code: str) -> Language | None:
    """From a tag such as `th`, `zh-hans` or `en-US`."""
    found = code.partition("-")[0].partition("_")[0].lower()
    return next((each for each in LANGUAGES if each == found), None)


def language_of_text(text: str) -> Language | None:
    """By its script; Latin letters say nothing."""
    if any("\u0e00" <= char <= "\u0e7f" for char in text):
        return "th"
    return "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else None
