"""Today: is all well, and what comes next? (UX A.1)"""

from __future__ import annotations

from asyncio import gather
from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.look import by_clock
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_today import (
    DAY,
    Head,
    Nodes,
    Numbers,
    RecentChange,
    health,
    needing_attention,
    nodes_seen,
    recent_changes,
    running_count,
    running_rows,
    since_a_day,
    tiles,
)
from chimes.doors.dashboard.views_today_pictures import (
    LANES,
    SPANS,
    USUAL_SPAN,
    Timeline,
    ahead_chart,
    heat_cells,
    heat_chart,
    lanes_of,
)
from chimes.doors.dashboard.visit import Visit
from chimes.model.attention import Attentions
from chimes.model.ids import ScheduleId
from chimes.model.insights import QUARTER, ScheduleCounts, Tally, Window, summed
from chimes.model.listing import AuditQuery, ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.model.templates import offers
from chimes.service.demo import DemoService
from chimes.service.insights import InsightService, RunningNow
from chimes.service.snoozing import SnoozeService, awake
from chimes.triggers.moment import parse_moment

pages = Pages()
WEEK = timedelta(days=7)
SHOWN_NEEDING = 20
SHOWN_RUNNING = 20
SHOWN_CHANGES = 5
#: On the empty page.
SHOWN_TEMPLATES = 6
CODE = """from chimes import Chimes

app = Chimes()

@app.task()
def report():
    print("good morning")

app.schedule("report", "every weekday 9:00", report)
app.run()
"""


@pages.get("/")
async def today(visit: Visit) -> Response:
    """The page, or a part of it that changes by itself (`?part=`)."""
    part = visit.query.get("part", "") if visit.partial else ""
    if part == "running":
        rows = running_rows(await _held(visit), visit.actor, visit.now)
        return visit.part("today/page.html", "running", running=rows)
    if part == "ahead":
        ahead = await _ahead(visit, await _soonest(visit))
        return visit.part("today/page.html", "ahead", ahead=ahead)
    insights = InsightService(visit.door.store)
    schedules, counts = await gather(_soonest(visit), insights.schedule_counts(visit.actor))
    if not counts.total and part != "health":
        return _empty(visit)
    quarters, held = await gather(_quarters(visit), _held(visit))
    if part == "health":
        head = await _head(visit, counts, quarters, held, schedules)
        return visit.part("today/page.html", "health", head=head)
    # Each is a chain of questions by itself; databases answer several at a time.
    head, ahead, changes, demo = await gather(
        _head(visit, counts, quarters, held, schedules),
        _ahead(visit, schedules),
        _changes(visit),
        DemoService(visit.door.store).loaded(visit.actor),
    )
    return visit.page(
        "today/page.html",
        head=head,
        ahead=ahead,
        running=running_rows(held, visit.actor, visit.now),
        heat=_heat(visit, quarters),
        changes=changes,
        demo=demo,
        may_remove_demo=visit.actor.administers,
    )


async def _head(
    visit: Visit,
    counts: ScheduleCounts,
    quarters: tuple[Tally, ...],
    held: tuple[RunningNow, ...],
    schedules: tuple[Schedule, ...],
) -> Head:
    day = Window.last(DAY, visit.now)
    week = summed(quarters, quarters[0].at)
    running = running_count(held, SHOWN_RUNNING, week)
    (found, snoozed), nodes, lag = await gather(
        _attention(visit),
        _nodes(visit),
        InsightService(visit.door.store).lag(visit.actor, day),
    )
    numbers = Numbers(
        counts=counts,
        running=running,
        day=since_a_day(quarters, visit.now),
        week=week,
        lag=lag,
        since=day.since,
    )
    next_at = schedules[0].next_run_at if schedules else None
    needing = found.total + nodes.troubles
    return Head(
        health=health(needing, counts, running, next_at, visit.look, visit.now),
        needing=needing_attention(found, visit.actor),
        more=found.total - len(found.items),
        snoozed=snoozed,
        nodes=nodes,
        tiles=tiles(numbers, visit.actor, visit.look),
    )


