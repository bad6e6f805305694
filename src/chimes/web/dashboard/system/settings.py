"""Settings page: effective settings with their origin, retention preview, flags and holidays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import PackageNotFoundError, version

from starlette.responses import Response

from chimes.config import Settings
from chimes.config.loader import describe_settings
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.services.schedules.templates import render_templates
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter
from chimes.web.dashboard.editor.trigger_fields import countries, country_code
from chimes.web.dashboard.system.routes import require_operator

_SHOWN_HOLIDAYS = 12
#: Language codes of the holidays package; it falls back to English.
_HOLIDAY_LANGUAGES = {"en": "en_US", "th": "th", "zh": "zh_CN"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPreview:
    """How many runs a retention would delete now."""

    configured: timedelta
    retention: timedelta
    #: Days as entered in the form; empty: the configured retention.
    days: str
    count: int
    #: `count` is a lower bound.
    more: bool
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureFlag:
    name: str
    description: str
    on: bool
    origin: str


def feature_flags(settings: Settings, origins: Mapping[str, str]) -> tuple[FeatureFlag, ...]:
    """Returns boolean settings, and features that are on because their setting is not empty."""
    found = (
        (
            "use_db_driven_scheduling",
            _("Store the schedules of the application"),
            settings.use_db_driven_scheduling,
        ),
        (
            "softnix_scheduler_enabled",
            _("Fire prompts created through the Softnix API"),
            settings.softnix_scheduler_enabled,
        ),
        ("agent_pipeline", _("Agents execute prompts"), bool(settings.agent_pipeline)),
        ("action_url", _("Execute actions"), bool(settings.action_url)),
        ("telegram_token", _("Telegram bot"), bool(settings.telegram_token)),
        ("smtp_url", _("Send e-mail"), bool(settings.smtp_url)),
        (
            "allow_private_targets",
            _("Allow calls to private addresses even with API keys"),
            bool(settings.allow_private_targets),
        ),
        (
            "egress_allow_metadata",
            _("Allow calls to cloud metadata services"),
            settings.egress_allow_metadata,
        ),
        (
            "allow_volatile",
            _("Allow a Redis server that may lose data"),
            settings.allow_volatile,
        ),
    )
    return tuple(
        FeatureFlag(name=name, description=description, on=on, origin=origins.get(name, ""))
        for name, description, on in found
    )


def package_version(name: str) -> str:
    """Returns an empty string if the package is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def next_holidays(code: str, today: date, language: str) -> tuple[tuple[str, str], ...]:
    """Returns day and name of the next holidays of a country or region, such as `TH` or `US-CA`.
    Raises InvalidInput for an unknown code."""
    import holidays

    country, _dash, region = code.partition("-")
    years = (today.year, today.year + 1)
    try:
        found = holidays.country_holidays(
            country, subdiv=region or None, years=years, language=_HOLIDAY_LANGUAGES[language]
        )
    except NotImplementedError:
        raise InvalidInput(_("Unknown country {code!r}", code=code), field="country") from None
    coming = sorted((day, name) for day, name in found.items() if day >= today)
    return tuple((day.isoformat(), str(name)) for day, name in coming[:_SHOWN_HOLIDAYS])


router = PageRouter()
#: Counting stops here, because a large table takes long.
MAX_COUNTED = 50_000
_MAX_DAYS = 36_500


@router.get("/system/settings")
async def settings(request: PageRequest) -> Response:
    require_operator(request)
    effective = request.context.settings
    found = describe_settings(effective, request.context.origins)
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
        retention=await _retention_preview(request),
        flags=feature_flags(effective, request.context.origins),
        templates=render_templates(request.display.zone, request.display.language, request.now),
        tzdata=package_version("tzdata"),
        holidays=package_version("holidays"),
        countries=countries(request.display.language),
        country=country,
        days=await _holidays(request, country),
    )


async def _retention_preview(request: PageRequest) -> RetentionPreview:
    """Counts the runs that the configured retention, or the one in the form, would delete."""
    configured = request.context.settings.retention
    days = request.query.get("days", "").strip()
    retention, error = configured, ""
    if days:
        if days.isdecimal() and 1 <= int(days) <= _MAX_DAYS:
            retention = timedelta(days=int(days))
        else:
            error = _("between 1 and {limit} days", limit=_MAX_DAYS)
    count = await request.context.system.count_prunable(
        request.actor, request.now - retention, limit=MAX_COUNTED + 1
    )
    return RetentionPreview(
        configured=configured,
        retention=retention,
        days=days,
        count=min(count, MAX_COUNTED),
        more=count > MAX_COUNTED,
        error=error,
    )


async def _holidays(request: PageRequest, country: str) -> tuple[tuple[str, str], ...] | None:
    """Returns None without a country, and no holidays for an unknown one."""
    if not country:
        return None
    try:
        # Importing the holidays package takes a second.
        return await asyncio.to_thread(
            next_holidays, country_code(country), request.now.date(), request.display.language
        )
    except InvalidInput:
        return ()
