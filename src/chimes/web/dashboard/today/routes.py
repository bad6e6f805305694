"""Today: is all well, and what comes next? (UX A.1)"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Mapping
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import _, counted, in_language
from chimes.model.ids import ScheduleId
from chimes.model.insights import Attentions, Cause, Glance, ScheduleCounts, Tally, Window, summed
from chimes.model.listing import AuditQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.attention import PutOff, Refusal, SnoozeService, refusals
from chimes.services.demo import DemoService
from chimes.services.insights import InsightService
from chimes.services.slots import upcoming_fires
from chimes.services.templates import offers
from chimes.triggers.moment import parse_moment
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import Question
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages
from chimes.web.dashboard.today.charts import (
    LABELLED,
    LANES,
    Timeline,
    ahead_chart,
    heat_cells,
    heat_chart,
    heat_window,
    lanes_by_label,
    lanes_of,
)
from chimes.web.dashboard.today.views import (
    DAY,
    Choices,
    Head,
    Needs,
    Nodes,
    Numbers,
    RecentChange,
    RunningRow,
    choices_in,
    health,
    needs_of,
    nodes_seen,
    recent_changes,
    running_count,
    running_rows,
    since_a_day,
    tiles,
)

# @@ What can be done on Today itself: about a fire to come, put a sign off for a day, and load or
# remove the demo.

pages = Pages()
#: Fires that are walked through for the card of a mark that stands for several.
MOST_IN_A_MARK = 100


@pages.get("/fires/{id}")
async def fire(visit: PageRequest) -> Response:
    """One mark of the timeline: what it is, and what can be done about it."""
    schedule = await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))
    at = parse_moment(visit.query.get("at", ""), "UTC", field="at")
    until = parse_moment(visit.query.get("until") or visit.query["at"], "UTC", field="until")
    found = upcoming_fires([schedule], until, limit=MOST_IN_A_MARK)
    insights = InsightService(visit.door.store)
    glances = await insights.glances(visit.actor, [schedule.id])
    return visit.page_or_part(
        "today/fire.html",
        "part",
        schedule=schedule,
        at=at,
        fires=tuple(each.at for each in found if each.at >= at),
        is_next=schedule.next_run_at == at,
        glance=glances.get(schedule.id),
        may_operate=visit.actor.may_operate(schedule.owner),
        back=visit.back(),
    )


@pages.post("/attention/{id}/snooze")
async def snooze(visit: PageRequest) -> Response:
    schedule_id = ScheduleId(visit.path["id"])
    cause = visit.form.text("cause")
    if cause not in tuple(Cause):
        raise InvalidInput(_("one of {known}", known=", ".join(Cause)), field="cause")
    await SnoozeService(visit.door.store).snooze(visit.actor, schedule_id, Cause(cause))
    return visit.done(
        _("Put off for 24 hours, for you only."),
        to=visit.back(),
        undo=Undo(action=f"/ui/attention/{schedule_id}/wake"),
    )


@pages.post("/attention/{id}/wake")
async def wake(visit: PageRequest) -> Response:
    await SnoozeService(visit.door.store).wake(visit.actor, ScheduleId(visit.path["id"]))
    return visit.done(_("It is shown again."), to=visit.back())


@pages.post("/demo/load")
async def load_demo(visit: PageRequest) -> Response:
    count = await DemoService(visit.door.store).load(visit.actor)
    if not count:
        return visit.done(_("The demo is there already."), to="/ui/", kind="warning")
    return visit.done(
        counted(
            "{count} example schedule with two weeks of made-up history is here.",
            "{count} example schedules with two weeks of made-up history are here.",
            count,
        ),
        to="/ui/",
    )


@pages.post("/demo/remove")
async def remove_demo(visit: PageRequest) -> Response:
    if not visit.sure:
        question = Question(
            title=_("Remove the demo?"),
            text=_("Its schedules and their made-up history go; all that is yours stays."),
            button=_("Remove it"),
        )
        return visit.ask(question)
    removed = await DemoService(visit.door.store).remove(visit.actor)
    return visit.done(
        counted(
            "{count} example schedule was removed.",
            "{count} example schedules were removed.",
            removed.schedules,
        ),
        to="/ui/",
    )


# @@ Schedules that need attention: the first of them on Today, and all on a page of their own.

HERE = "/ui/attention"
WEEK = timedelta(days=7)
#: At a time, and at most.
STEP, MOST = 50, 1000


@pages.get("/attention")
async def attention(visit: PageRequest) -> Response:
    """As many as `most` says. Loading more shows those from before again: what is gravest comes
    first, and that changes while somebody reads."""
    most = _most(visit.query.get("most", ""))
    needs = (await found_needs(visit, most))[0]
    more = f"{HERE}?most={most + STEP}" if needs.more and most < MOST else ""
    return visit.page_or_part("today/attention.html", "found", needs=needs, more=more)


async def found_needs(visit: PageRequest, limit: int) -> tuple[Needs, tuple[Tally, ...]]:
    """And the week by days, from which it is known whether to look for refusals at all."""
    (known, put_off), (days, refused), coming = await gather(
        _signs(visit, limit),
        _days_and_refusals(visit, Window.last(WEEK, visit.now)),
        visit.clock_watch.coming(visit.actor, visit.now),
    )
    needs = needs_of(
        known, put_off, refused, coming, visit.actor, visit.look, visit.now, limit=limit
    )
    return needs, days


async def _signs(visit: PageRequest, limit: int) -> tuple[Attentions, Mapping[ScheduleId, PutOff]]:
    """What schedules and runs say, enough of it for those that somebody has put off; and these."""
    put_off = await SnoozeService(visit.door.store).of(visit.actor, visit.now)
    insights = InsightService(visit.door.store)
    return await insights.attention(visit.actor, limit=limit + len(put_off)), put_off


async def _days_and_refusals(
    visit: PageRequest, week: Window
) -> tuple[tuple[Tally, ...], tuple[Refusal, ...]]:
    """Who was refused is looked for where anything has failed."""
    store, actor, now = visit.door.store, visit.actor, visit.now
    days = await InsightService(store).run_buckets(actor, week, DAY)
    failed = since_a_day(days, now)[RunStatus.FAILED] > 0
    return days, await refusals(store, actor, now, failed=failed)


def _most(text: str) -> int:
    """What is no number counts as not said."""
    asked = int(text) if text.isdecimal() and len(text) < 5 else STEP
    return min(max(asked, STEP), MOST)


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
async def today(visit: PageRequest) -> Response:
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
    visit: PageRequest,
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


async def _soonest(visit: PageRequest, choices: Choices) -> tuple[Schedule, ...]:
    limit = LABELLED if choices.lanes == "label" else LANES
    query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=limit)
    found = await visit.door.schedules.find(visit.actor, query)
    return tuple(each for each in found.items if each.next_run_at is not None)


async def _held(visit: PageRequest) -> tuple[Run, ...]:
    return await InsightService(visit.door.store).held(visit.actor, limit=SHOWN_RUNNING)


async def _glances(
    visit: PageRequest, schedules: Iterable[Schedule] = (), held: Iterable[Run] = ()
) -> dict[ScheduleId, Glance]:
    """At all of them in one question."""
    ids = {each.id for each in schedules}
    ids |= {each.schedule_id for each in held if each.schedule_id is not None}
    return await InsightService(visit.door.store).glances(visit.actor, ids) if ids else {}


async def _coming_and_running(
    visit: PageRequest, choices: Choices, schedules: tuple[Schedule, ...], held: tuple[Run, ...]
) -> tuple[Timeline, tuple[RunningRow, ...]]:
    glances = await _glances(visit, schedules, held)
    return _ahead(visit, choices, schedules, glances), await _rows(visit, held, glances)


async def _rows(
    visit: PageRequest, held: tuple[Run, ...], glances: Mapping[ScheduleId, Glance]
) -> tuple[RunningRow, ...]:
    """With the last line of each: they are the reader's own, and so are their logs."""
    ids = [each.id for each in held]
    lines = await visit.door.store.last_logs(ids) if ids else {}
    return running_rows(held, glances, lines, visit.actor, visit.look, visit.now)


