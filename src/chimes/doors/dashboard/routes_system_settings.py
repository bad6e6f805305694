"""System, settings: every value with where it came from, and what follows from some of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from starlette.responses import Response

from chimes.config.shown import shown_settings
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.views_system_settings import (
    Kept,
    flags_of,
    holidays_in,
    package_version,
)
from chimes.doors.dashboard.views_wizard_calendars import countries, country_code
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.service.templates import templates_shown
from chimes.wording import say

pages = Pages()
#: More than so many are not counted one by one.
MOST_COUNTED = 50_000
_LONGEST_DAYS = 36_500


@pages.get("/system/settings")
async def settings(visit: Visit) -> Response:
    operators_only(visit)
    known = visit.door.settings
    found = shown_settings(known, visit.door.origins)
    wanted = visit.query.get("q", "").strip().lower()
    changed = visit.query.get("changed") == "yes"
    country = visit.query.get("country", "").strip()
    return visit.page(
        "system/settings.html",
        settings=[
            each
            for each in found
            if wanted in each.name and (not changed or each.origin not in ("", "default"))
        ],
        by_name={each.name: each for each in found},
        wanted=wanted,
        changed=changed,
        kept=await _kept(visit),
        flags=flags_of(known, visit.door.origins),
        templates=templates_shown(visit.look.zone, visit.look.language, visit.now),
        tzdata=package_version("tzdata"),
        holidays=package_version("holidays"),
        countries=countries(visit.look.language),
        country=country,
        days=await _holidays(visit, country),
    )


async def _kept(visit: Visit) -> Kept:
    """What retention would forget now, or with as many days as the visitor asks about."""
    usual = visit.door.settings.retention
    asked = visit.query.get("days", "").strip()
    retention, wrong = usual, ""
    if asked:
        if asked.isdecimal() and 1 <= int(asked) <= _LONGEST_DAYS:
            retention = timedelta(days=int(asked))
        else:
            wrong = say("between 1 and {most} days", most=_LONGEST_DAYS)
    count = await visit.door.store.count_prunable(visit.now - retention, most=MOST_COUNTED + 1)
    return Kept(
        usual=usual,
        retention=retention,
        asked=asked,
        count=min(count, MOST_COUNTED),
        more=count > MOST_COUNTED,
        wrong=wrong,
    )


async def _holidays(visit: Visit, country: str) -> tuple[tuple[str, str], ...] | None:
    """None: nobody asked. Empty: no such country."""
    if not country:
        return None
    try:
        # The package takes a second to load.
        return await asyncio.to_thread(
            holidays_in, country_code(country), visit.now.date(), visit.look.language
        )
    except InvalidInput:
        return ()
