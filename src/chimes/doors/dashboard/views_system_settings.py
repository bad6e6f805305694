"""Settings as System shows them; nothing here asks a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import PackageNotFoundError, version

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.wording import say

#: Holidays that are shown from today on.
_SHOWN = 12
#: As the package calls them; what it has no names in is English.
_LANGUAGES = {"en": "en_US", "th": "th", "zh": "zh_CN"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """How long runs are kept, and what that would forget now."""

    usual: timedelta
    retention: timedelta
    #: In days, as the visitor wrote it; empty: as it is set.
    asked: str
    count: int
    #: There are more than were counted.
    more: bool
    wrong: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    name: str
    #: What it is for, said.
    text: str
    on: bool
    origin: str


def flags_of(known: Settings, origins: Mapping[str, str]) -> tuple[Flag, ...]:
    """What can be switched on and off, or is on because something is set."""
    found = (
        (
            "use_db_driven_scheduling",
            say("Schedules of the application are kept in the store"),
            known.use_db_driven_scheduling,
        ),
        (
            "softnix_scheduler_enabled",
            say("Prompts made through the Softnix door fire"),
            known.softnix_scheduler_enabled,
        ),
        ("agent_pipeline", say("Agents carry out prompts"), bool(known.agent_pipeline)),
        ("action_url", say("Actions are executed"), bool(known.action_url)),
        ("telegram_token", say("The Telegram bot answers"), bool(known.telegram_token)),
        ("smtp_url", say("E-mail is sent"), bool(known.smtp_url)),
        (
            "allow_private_targets",
            say("Calls may go to private addresses, also where keys are on"),
            bool(known.allow_private_targets),
        ),
        (
            "egress_allow_metadata",
            say("Calls may go to the metadata service of a cloud"),
            known.egress_allow_metadata,
        ),
        (
            "allow_volatile",
            say("A Redis server is used that may lose data"),
            known.allow_volatile,
        ),
    )
    return tuple(
        Flag(name=name, text=text, on=on, origin=origins.get(name, "")) for name, text, on in found
    )


def package_version(name: str) -> str:
    """Empty: it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def holidays_in(code: str, today: date, language: str) -> tuple[tuple[str, str], ...]:
    """The next ones of a country, such as `TH` or `US-CA`: day and name. InvalidInput."""
    import holidays

    country, _, part = code.partition("-")
    years = (today.year, today.year + 1)
    try:
        found = holidays.country_holidays(
            country, subdiv=part or None, years=years, language=_LANGUAGES[language]
        )
    except NotImplementedError:
        raise InvalidInput(
            say("There is no country {code!r}", code=code), field="country"
        ) from None
    coming = sorted((day, name) for day, name in found.items() if day >= today)
    return tuple((day.isoformat(), str(name)) for day, name in coming[:_SHOWN])
