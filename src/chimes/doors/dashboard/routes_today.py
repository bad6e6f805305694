"""Today: is all well, and what comes next? (UX A.1)"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Mapping

from starlette.responses import Response

from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_today_attention import WEEK, found_needs
from chimes.doors.dashboard.views_today import (
    DAY,
    Head,
    Numbers,
    RecentChange,
    RunningRow,
    health,
    recent_changes,
    running_count,
    running_rows,
    since_a_day,
    tiles,
)
from chimes.doors.dashboard.views_today_choices import Choices, choices_in
from chimes.doors.dashboard.views_today_heat import heat_cells, heat_chart, heat_window
from chimes.doors.dashboard.views_today_needs import Nodes, nodes_seen
from chimes.doors.dashboard.views_today_pictures import (
    LABELLED,
    LANES,
    Timeline,
    ahead_chart,
    lanes_by_label,
    lanes_of,
)
from chimes.doors.dashboard.visit import Visit
from chimes.model.ids import ScheduleId
from chimes.model.insights import Glance, ScheduleCounts, Window, summed
from chimes.model.listing import AuditQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.templates import offers
from chimes.service.demo import DemoService
from chimes.service.insights import InsightService
from chimes.wording import in_language, say

pages = Pages()
SHOWN_NEEDING = 10
SHOWN_RUNNING = 10
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
    choices = choices_in(visit.query)
    if part == "running":
        held = await _held(visit)
        rows = await _rows(visit, held, await _glances(visit, held=held))
        return visit.part("today/page.html", "running", running=rows, most_running=SHOWN_RUNNING)
    if part == "ahead":
        schedules = await _soonest(visit, choices)
        ahead = _ahead(visit, choices, schedules, await _glances(visit, schedules))
        return visit.part("today/page.html", "ahead", ahead=ahead)
    insights = InsightService(visit.door.store)
    schedules, counts, held = await gather(
        _soonest(visit, choices), insights.schedule_counts(visit.actor), _held(visit)
    )
    if not counts.total and part != "health":
        return _empty(visit)
    if part == "health":
        head = await _head(visit, counts, held, schedules)
        return visit.part("today/page.html", "health", head=head)
    # Each is a chain of questions by itself; databases answer several at a time.
    head, (ahead, running), heat, changes, demo = await gather(
        _head(visit, counts, held, schedules),
        _coming_and_running(visit, choices, schedules, held),
        _heat(visit, choices),
        _changes(visit),
        DemoService(visit.door.store).loaded(visit.actor),
    )
    return visit.page(
        "today/page.html",
        head=head,
        ahead=ahead,
        running=running,
        most_running=SHOWN_RUNNING,
        heat=heat,
        changes=changes,
        demo=demo,
        may_remove_demo=visit.actor.administers,
    )


async def _head(
    visit: Visit,
    counts: ScheduleCounts,
    held: tuple[Run, ...],
    schedules: tuple[Schedule, ...],
) -> Head:
    now, look = visit.now, visit.look
    last, since = Window.last(WEEK, now), Window.last(DAY, now)
    (needs, days), nodes, lag = await gather(
        found_needs(visit, SHOWN_NEEDING),
        _nodes(visit),
        InsightService(visit.door.store).lag(visit.actor, since),
    )
    week, day = summed(days, last.since), since_a_day(days, now)
    running = running_count(held, SHOWN_RUNNING, week)
    numbers = Numbers(
        counts=counts, running=running, day=day, week=week, lag=lag, since=since.since
    )
    next_at = schedules[0].next_run_at if schedules else None
    troubles = needs.total + nodes.troubles
    return Head(
        health=health(troubles, counts, running, next_at, look, now),
        needs=needs,
        nodes=nodes,
        tiles=tiles(numbers, visit.actor, look),
    )


async def _soonest(visit: Visit, choices: Choices) -> tuple[Schedule, ...]:
    limit = LABELLED if choices.lanes == "label" else LANES
    query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=limit)
    found = await visit.door.schedules.find(visit.actor, query)
    return tuple(each for each in found.items if each.next_run_at is not None)


async def _held(visit: Visit) -> tuple[Run, ...]:
    return await InsightService(visit.door.store).held(visit.actor, limit=SHOWN_RUNNING)


async def _glances(
    visit: Visit, schedules: Iterable[Schedule] = (), held: Iterable[Run] = ()
) -> dict[ScheduleId, Glance]:
    """At all of them in one question."""
    ids = {each.id for each in schedules}
    ids |= {each.schedule_id for each in held if each.schedule_id is not None}
    return await InsightService(visit.door.store).glances(visit.actor, ids) if ids else {}


async def _coming_and_running(
    visit: Visit, choices: Choices, schedules: tuple[Schedule, ...], held: tuple[Run, ...]
) -> tuple[Timeline, tuple[RunningRow, ...]]:
    glances = await _glances(visit, schedules, held)
    return _ahead(visit, choices, schedules, glances), await _rows(visit, held, glances)


async def _rows(
    visit: Visit, held: tuple[Run, ...], glances: Mapping[ScheduleId, Glance]
) -> tuple[RunningRow, ...]:
    """With the last line of each: they are the reader's own, and so are their logs."""
    ids = [each.id for each in held]
    lines = await visit.door.store.last_logs(ids) if ids else {}
    return running_rows(held, glances, lines, visit.actor, visit.look, visit.now)


