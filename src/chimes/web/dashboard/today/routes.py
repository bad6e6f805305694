"""Today: overall health, upcoming and running runs, recent changes."""

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
from chimes.model.listing import AuditQuery
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, upcoming_fires
from chimes.services.attention import CredentialRefusal, Suppression
from chimes.services.schedules.templates import list_templates
from chimes.triggers.values import parse_moment
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.page_request import ConfirmDialog, PageRequest, PageRouter, Undo
from chimes.web.dashboard.monitors.views import monitor_row
from chimes.web.dashboard.today.views import (
    DAY,
    MAX_LABELLED_SCHEDULES,
    MAX_LANES,
    Choices,
    Head,
    Needs,
    NodeProblems,
    Numbers,
    RecentChange,
    RunningRow,
    Timeline,
    ahead_chart,
    health,
    heat_cells,
    heat_chart,
    heat_window,
    lanes_by_label,
    lanes_of,
    last_day,
    needs_of,
    node_problems,
    parse_choices,
    recent_changes,
    running_count,
    running_rows,
    tiles,
)

router = PageRouter()
#: Fires that the card of a timeline mark lists, if the mark stands for several.
MAX_FIRES_OF_MARK = 100


@router.get("/fires/{id}")
async def fire(request: PageRequest) -> Response:
    """The card of a timeline mark: one or several upcoming fires, with their actions."""
    schedule = await request.context.schedules.get(
        request.actor, ScheduleId(request.path_params["id"])
    )
    at = parse_moment(request.query.get("at", ""), "UTC", field="at")
    until = parse_moment(request.query.get("until") or request.query["at"], "UTC", field="until")
    upcoming = upcoming_fires([schedule], until, limit=MAX_FIRES_OF_MARK)
    health_by_id = await request.context.insights.list_health(request.actor, [schedule.id])
    return request.render_page_or_block(
        "today/fire.html",
        "part",
        schedule=schedule,
        at=at,
        fires=tuple(each.at for each in upcoming if each.at >= at),
        is_next=schedule.next_run_at == at,
        schedule_health=health_by_id.get(schedule.id),
        may_operate=request.actor.may_operate(schedule.owner),
        back=request.back_url(),
    )


@router.post("/attention/{id}/snooze")
async def snooze(request: PageRequest) -> Response:
    schedule_id = ScheduleId(request.path_params["id"])
    cause = request.form.text("cause")
    if cause not in tuple(IssueCause):
        raise InvalidInput(_("must be one of {known}", known=", ".join(IssueCause)), field="cause")
    await request.context.snoozes.snooze(request.actor, schedule_id, IssueCause(cause))
    return request.redirect_with_toast(
        _("Snoozed for 24 hours, for you only."),
        to=request.back_url(),
        undo=Undo(action=f"/ui/attention/{schedule_id}/wake"),
    )


@router.post("/attention/{id}/wake")
async def wake(request: PageRequest) -> Response:
    await request.context.snoozes.unsnooze(request.actor, ScheduleId(request.path_params["id"]))
    return request.redirect_with_toast(_("No longer snoozed."), to=request.back_url())


@router.post("/demo/load")
async def load_demo(request: PageRequest) -> Response:
    count = await request.context.demo.load(request.actor)
    if not count:
        return request.redirect_with_toast(
            _("The demo is already loaded."), to="/ui/", kind="warning"
        )
    return request.redirect_with_toast(
        counted(
            "Loaded {count} demo schedule with two weeks of generated history.",
            "Loaded {count} demo schedules with two weeks of generated history.",
            count,
        ),
        to="/ui/",
    )


@router.post("/demo/remove")
async def remove_demo(request: PageRequest) -> Response:
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Remove the demo?"),
            text=_("Deletes the demo schedules and their history. Your own data is kept."),
            button=_("Remove demo"),
        ),
        lambda: request.context.demo.remove(request.actor),
        lambda removed: counted(
            "Removed {count} demo schedule.",
            "Removed {count} demo schedules.",
            removed.schedules,
        ),
        to="/ui/",
    )


ATTENTION_PAGE = "/ui/attention"
WEEK = timedelta(days=7)
ATTENTION_PAGE_SIZE, MAX_ATTENTION = 50, 1000


@router.get("/attention")
async def attention(request: PageRequest) -> Response:
    """The first `most` schedules that need attention. Loading more repeats the earlier ones,
    because the order by severity changes between requests."""
    limit = _attention_limit(request.query.get("most", ""))
    needs, _days = await attention_needs(request, limit)
    more = ""
    if needs.more and limit < MAX_ATTENTION:
        more = f"{ATTENTION_PAGE}?most={limit + ATTENTION_PAGE_SIZE}"
    return request.render_page_or_block("today/attention.html", "found", needs=needs, more=more)


