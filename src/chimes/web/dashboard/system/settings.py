"""System, settings: every value with where it came from, and what follows from some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import PackageNotFoundError, version

from starlette.responses import Response

from chimes.config import Settings
from chimes.config.loader import shown_settings
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.services.templates import templates_shown
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.editor.trigger_fields import countries, country_code
from chimes.web.dashboard.system.routes import operators_only

# @@ Settings as System shows them; nothing here asks a store.

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
            _("Store the schedules of the application"),
            known.use_db_driven_scheduling,
        ),
        (
            "softnix_scheduler_enabled",
            _("Fire prompts created through the Softnix API"),
            known.softnix_scheduler_enabled,
        ),
        ("agent_pipeline", _("Agents execute prompts"), bool(known.agent_pipeline)),
        ("action_url", _("Execute actions"), bool(known.action_url)),
        ("telegram_token", _("Telegram bot"), bool(known.telegram_token)),
        ("smtp_url", _("Send e-mail"), bool(known.smtp_url)),
        (
            "allow_private_targets",
            _("Allow calls to private addresses even with API keys"),
            bool(known.allow_private_targets),
        ),
        (
            "egress_allow_metadata",
            _("Allow calls to cloud metadata services"),
            known.egress_allow_metadata,
        ),
        (
            "allow_volatile",
            _("Allow a Redis server that may lose data"),
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

    country, _unused, part = code.partition("-")
    years = (today.year, today.year + 1)
    try:
        found = holidays.country_holidays(
            country, subdiv=part or None, years=years, language=_LANGUAGES[language]
        )
    except NotImplementedError:
        raise InvalidInput(_("Unknown country {code!r}", code=code), field="country") from None
    coming = sorted((day, name) for day, name in found.items() if day >= today)
    return tuple((day.isoformat(), str(name)) for day, name in coming[:_SHOWN])


router = PageRouter()
#: More than so many are not counted one by one.
MOST_COUNTED = 50_000
_LONGEST_DAYS = 36_500


@router.get("/system/settings")
async def settings(request: PageRequest) -> Response:
    operators_only(request)
    known = request.context.settings
    found = shown_settings(known, request.context.origins)
    wanted = request.query.get("q", "").strip().lower()
    changed = request.query.get("changed") == "yes"
    country = request.query.get("country", "").strip()
    return request.render(
        "system/settings.html",
        settings=[
            each
            for each in found
            if wanted in each.name and (not changed or each.origin not in ("", "default"))
        ],
        by_name={each.name: each for each in found},
        wanted=wanted,
        changed=changed,
        kept=await _kept(request),
        flags=flags_of(known, request.context.origins),
        templates=templates_shown(request.display.zone, request.display.language, request.now),
        tzdata=package_version("tzdata"),
        holidays=package_version("holidays"),
        countries=countries(request.display.language),
        country=country,
        days=await _holidays(request, country),
    )


async def _kept(request: PageRequest) -> Kept:
    """What retention would forget now, or with as many days as the visitor asks about."""
    usual = request.context.settings.retention
    asked = request.query.get("days", "").strip()
    retention, wrong = usual, ""
    if asked:
        if asked.isdecimal() and 1 <= int(asked) <= _LONGEST_DAYS:
            retention = timedelta(days=int(asked))
        else:
            wrong = _("between 1 and {limit} days", limit=_LONGEST_DAYS)
    count = await request.context.store.count_prunable(
        request.now - retention, most=MOST_COUNTED + 1
    )
    return Kept(
        usual=usual,
        retention=retention,
        asked=asked,
        count=min(count, MOST_COUNTED),
        more=count > MOST_COUNTED,
        wrong=wrong,
    )


async def _holidays(request: PageRequest, country: str) -> tuple[tuple[str, str], ...] | None:
    """None: nobody asked. Empty: no such country."""
    if not country:
        return None
    try:
        # The package takes a second to load.
        return await asyncio.to_thread(
            holidays_in, country_code(country), request.now.date(), request.display.language
        )
    except InvalidInput:
        return ()
