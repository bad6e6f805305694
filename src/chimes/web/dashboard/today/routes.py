"""Today: is all well, and what comes next? (UX A.1)"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Mapping
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import _, counted, in_language
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    AttentionList,
    IssueCause,
    ScheduleCounts,
    ScheduleHealth,
    StatusCounts,
    Window,
    sum_counts,
)
from chimes.model.listing import AuditQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.attention import PutOff, RequestRejected, refusals
from chimes.services.insights import InsightService
from chimes.services.schedules import upcoming_fires
from chimes.services.templates import offers
from chimes.triggers.moment import parse_moment
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import ConfirmDialog
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
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

router = PageRouter()
#: Fires that are walked through for the card of a mark that stands for several.
MOST_IN_A_MARK = 100


@router.get("/fires/{id}")
async def fire(request: PageRequest) -> Response:
    """One mark of the timeline: what it is, and what can be done about it."""
    schedule = await request.context.schedules.get(
        request.actor, ScheduleId(request.path_params["id"])
    )
    at = parse_moment(request.query.get("at", ""), "UTC", field="at")
    until = parse_moment(request.query.get("until") or request.query["at"], "UTC", field="until")
    found = upcoming_fires([schedule], until, limit=MOST_IN_A_MARK)
    insights = request.context.insights
    glances = await insights.glances(request.actor, [schedule.id])
    return request.render_page_or_block(
        "today/fire.html",
        "part",
        schedule=schedule,
        at=at,
        fires=tuple(each.at for each in found if each.at >= at),
        is_next=schedule.next_run_at == at,
        glance=glances.get(schedule.id),
        may_operate=request.actor.may_operate(schedule.owner),
        back=request.back_url(),
    )


@router.post("/attention/{id}/snooze")
async def snooze(request: PageRequest) -> Response:
    schedule_id = ScheduleId(request.path_params["id"])
    cause = request.form.text("cause")
    if cause not in tuple(IssueCause):
        raise InvalidInput(_("one of {known}", known=", ".join(IssueCause)), field="cause")
    await request.context.snoozes.snooze(request.actor, schedule_id, IssueCause(cause))
    return request.redirect_with_toast(
        _("Put off for 24 hours, for you only."),
        to=request.back_url(),
        undo=Undo(action=f"/ui/attention/{schedule_id}/wake"),
    )


@router.post("/attention/{id}/wake")
async def wake(request: PageRequest) -> Response:
    await request.context.snoozes.wake(request.actor, ScheduleId(request.path_params["id"]))
    return request.redirect_with_toast(_("It is shown again."), to=request.back_url())


@router.post("/demo/load")
async def load_demo(request: PageRequest) -> Response:
    count = await request.context.demo.load(request.actor)
    if not count:
        return request.redirect_with_toast(
            _("The demo is there already."), to="/ui/", kind="warning"
        )
    return request.redirect_with_toast(
        counted(
            "{count} example schedule with two weeks of made-up history is here.",
            "{count} example schedules with two weeks of made-up history are here.",
            count,
        ),
        to="/ui/",
    )


@router.post("/demo/remove")
async def remove_demo(request: PageRequest) -> Response:
    if not request.is_confirmed:
        question = ConfirmDialog(
            title=_("Remove the demo?"),
            text=_("Its schedules and their made-up history go; all that is yours stays."),
            button=_("Remove it"),
        )
        return request.confirm(question)
    removed = await request.context.demo.remove(request.actor)
    return request.redirect_with_toast(
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


@router.get("/attention")
async def attention(request: PageRequest) -> Response:
    """As many as `most` says. Loading more shows those from before again: what is gravest comes
    first, and that changes while somebody reads."""
    most = _most(request.query.get("most", ""))
    needs = (await found_needs(request, most))[0]
    more = f"{HERE}?most={most + STEP}" if needs.more and most < MOST else ""
    return request.render_page_or_block("today/attention.html", "found", needs=needs, more=more)


async def found_needs(request: PageRequest, limit: int) -> tuple[Needs, tuple[StatusCounts, ...]]:
    """And the week by days, from which it is known whether to look for refusals at all."""
    (known, put_off), (days, refused), coming = await gather(
        _signs(request, limit),
        _days_and_refusals(request, Window.last(WEEK, request.now)),
        request.clock_watch.coming(request.actor, request.now),
    )
    needs = needs_of(
        known, put_off, refused, coming, request.actor, request.display, request.now, limit=limit
    )
    return needs, days


async def _signs(
    request: PageRequest, limit: int
) -> tuple[AttentionList, Mapping[ScheduleId, PutOff]]:
    """What schedules and runs say, enough of it for those that somebody has put off; and these."""
    put_off = await request.context.snoozes.of(request.actor, request.now)
    insights = request.context.insights
    return await insights.attention(request.actor, limit=limit + len(put_off)), put_off


async def _days_and_refusals(
    request: PageRequest, week: Window
) -> tuple[tuple[StatusCounts, ...], tuple[RequestRejected, ...]]:
    """Who was refused is looked for where anything has failed."""
    store, actor, now = request.context.store, request.actor, request.now
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


@router.get("/")
async def today(request: PageRequest) -> Response:
    """The page, or a part of it that changes by itself (`?part=`)."""
    part = request.query.get("part", "") if request.is_htmx else ""
    choices = choices_in(request.query)
    if part == "running":
        held = await _held(request)
        rows = await _rows(request, held, await _glances(request, held=held))
        return request.render_block(
            "today/page.html", "running", running=rows, most_running=SHOWN_RUNNING
        )
    if part == "ahead":
        schedules = await _soonest(request, choices)
        ahead = _ahead(request, choices, schedules, await _glances(request, schedules))
        return request.render_block("today/page.html", "ahead", ahead=ahead)
    insights = request.context.insights
    schedules, counts, held = await gather(
        _soonest(request, choices), insights.schedule_counts(request.actor), _held(request)
    )
    if not counts.total and part != "health":
        return _empty(request)
    if part == "health":
        head = await _head(request, counts, held, schedules)
        return request.render_block("today/page.html", "health", head=head)
    # Each is a chain of questions by itself; databases answer several at a time.
    head, (ahead, running), heat, changes, demo = await gather(
        _head(request, counts, held, schedules),
        _coming_and_running(request, choices, schedules, held),
        _heat(request, choices),
        _changes(request),
        request.context.demo.loaded(request.actor),
    )
    return request.render(
        "today/page.html",
        head=head,
        ahead=ahead,
        running=running,
        most_running=SHOWN_RUNNING,
        heat=heat,
        changes=changes,
        demo=demo,
        may_remove_demo=request.actor.administers,
    )


async def _head(
    request: PageRequest,
    counts: ScheduleCounts,
    held: tuple[Run, ...],
    schedules: tuple[Schedule, ...],
) -> Head:
    now, display = request.now, request.display
    last, since = Window.last(WEEK, now), Window.last(DAY, now)
    (needs, days), nodes, lag = await gather(
        found_needs(request, SHOWN_NEEDING),
        _nodes(request),
        request.context.insights.lag(request.actor, since),
    )
    week, day = sum_counts(days, last.since), since_a_day(days, now)
    running = running_count(held, SHOWN_RUNNING, week)
    numbers = Numbers(
        counts=counts, running=running, day=day, week=week, lag=lag, since=since.since
    )
    next_at = schedules[0].next_run_at if schedules else None
    troubles = needs.total + nodes.troubles
    return Head(
        health=health(troubles, counts, running, next_at, display, now),
        needs=needs,
        nodes=nodes,
        tiles=tiles(numbers, request.actor, display),
    )


async def _soonest(request: PageRequest, choices: Choices) -> tuple[Schedule, ...]:
    limit = LABELLED if choices.lanes == "label" else LANES
    query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=limit)
    found = await request.context.schedules.find(request.actor, query)
    return tuple(each for each in found.items if each.next_run_at is not None)


async def _held(request: PageRequest) -> tuple[Run, ...]:
    return await request.context.insights.held(request.actor, limit=SHOWN_RUNNING)


async def _glances(
    request: PageRequest, schedules: Iterable[Schedule] = (), held: Iterable[Run] = ()
) -> dict[ScheduleId, ScheduleHealth]:
    """At all of them in one question."""
    ids = {each.id for each in schedules}
    ids |= {each.schedule_id for each in held if each.schedule_id is not None}
    return await request.context.insights.glances(request.actor, ids) if ids else {}


async def _coming_and_running(
    request: PageRequest, choices: Choices, schedules: tuple[Schedule, ...], held: tuple[Run, ...]
) -> tuple[Timeline, tuple[RunningRow, ...]]:
    glances = await _glances(request, schedules, held)
    return _ahead(request, choices, schedules, glances), await _rows(request, held, glances)


async def _rows(
    request: PageRequest, held: tuple[Run, ...], glances: Mapping[ScheduleId, ScheduleHealth]
) -> tuple[RunningRow, ...]:
    """With the last line of each: they are the reader's own, and so are their logs."""
    ids = [each.id for each in held]
    lines = await request.context.store.last_logs(ids) if ids else {}
    return running_rows(held, glances, lines, request.actor, request.display, request.now)


