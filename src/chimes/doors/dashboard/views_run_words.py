"""The words of the log viewer's script."""

from __future__ import annotations

from functools import cache

from chimes.wording import counted, in_language, say

_ANY = 1_234_567


@cache
def log_words(language: str) -> dict[str, str]:
    """By name; what is in braces the script fills in."""
    one = counted("↓ {count} new line", "↓ {count} new lines", 1).in_language(language)
    many = counted("↓ {count} new line", "↓ {count} new lines", _ANY).in_language(language)
    found = {
        "matches": say("{at} of {count}"),
        "none": say("Nothing matches"),
        "cut": say("… {count} characters in all: download the log to read them"),
        "line": say("Line {number}"),
        "since_start": say("+{count} s"),
        "loading": say("The log is loading …"),
        "empty": say("Nothing has been logged yet."),
        "nothing": say("Nothing was logged."),
        "hidden": say("No line has this level."),
        "failed": say("The log could not be loaded. Load the page again."),
    }
    texts = {name: in_language(text, language) for name, text in found.items()}
    return texts | {"new_one": one, "new_many": many.replace(str(_ANY), "{count}")}
