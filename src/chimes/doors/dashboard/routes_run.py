"""One run: what it is doing or did, its log, and why it failed (UX A.6)."""

from __future__ import annotations

from starlette.responses import Response

from chimes.delivery.words import CHANNELS
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_run_history import (
    asked_by,
    end_of_log,
    entries_about,
    failed_step,
    known_of,
    retries_of,
    schedule_of,
    trouble_of,
)
from chimes.doors.dashboard.views_fire_log import why_of
from chimes.doors.dashboard.views_json_tree import tree_of
from chimes.doors.dashboard.views_run import (
    TABS,
    curl_of,
    exchange_of,
    in_the_way,
    input_of,
    output_of,
    plain_line,
    pretty,
    stretches_of,
    trace_of,
    usage_of,
    waterfall_of,
)
from chimes.doors.dashboard.views_run_error import failure_of
from chimes.doors.dashboard.views_run_events import events_of
from chimes.doors.dashboard.views_run_words import log_words
from chimes.doors.dashboard.views_runs import duration_bar, duration_of, node_of, visible
from chimes.doors.dashboard.views_runs_export import run_shown
from chimes.doors.dashboard.visit import Visit
from chimes.model.delivery import Delivery
from chimes.model.ids import RunId
from chimes.model.insights import BAD, lag_of
from chimes.model.listing import DeliveryQuery, RunQuery, RunSort
from chimes.model.run import Run
from chimes.service.insights import InsightService

pages = Pages()
#: Of a flow: steps that the picture shows.
MOST_STEPS = 100
#: Lines on one page, for readers without scripts.
PAGE_OF_LINES = 200


@pages.get("/runs/{id}")
async def run(visit: Visit) -> Response:
    found = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    if visit.partial and visit.query.get("part") == "bar":
        return visit.part("run/page.html", "bar", run=found)
    deliveries = await _deliveries(visit, found)
    values = await _head(visit, found, deliveries)
    if visit.partial and visit.query.get("part") == "head":
        return visit.part("run/page.html", "head", status=200, **values)
    tab = visit.query.get("tab", "log")
    values |= {"tab": tab if tab in TABS else "log", **await _tab(visit, found, tab, deliveries)}
    if visit.partial:
        return visit.part("run/page.html", "tab_body", status=200, **values)
    return visit.page("run/page.html", status=200, **values)


async def _head(visit: Visit, run: Run, deliveries: tuple[Delivery, ...]) -> dict[str, object]:
    insights = InsightService(visit.door.store)
    schedule = await schedule_of(visit, run)
    zone = schedule.trigger.zone if schedule is not None else None
    medians = (
        await insights.expected_durations(visit.actor, [run.schedule_id]) if run.schedule_id else {}
    )
    median = medians.get(run.schedule_id) if run.schedule_id else None
    children: tuple[Run, ...] = ()
    if run.target.kind == "flow":
        query = RunQuery(
            parent_id=run.id, sort=RunSort.CREATED_AT, descending=False, limit=MOST_STEPS
        )
        children = (await visit.door.runs.find(visit.actor, query)).items
    stretches = stretches_of(run, children, deliveries, visit.now, visit.look.language)
    duration = duration_of(run, visit.now)
    url = str(visit.request.base_url).rstrip("/")
    return {
        "run": run,
        "visible": visible,
        "schedule": schedule,
        "zone": zone,
        "lag": lag_of(run),
        "duration": duration,
        "median": median,
        "bar": duration_bar(duration, median),
        "node": node_of(run),
        "asked_by": await asked_by(visit, run),
        "retries": await retries_of(visit, run),
        "waterfall": waterfall_of(stretches, visit.look, zone, visit.now),
        "usage": usage_of(run),
        "trace": trace_of(run),
        "why": why_of(run),
        "in_the_way": in_the_way(run),
        "known": await known_of(visit, run, schedule),
        "may_know": schedule is not None
        and run.status in BAD
        and visit.actor.may_operate(schedule.owner),
        "deliveries": deliveries,
        "may_operate": visit.actor.may_operate(run.owner),
        "may_create": visit.actor.may_create(run.owner),
        "link": f"{url}/ui/runs/{run.id}",
        "curl": curl_of(run, url),
    }


async def _deliveries(visit: Visit, run: Run) -> tuple[Delivery, ...]:
    page = await visit.door.messages.deliveries(visit.actor, DeliveryQuery(run_id=run.id))
    return tuple(reversed(page.items))


async def _tab(
    visit: Visit, run: Run, tab: str, deliveries: tuple[Delivery, ...]
) -> dict[str, object]:
    match tab:
        case "exchange":
            return {"exchange": exchange_of(run)}
        case "data":
            given, left = input_of(run), output_of(run)
            return {
                "input": pretty(given),
                "input_tree": tree_of(given),
                "output": "" if left is None else pretty(left),
                "output_tree": tree_of(left),
            }
        case "error":
            step = await failed_step(visit, run)
            return {
                "failed_step": step,
                "failure": failure_of(run, await end_of_log(visit, step or run)),
                "trouble": await trouble_of(visit, run),
            }
        case "events":
            entries = await entries_about(visit, run)
            return {"events": events_of(run, deliveries, entries)}
        case "deliveries":
            return {"channels": CHANNELS}
        case "attempts":
            return {}
        case "raw":
            shown = run_shown(run, visit.look.language)
            return {"raw": pretty(shown), "hides": shown["result"] != run.result}
        case _:
            return await _log(visit, run)


async def _log(visit: Visit, run: Run) -> dict[str, object]:
    """A page of lines, for readers without scripts; the script asks for the rest itself."""
    text = visit.query.get("after", "")
    after = int(text) if text.isdigit() and len(text) < 16 else 0
    entries = await visit.door.runs.logs(visit.actor, run.id, after=after, limit=PAGE_OF_LINES + 1)
    shown = entries[:PAGE_OF_LINES]
    more = ""
    if len(entries) > PAGE_OF_LINES:
        more = f"/ui/runs/{run.id}?tab=log&after={shown[-1].number}"
    return {
        "lines": [(entry, plain_line(entry.message)) for entry in shown],
        "more_lines": more,
        "log_words": log_words(visit.look.language),
    }
