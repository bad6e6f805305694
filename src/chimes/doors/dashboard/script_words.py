"""The few words that scripts say by themselves."""

from __future__ import annotations

from functools import cache

from chimes.wording import in_language, say


@cache
def script_words(language: str) -> dict[str, str]:
    """By name; what is in braces the script fills in."""
    found = {
        # The same templates as in `times`, unfilled.
        "s": say("{count} s"),
        "min": say("{count} min"),
        "h": say("{count} h"),
        "d": say("{count} d"),
        "in": say("in {span}"),
        "ago": say("{span} ago"),
        "now": say("now"),
        "live": say("Live"),
        "reconnecting": say("Reconnecting – data from {span} ago"),
        "signed_out": say("You are signed out"),
        "sign_in": say("Sign in"),
        "paused": say("Paused while this tab is in the background"),
        "copied": say("Copied"),
        "not_copied": say("This browser does not let us copy; select the text instead"),
        "failed": say("That did not work. Is the server still running?"),
        "too_slow": say("The server takes long to answer …"),
        "no_matches": say("Nothing matches"),
    }
    return {name: in_language(text, language) for name, text in found.items()}
