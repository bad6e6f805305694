"""The simulator, and `/ui/cron`: cron expressions in words, with zones and clock changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAuthenticated, RateLimited
from chimes.i18n import _, in_language
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.model.run import describe_reason
from chimes.model.simulation import Simulation, parse_outage, summary_of
from chimes.model.validation import check_fires
from chimes.services.access import CALCULATIONS
from chimes.services.schedules.rules import load_calendars
from chimes.triggers import Trigger, parse_duration, parse_zone
from chimes.triggers.cron import DIALECTS
from chimes.triggers.text import parse_trigger_text
from chimes.web.dashboard.charts.load import LoadPart, LoadTexts, load_chart
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.auth import ANONYMOUS
from chimes.web.dashboard.core.page_request import LANGUAGE_NAMES, PageRequest, PageRouter
from chimes.web.dashboard.core.times import absolute, span
from chimes.web.dashboard.editor.preview import clock_notes, cron_parts

router = PageRouter()

# --- cron expressions -----------------------------------------------------------------------------
#: Fires of an expression that the page shows.
_FIRES: Final = 10
#: Requests without an account, of one address.
_ANONYMOUS_PER_SECOND, _ANONYMOUS_BURST = 1.0, 30
_LONGEST = 500
_EXAMPLES = ("0 9 * * 1-5", "*/15 * * * *", "0 0 L * *", "30 2 * * *", "@monthly", "every 90m")


@router.get("/cron", public=True)
async def cron(request: PageRequest) -> Response:
    signed_in = request.actor is not ANONYMOUS
    if not signed_in:
        if not request.context.settings.public_cron_page:
            raise NotAuthenticated(presented=False)
        await _limit(request)
    if (language := request.query.get("lang", "")) in LANGUAGE_NAMES:
        request = replace(request, display=replace(request.display, language=language))
    text = request.query.get("expression", "").strip()[:_LONGEST]
    zone = request.query.get("zone", "").strip()[:64] or request.display.zone
    dialect = request.query.get("dialect", "auto")
    values: dict[str, object] = {"rows": (), "words": "", "error": "", "hint": ""}
    if text:
        await load_calendars(text)
        try:
            zone = parse_zone(zone).name
            chosen = dialect if dialect in DIALECTS else "auto"
            values |= await CALCULATIONS.run(partial(_explained, request, text, zone, chosen))
        except InvalidInput as error:
            language = request.display.language
            values |= {
                "error": in_language(error.message, language),
                "hint": in_language(error.hint, language) if error.hint else "",
            }
    return request.render(
        "forecast/cron.html",
        status=422 if values["error"] else 200,
        frame="base.html" if signed_in else "alone.html",
        expression=text,
        zone=zone,
        dialect=dialect,
        dialects=DIALECTS,
        examples=_EXAMPLES,
        parts=cron_parts(text, dialect, request.display.language),
        languages_shown=LANGUAGE_NAMES,
        language=request.display.language,
        **values,
    )


async def _limit(request: PageRequest) -> None:
    client = request.http.client
    taken = await request.context.store.take_tokens(
        f"cron:{client.host if client else ''}",
        rate=_ANONYMOUS_PER_SECOND,
        burst=_ANONYMOUS_BURST,
    )
    if not taken.granted:
        raise RateLimited(_("too many requests; try again shortly"), retry_after=taken.wait)


def _explained(request: PageRequest, text: str, zone: str, dialect: str) -> dict[str, object]:
    display, now = request.display, request.now
    given = parse_trigger_text(text, zone, dialect)  # type: ignore[arg-type]
    trigger: Trigger = given.with_default_zone(zone).with_default_anchor()
    check_fires(trigger, now)
    rows = [
        (
            absolute(fire.at, trigger.zone, display, now=now, seconds=bool(fire.at.second)),
            absolute(fire.at, display.zone, display, now=now, seconds=bool(fire.at.second)),
            fire.at,
            note_in_words(fire.note, display.language) if fire.note else "",
        )
        for fire in trigger.fires(now, _FIRES)
    ]
    return {
        "words": describe(given, display.language),
        "rows": rows,
        "warnings": warnings_in_words(trigger, display.language),
        "notes": tuple(clock_notes(trigger, display, now)),
    }


# --- simulator ------------------------------------------------------------------------------------
_MAX_DAYS: Final = 31
_SHOWN: Final = 50
#: Runs of one node at once if the configuration does not say.
_WORKERS: Final = 100


@router.get("/simulate")
async def simulate(request: PageRequest) -> Response:
    given = {
        "days": "7",
        "nodes": "1",
        "workers": str(request.context.settings.workers or _WORKERS),
        "durations": "history",
        "duration": "1s",
        "outage": "",
    } | {name: value.strip()[:100] for name, value in request.query.items()}
    found: Simulation | None = None
    error = ""
    if "days" in request.query:
        try:
            found = await _simulated(request, given)
        except InvalidInput as problem:
            error = in_language(problem.message, request.display.language)
    values: dict[str, object] = {}
    if found is not None:
        names = {
            "slots": _("Slots"),
            "succeeded": _("Succeeded"),
            "skipped": _("Skipped"),
            "missed": _("Missed"),
            "canceled": _("Canceled"),
            "late": _("Late"),
            "max_concurrent": _("Most runs at once"),
            "max_waiting": _("Most runs waiting"),
        }
        summary = summary_of(found)
        notable = [
            each
            for each in found.runs
            if each.started_at is None or (each.lateness and each.lateness > timedelta(0))
        ]
        values = {
            "summary": [(title, summary[name]) for name, title in names.items()],
            "longest": max(
                (each.lateness for each in found.runs if each.lateness), default=timedelta(0)
            ),
            "chart": _chart(request, found),
            "notable": notable[:_SHOWN],
            "more": max(0, len(notable) - _SHOWN),
            "describe_reason": describe_reason,
            "cut": found.until < found.since + timedelta(days=int(given["days"])),
        }
    return request.render(
        "forecast/simulate.html",
        status=422 if error else 200,
        given=given,
        found=found,
        error=error,
        **values,
    )


async def _simulated(request: PageRequest, given: dict[str, str]) -> Simulation:
    outages = [
        parse_outage(each, request.now, request.display.zone)
        for each in given["outage"].split(",")
        if each.strip()
    ]
    nodes, workers = _number(given, "nodes", 1000), _number(given, "workers", 10_000)
    return await request.context.forecasts.simulate(
        request.actor,
        timedelta(days=_number(given, "days", _MAX_DAYS)),
        capacity=nodes * workers,
        default_duration=parse_duration(given["duration"], field="duration", allow_zero=True),
        with_history=given["durations"] != "fixed",
        outages=outages,
    )


def _number(given: dict[str, str], name: str, most: int) -> int:
    text = given[name]
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise InvalidInput(
            _("{name} is a number from 1 to {most}", name=name, most=most),
            field=name,
            code="out_of_range",
        )
    return int(text)


def _chart(request: PageRequest, found: Simulation) -> Chart:
    display = request.display
    translate = partial(in_language, language=display.language)
    parts = [
        LoadPart(
            name=absolute(each.at, display.zone, display, now=request.now),
            started=each.started,
            late=each.late,
            skipped=each.skipped,
            missed=each.missed,
            concurrent=each.concurrent,
            lateness=span(each.lateness, display.language),
        )
        for each in found.timeline
    ]
    return load_chart(
        parts,
        LoadTexts(
            title=translate(_("Simulated runs")),
            description=translate(
                _("Bars show slots by what becomes of them; below, the most runs at once.")
            ),
            when=translate(_("When")),
            started=translate(_("Started")),
            late=translate(_("Late")),
            skipped=translate(_("Skipped")),
            missed=translate(_("Missed")),
            concurrent=translate(_("Most runs at once")),
            lateness=translate(_("Longest wait")),
        ),
    )