async def _nodes(visit: PageRequest) -> Nodes:
    """What is about everybody is for those who see everything (C15)."""
    if not visit.actor.sees_everything:
        return Nodes()
    state = await visit.door.store.status()
    return nodes_seen(await visit.door.store.nodes(), state.degraded or "", visit.now)


def _ahead(
    visit: PageRequest,
    choices: Choices,
    schedules: tuple[Schedule, ...],
    glances: Mapping[ScheduleId, Glance],
) -> Timeline:
    look, now = choices.look(visit.look), visit.now
    end = now + choices.ahead.length
    by_label = choices.lanes == "label"
    if by_label:
        without = in_language(_("without a label"), look.language)
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


async def _heat(visit: PageRequest, choices: Choices) -> Chart | None:
    zone, now, days = choices.zone(visit.look), visit.now, choices.days
    window, step = heat_window(zone, now, days)
    tallies = await InsightService(visit.door.store).run_buckets(visit.actor, window, step)
    cells = heat_cells(tallies, zone, now, days, step=step)
    any_runs = any(cell.count for row in cells for cell in row)
    return heat_chart(cells, choices.look(visit.look), visit.now) if any_runs else None


async def _changes(visit: PageRequest) -> tuple[RecentChange, ...] | None:
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


def _empty(visit: PageRequest) -> Response:
    return visit.page(
        "today/empty.html",
        code=CODE,
        offers=offers(visit.look.language)[-SHOWN_TEMPLATES:],
        may_create=visit.actor.may_create(visit.actor.owner),
        may_load_demo=visit.actor.administers,
    )