async def attention_needs(
    request: PageRequest, limit: int
) -> tuple[Needs, tuple[StatusCounts, ...]]:
    """What needs attention, and the run counts of the last week by day."""
    (issues, put_off), (days, refused), coming, misconfigured, moved = await gather(
        _issues(request, limit),
        _days_and_refused_credentials(request, Window.last(WEEK, request.now)),
        request.clock_watch.get_upcoming(request.actor, request.now),
        request.context.setup.find_cached(
            request.actor,
            request.context.setup_cache,
            request.context.clock.monotonic(),
            limit=MAX_ATTENTION,
        ),
        request.context.time_data.list_attention(request.actor, request.now, MAX_ATTENTION),
    )
    needs = needs_of(
        issues,
        put_off,
        refused,
        misconfigured,
        coming,
        moved,
        request.actor,
        request.display,
        request.now,
        limit=limit,
    )
    return needs, days


async def _issues(
    request: PageRequest, limit: int
) -> tuple[AttentionList, Mapping[ScheduleId, Suppression]]:
    """The issues of schedules, enough of them to fill the list without snoozed and known ones."""
    put_off = await request.context.snoozes.get_suppressions(request.actor, request.now)
    issues = await request.context.insights.list_attention(
        request.actor, limit=limit + len(put_off)
    )
    return issues, put_off


async def _days_and_refused_credentials(
    request: PageRequest, week: Window
) -> tuple[tuple[StatusCounts, ...], tuple[CredentialRefusal, ...]]:
    insights, actor, now = request.context.insights, request.actor, request.now
    days = await insights.count_runs_by_bucket(actor, week, DAY)
    any_failed = last_day(days, now)[RunStatus.FAILED] > 0
    return days, await insights.list_refused_credentials(actor, now, any_failed=any_failed)


def _attention_limit(text: str) -> int:
    """Ignores an invalid number."""
    limit = int(text) if text.isdecimal() and len(text) < 5 else ATTENTION_PAGE_SIZE
    return min(max(limit, ATTENTION_PAGE_SIZE), MAX_ATTENTION)


MAX_NEEDS = 10
MAX_RUNNING = 10
MAX_CHANGES = 5
#: Templates that the page without schedules suggests.
MAX_TEMPLATES = 6
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
    """The page, or a live part of it (`?part=`)."""
    part = request.query.get("part", "") if request.is_htmx else ""
    choices = parse_choices(request.query)
    if part == "running":
        running_runs = await _running_runs(request)
        rows = await _running_rows(
            request, running_runs, await _schedule_health(request, running_runs=running_runs)
        )
        return request.render_block(
            "today/page.html", "running", running=rows, most_running=MAX_RUNNING
        )
    if part == "ahead":
        schedules = await _next_schedules(request, choices)
        ahead = _timeline(request, choices, schedules, await _schedule_health(request, schedules))
        return request.render_block("today/page.html", "ahead", ahead=ahead)
    insights = request.context.insights
    schedules, counts, running_runs, monitors = await gather(
        _next_schedules(request, choices),
        insights.count_schedules(request.actor),
        _running_runs(request),
        request.context.monitors.overview(request.actor, limit=0),
    )
    if not counts.total and not monitors.total and part != "health":
        return await _empty(request)
    if part == "health":
        head = await _head(request, counts, running_runs, schedules)
        return request.render_block("today/page.html", "health", head=head)
    # Concurrent, because each part is a chain of queries.
    head, (ahead, running), heat, changes, demo = await gather(
        _head(request, counts, running_runs, schedules),
        _timeline_and_running(request, choices, schedules, running_runs),
        _heat_map(request, choices),
        _changes(request),
        request.context.demo.is_loaded(request.actor),
    )
    return request.render(
        "today/page.html",
        head=head,
        ahead=ahead,
        running=running,
        most_running=MAX_RUNNING,
        heat=heat,
        changes=changes,
        demo=demo,
        may_remove_demo=request.actor.administers,
    )


async def _head(
    request: PageRequest,
    counts: ScheduleCounts,
    running_runs: tuple[Run, ...],
    schedules: tuple[Schedule, ...],
) -> Head:
    now, display = request.now, request.display
    last, since = Window.last(WEEK, now), Window.last(DAY, now)
    (needs, days), nodes, lag, maintenance, monitors, decisions = await gather(
        attention_needs(request, MAX_NEEDS),
        _node_problems(request),
        request.context.insights.get_lag(request.actor, since),
        request.context.maintenance.list_active(),
        request.context.monitors.overview(request.actor, limit=MAX_NEEDS),
        _open_decisions(request),
    )
    proposals, approvals = decisions
    week, day = sum_counts(days, last.since), last_day(days, now)
    running = running_count(running_runs, MAX_RUNNING, week)
    numbers = Numbers(
        counts=counts, running=running, day=day, week=week, lag=lag, since=since.since
    )
    next_at = schedules[0].next_run_at if schedules else None
    problems = needs.total + nodes.count + monitors.problem_count
    return Head(
        health=health(problems, counts, running, next_at, display, now),
        needs=needs,
        nodes=nodes,
        tiles=tiles(numbers, request.actor, display),
        maintenance=maintenance,
        monitors=monitors,
        monitor_rows=tuple(
            monitor_row(each, request.actor, display, now) for each in monitors.problems
        ),
        proposals=proposals,
        approvals=approvals,
    )