async def _nodes(visit: Visit) -> Nodes:
    """What is about everybody is for those who see everything (C15)."""
    if not visit.actor.sees_everything:
        return Nodes()
    state = await visit.door.store.status()
    return nodes_seen(await visit.door.store.nodes(), state.degraded or "", visit.now)


def _ahead(
    visit: Visit,
    choices: Choices,
    schedules: tuple[Schedule, ...],
    glances: Mapping[ScheduleId, Glance],
) -> Timeline:
    look, now = choices.look(visit.look), visit.now
    end = now + choices.ahead.length
    by_label = choices.lanes == "label"
    if by_label:
        without = in_language(say("without a label"), look.language)
        lanes = lanes_by_label(schedules, glances, end, now, without)
    else:
        lanes = lanes_of(schedules, glances, end, now)
    chart = ahead_chart(lanes, choices.ahead, look, now, by_label=by_label) if lanes else None
    return Timeline(
        chart=chart,
        choices=choices,
        zone=choices.zone(visit.look),
        own_zone=visit.look.zone if visit.look.zone != "UTC" else None,
    )


async def _heat(visit: Visit, choices: Choices) -> Chart | None:
    zone, now, days = choices.zone(visit.look), visit.now, choices.days
    window, step = heat_window(zone, now, days)
    tallies = await InsightService(visit.door.store).run_buckets(visit.actor, window, step)
    cells = heat_cells(tallies, zone, now, days, step=step)
    any_runs = any(cell.count for row in cells for cell in row)
    return heat_chart(cells, choices.look(visit.look), visit.now) if any_runs else None


async def _changes(visit: Visit) -> tuple[RecentChange, ...] | None:
    """None: not for this reader."""
    if not visit.actor.sees_everything:
        return None
    store = visit.door.store
    found = await store.list_audit(AuditQuery(limit=SHOWN_CHANGES))
    wanted = {ScheduleId(each.object_id) for each in found if each.object_kind == "schedule"}
    if not wanted:
        return recent_changes(found, {})
    listed = await store.list_schedules(ScheduleQuery(ids=tuple(sorted(wanted)), limit=None))
    # Lists are without those that were deleted, which is what was changed.
    gone = await gather(
        *(store.get_schedule(each) for each in wanted - {each.id for each in listed.items})
    )
    known = (*listed.items, *(each for each in gone if each is not None))
    return recent_changes(found, {each.id: each.name for each in known})


def _empty(visit: Visit) -> Response:
    return visit.page(
        "today/empty.html",
        code=CODE,
        offers=offers(visit.look.language)[-SHOWN_TEMPLATES:],
        may_create=visit.actor.may_create(visit.actor.owner),
        may_load_demo=visit.actor.administers,
    )