async def _quarters(visit: Visit) -> tuple[Tally, ...]:
    """Of a week: the numbers of the day, of the week and of the heat map are all sums of these."""
    window = Window.last(WEEK, visit.now)
    return await InsightService(visit.door.store).run_buckets(visit.actor, window, QUARTER)


async def _soonest(visit: Visit) -> tuple[Schedule, ...]:
    query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=LANES)
    found = await visit.door.schedules.find(visit.actor, query)
    return tuple(each for each in found.items if each.next_run_at is not None)


async def _held(visit: Visit) -> tuple[RunningNow, ...]:
    insights = InsightService(visit.door.store)
    return await insights.running(visit.actor, limit=SHOWN_RUNNING)


async def _attention(visit: Visit) -> tuple[Attentions, int]:
    """What is to be looked at, and how many of those somebody has put off."""
    snoozes = await SnoozeService(visit.door.store).of(visit.actor, visit.now)
    insights = InsightService(visit.door.store)
    found = await insights.attention(visit.actor, limit=SHOWN_NEEDING + len(snoozes))
    shown = awake(found, snoozes, SHOWN_NEEDING)
    return shown, found.total - shown.total


async def _nodes(visit: Visit) -> Nodes:
    """What is about everybody is for those who see everything (C15)."""
    if not visit.actor.sees_everything:
        return Nodes()
    state = await visit.door.store.status()
    return nodes_seen(await visit.door.store.nodes(), state.degraded or "", visit.now)


async def _ahead(visit: Visit, schedules: tuple[Schedule, ...]) -> Timeline:
    ahead = SPANS.get(visit.query.get("span", ""), USUAL_SPAN)
    insights = InsightService(visit.door.store)
    ids = [each.id for each in schedules]
    glances = await insights.glances(visit.actor, ids) if ids else {}
    lanes = lanes_of(schedules, glances, visit.now + ahead.length, visit.now)
    return Timeline(
        chart=ahead_chart(lanes, ahead, visit.look, visit.now) if lanes else None,
        span=ahead.name,
        zone=by_clock(visit.look, None),
    )


def _heat(visit: Visit, quarters: tuple[Tally, ...]) -> Chart | None:
    cells = heat_cells(quarters, by_clock(visit.look, None), visit.now)
    any_runs = any(cell.count for row in cells for cell in row)
    return heat_chart(cells, visit.look, visit.now) if any_runs else None


async def _changes(visit: Visit) -> tuple[RecentChange, ...] | None:
    """None: not for this reader."""
    if not visit.actor.sees_everything:
        return None
    store = visit.door.store
    found = await store.list_audit(AuditQuery(limit=SHOWN_CHANGES))
    names: dict[str, str] = {}
    for schedule_id in {each.object_id for each in found if each.object_kind == "schedule"}:
        schedule = await store.get_schedule(ScheduleId(schedule_id))
        names[schedule_id] = schedule.name if schedule is not None else schedule_id
    return recent_changes(found, names)


def _empty(visit: Visit) -> Response:
    return visit.page(
        "today/empty.html",
        code=CODE,
        offers=offers(visit.look.language)[-SHOWN_TEMPLATES:],
        may_create=visit.actor.may_create(visit.actor.owner),
        may_load_demo=visit.actor.administers,
    )


@pages.get("/fires/{id}")
async def fire(visit: Visit) -> Response:
    """One mark of the timeline: what it is, and what can be done about it."""
    schedule = await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))
    at = parse_moment(visit.query.get("at", ""), "UTC", field="at")
    insights = InsightService(visit.door.store)
    glances = await insights.glances(visit.actor, [schedule.id])
    return visit.page_or_part(
        "today/fire.html",
        "part",
        schedule=schedule,
        at=at,
        is_next=schedule.next_run_at == at,
        glance=glances.get(schedule.id),
        may_operate=visit.actor.may_operate(schedule.owner),
        back=visit.back(),
    )