async def _nodes(request: PageRequest) -> Nodes:
    """What is about everybody is for those who see everything (C15)."""
    if not request.actor.sees_everything:
        return Nodes()
    state = await request.context.store.status()
    return nodes_seen(await request.context.store.nodes(), state.degraded or "", request.now)


def _ahead(
    request: PageRequest,
    choices: Choices,
    schedules: tuple[Schedule, ...],
    glances: Mapping[ScheduleId, ScheduleHealth],
) -> Timeline:
    display, now = choices.display(request.display), request.now
    end = now + choices.ahead.length
    by_label = choices.lanes == "label"
    if by_label:
        without = in_language(_("without a label"), display.language)
        lanes = lanes_by_label(schedules, glances, end, now, without)
    else:
        lanes = lanes_of(schedules, glances, end, now)
    chart = ahead_chart(lanes, choices.ahead, display, now, by_label=by_label) if lanes else None
    return Timeline(
        chart=chart,
        choices=choices,
        zone=choices.zone(request.display),
        own_zone=request.display.zone if request.display.zone != "UTC" else None,
    )


async def _heat(request: PageRequest, choices: Choices) -> Chart | None:
    zone, now, days = choices.zone(request.display), request.now, choices.days
    window, step = heat_window(zone, now, days)
    tallies = await request.context.insights.run_buckets(request.actor, window, step)
    cells = heat_cells(tallies, zone, now, days, step=step)
    any_runs = any(cell.count for row in cells for cell in row)
    return heat_chart(cells, choices.display(request.display), request.now) if any_runs else None


async def _changes(request: PageRequest) -> tuple[RecentChange, ...] | None:
    """None: not for this reader."""
    if not request.actor.sees_everything:
        return None
    store = request.context.store
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


def _empty(request: PageRequest) -> Response:
    return request.render(
        "today/empty.html",
        code=CODE,
        offers=offers(request.display.language)[-SHOWN_TEMPLATES:],
        may_create=request.actor.may_create(request.actor.owner),
        may_load_demo=request.actor.administers,
    )