async def _open_decisions(request: PageRequest) -> tuple[int, int]:
    """Open proposals and approvals."""
    return (
        await request.context.proposals.count_open(request.actor, request.now),
        await request.context.approvals.count_open(request.actor),
    )


async def _next_schedules(request: PageRequest, choices: Choices) -> tuple[Schedule, ...]:
    limit = MAX_LABELLED_SCHEDULES if choices.lanes == "label" else MAX_LANES
    return await request.context.insights.list_next(request.actor, limit=limit)


async def _running_runs(request: PageRequest) -> tuple[Run, ...]:
    return await request.context.insights.list_running(request.actor, limit=MAX_RUNNING)


async def _schedule_health(
    request: PageRequest, schedules: Iterable[Schedule] = (), running_runs: Iterable[Run] = ()
) -> dict[ScheduleId, ScheduleHealth]:
    """Health of all these schedules, in one query."""
    ids = {each.id for each in schedules}
    ids |= {each.schedule_id for each in running_runs if each.schedule_id is not None}
    return await request.context.insights.list_health(request.actor, ids) if ids else {}


async def _timeline_and_running(
    request: PageRequest,
    choices: Choices,
    schedules: tuple[Schedule, ...],
    running_runs: tuple[Run, ...],
) -> tuple[Timeline, tuple[RunningRow, ...]]:
    health_by_id = await _schedule_health(request, schedules, running_runs)
    rows = await _running_rows(request, running_runs, health_by_id)
    return _timeline(request, choices, schedules, health_by_id), rows


async def _running_rows(
    request: PageRequest,
    running_runs: tuple[Run, ...],
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
) -> tuple[RunningRow, ...]:
    """Running runs with their last log line."""
    lines = await request.context.insights.get_last_log_lines(request.actor, running_runs)
    return running_rows(
        running_runs, health_by_id, lines, request.actor, request.display, request.now
    )


async def _node_problems(request: PageRequest) -> NodeProblems:
    """Empty for users who see only their own objects."""
    if not request.actor.sees_everything:
        return NodeProblems()
    status, nodes = await gather(
        request.context.system.get_store_status(request.actor),
        request.context.nodes.list_nodes(request.actor),
    )
    return node_problems(nodes, status.degraded or "", request.now)


def _timeline(
    request: PageRequest,
    choices: Choices,
    schedules: tuple[Schedule, ...],
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
) -> Timeline:
    display, now = choices.display(request.display), request.now
    end = now + choices.ahead.length
    by_label = choices.lanes == "label"
    if by_label:
        without = in_language(_("no label"), display.language)
        lanes = lanes_by_label(schedules, health_by_id, end, now, without)
    else:
        lanes = lanes_of(schedules, health_by_id, end, now)
    chart = ahead_chart(lanes, choices.ahead, display, now, by_label=by_label) if lanes else None
    return Timeline(
        chart=chart,
        choices=choices,
        zone=choices.zone(request.display),
        own_zone=request.display.zone if request.display.zone != "UTC" else None,
    )


async def _heat_map(request: PageRequest, choices: Choices) -> Chart | None:
    zone, now, days = choices.zone(request.display), request.now, choices.days
    window, step = heat_window(zone, now, days)
    buckets = await request.context.insights.count_runs_by_bucket(request.actor, window, step)
    cells = heat_cells(buckets, zone, now, days, step=step)
    any_runs = any(cell.count for row in cells for cell in row)
    return heat_chart(cells, choices.display(request.display), request.now) if any_runs else None


async def _changes(request: PageRequest) -> tuple[RecentChange, ...] | None:
    """None for users who see only their own objects."""
    if not request.actor.sees_everything:
        return None
    audit = request.context.audit
    entries = await audit.find(request.actor, AuditQuery(limit=MAX_CHANGES))
    return recent_changes(entries, await audit.get_schedule_names(request.actor, entries))


async def _empty(request: PageRequest) -> Response:
    proposals, approvals = await _open_decisions(request)
    return request.render(
        "today/empty.html",
        code=CODE,
        offers=list_templates(request.display.language)[-MAX_TEMPLATES:],
        may_create=request.actor.may_create(request.actor.owner),
        may_load_demo=request.actor.administers,
        proposals=proposals,
        approvals=approvals,
    )
