"""One schedule: what it is, how it went, what comes, and why something did not run (UX A.3)."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from starlette.responses import Response

from chimes.errors import NotFound
from chimes.i18n import Message, _
from chimes.language import note_in_words, warnings_in_words
from chimes.model.ids import DeliveryId
from chimes.model.insights import RunFilter, StatusCounts, Window, assess_health
from chimes.model.listing import DeliveryQuery, RunQuery, RunSort
from chimes.model.notification import Delivery
from chimes.model.recipient import Recipient
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, has_runs_left
from chimes.notifications.message import CHANNELS
from chimes.redaction import masked_url
from chimes.services.run_requests import get_run_origins
from chimes.services.schedule_history import FireLogPage
from chimes.triggers import Fire as Slot
from chimes.triggers import Note
from chimes.web.api.paging import encode_cursor, decode_cursor, cursor_scope
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.runs.views import rows_of, visible
from chimes.web.dashboard.schedule.actions import page_of, schedule_in
from chimes.web.dashboard.schedule.charts import (
    PAST,
    durations,
    expected_marks,
    lags,
    marks_of,
    week,
)
from chimes.web.dashboard.schedule.fire_log import (
    LogAsked,
    cursor_of,
    log_lines,
    position_in,
    unexplained,
)
from chimes.web.dashboard.schedules.views import expression_of, row_of, state_of, without_anchor

# @@ What the page of one schedule shows, from values to what a template needs.

SHOWN_FIRES = 5
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class NextFire:
    at: datetime
    #: By the schedule's clock, and by the reader's (or UTC, where they are the same).
    there: str
    here: str
    note: Note | None


def next_slots(schedule: Schedule, now: datetime, count: int = SHOWN_FIRES) -> list[Slot]:
    """The slots to come, from the cursor on, by the function that the scheduler and the preview
    use; of a paused one, what would come if it went on now."""
    trigger = schedule.trigger
    if trigger.max_runs is not None:
        count = min(count, max(0, trigger.max_runs - schedule.fired_count))
    if schedule.next_slot is None:
        return trigger.fires(now, count) if not schedule.enabled and has_runs_left(schedule) else []
    first = schedule.next_slot
    on_grid = trigger.next_after(first - _MICROSECOND) == first
    if on_grid:
        return trigger.fires(first - _MICROSECOND, count)
    return [Slot(first, trigger.local(first), None), *trigger.fires(first, count - 1)]


def second_clock(zone: str, display: DisplayPreferences) -> str:
    """Beside the schedule's own: the reader's, or UTC where that is the same one."""
    return display.zone if display.zone != zone else "UTC"


def next_fires(
    schedule: Schedule, display: DisplayPreferences, now: datetime
) -> tuple[NextFire, ...]:
    zone = schedule.trigger.zone
    other = second_clock(zone, display)
    return tuple(
        NextFire(
            at=slot.at,
            there=times.absolute(slot.at, zone, display, now=now),
            here=times.absolute(slot.at, other, display, now=now),
            note=slot.note,
        )
        for slot in next_slots(schedule, now)
    )


def in_your_zone(schedule: Schedule, display: DisplayPreferences, now: datetime) -> Message | None:
    """The next time by the reader's clock; None: both clocks agree, or nothing comes."""
    zone = schedule.trigger.zone
    slots = next_slots(schedule, now, 1)
    if not slots or display.zone == zone or not schedule.enabled:
        return None
    at = slots[0].at
    info, own = times.zone_info(zone), times.zone_info(display.zone)
    if at.astimezone(info).utcoffset() == at.astimezone(own).utcoffset():
        return None
    here = times.absolute(at, display.zone, display, now=now)
    return _("In your zone ({zone}) the next one is {here}.", zone=display.zone, here=here)


router = PageRouter()
POINTS = 100
_RATES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
LOG_PAGE = 50
_NEVER_BEGAN = frozenset({RunStatus.SKIPPED, RunStatus.MISSED})


def show(
    request: PageRequest, schedule: Schedule, tab: str, /, *, status: int = 200, **values: object
) -> Response:
    """A tab of the page, with the head that all of them have."""
    return request.render_page_or_block(
        f"schedule/{tab}.html",
        "body",
        status=status,
        schedule=schedule,
        tab=tab,
        when=without_anchor(schedule.trigger),
        state=state_of(schedule),
        expression=expression_of(schedule.trigger),
        in_your_zone=in_your_zone(schedule, request.display, request.now),
        may_operate=request.actor.may_operate(schedule.owner),
        may_write=request.actor.may_write(schedule.owner),
        **values,
    )


@router.get("/schedules/{id}")
async def overview(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    insights = request.context.insights
    results = await insights.points(request.actor, schedule.id, limit=POINTS * 2)
    glance = assess_health(results[:30])
    rates, hours = await _sums(request, schedule) if results else ((), ())
    marks = marks_of(schedule, results, hours, glance.median, request.now)
    expected = expected_marks(
        schedule, results, hours, request.now, whole=len(results) < POINTS * 2
    )
    language = request.display.language
    return show(
        request,
        schedule,
        "overview",
        fires=_fires(request, schedule),
        other_zone=second_clock(schedule.trigger.zone, request.display),
        warnings=warnings_in_words(schedule.trigger, language),
        rates=rates,
        glance=glance,
        row=row_of(schedule, glance, request.actor, request.display),
        week=week(schedule, marks, expected, request.display, request.now),
        durations=durations(results[:POINTS], schedule, request.display),
        lags=lags(results[:POINTS], schedule, request.display),
    )


async def _sums(
    request: PageRequest, schedule: Schedule
) -> tuple[tuple[tuple[str, StatusCounts], ...], tuple[StatusCounts, ...]]:
    """Of each span, and of each hour of the picture; databases answer several at a time."""
    insights, only = request.context.insights, RunFilter(schedule_id=schedule.id)

    async def total(span: timedelta) -> StatusCounts:
        return await insights.run_totals(request.actor, Window.last(span, request.now), only)

    totals, hours = await gather(
        gather(*(total(span) for span in _RATES.values())),
        insights.run_buckets(request.actor, Window.last(PAST, request.now), _HOUR, only),
    )
    return tuple(zip(_RATES, totals, strict=True)), hours


@router.get("/schedules/{id}/preview")
async def preview(request: PageRequest) -> Response:
    """When it fires next, without leaving the list."""
    schedule = await schedule_in(request)
    return request.render_page_or_block(
        "schedules/preview.html",
        "part",
        schedule=schedule,
        when=without_anchor(schedule.trigger),
        fires=_fires(request, schedule),
    )


def _fires(request: PageRequest, schedule: Schedule) -> list[tuple[NextFire, str]]:
    """With what is special about each, in words."""
    return [
        (fire, note_in_words(fire.note, request.display.language) if fire.note else "")
        for fire in next_fires(schedule, request.display, request.now)
    ]


@router.get("/schedules/{id}/facts")
async def facts(request: PageRequest) -> Response:
    """The part of the head that changes with every fire."""
    schedule = await schedule_in(request)
    return request.render_block(
        "schedule/head.html",
        "facts",
        schedule=schedule,
        state=state_of(schedule),
        in_your_zone=in_your_zone(schedule, request.display, request.now),
    )


@router.get("/schedules/{id}/runs")
async def runs(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    question = cursor_scope(request.http)
    after = decode_cursor(request.query.get("cursor"), question, numbers=True)
    query = RunQuery(schedule_id=schedule.id, after=after, limit=LOG_PAGE)
    found = await request.context.runs.find(request.actor, query)
    more = ""
    if found.next is not None:
        more = (
            f"{page_of(schedule.id)}/runs?{urlencode({'cursor': encode_cursor(found.next, question)})}"
        )
    insights = request.context.insights
    medians, askers = await gather(
        insights.expected_durations(request.actor, [schedule.id]),
        request.context.runs.origins(request.actor, found.items),
    )
    rows = rows_of(found.items, medians, askers, {schedule.id: schedule.trigger.zone}, request.now)
    return show(request, schedule, "runs", rows=rows, more=more, visible=visible)


@router.get("/schedules/{id}/log")
async def fire_log(request: PageRequest) -> Response:
    """Every decision, those not to run included, each with its reason."""
    schedule = await schedule_in(request)
    asked = LogAsked.from_query(request.query, request.display.zone)
    found = await request.context.insights.fire_log(
        request.actor,
        schedule.id,
        only=asked.wish,
        after=position_in(request.query.get("cursor", "")),
        limit=LOG_PAGE,
    )
    page = f"{page_of(schedule.id)}/log"
    return show(
        request,
        schedule,
        "log",
        lines=log_lines(found.entries, await _earlier(request, schedule, found)),
        asked=asked,
        log=page,
        more=asked.address(page, cursor=cursor_of(found.next)) if found.next is not None else "",
    )


async def _earlier(request: PageRequest, schedule: Schedule, found: FireLogPage) -> tuple[Run, ...]:
    """Runs before this page, where one of them may have stood in the way of a slot on it."""
    oldest = unexplained(found.entries)
    if oldest is None:
        return ()
    query = RunQuery(
        schedule_id=schedule.id,
        statuses=tuple(each for each in RunStatus if each not in _NEVER_BEGAN),
        created_until=oldest.created_at,
        sort=RunSort.CREATED_AT,
        limit=LOG_PAGE,
    )
    return tuple((await request.context.runs.find(request.actor, query)).items)


# @@ Who is told, and what became of the last message to each; pure.


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    recipient: Recipient
    #: Without the secret that an address can have in it; empty: the owner's inbox.
    to: str
    #: The newest message to it, among those that were looked at.
    last: Delivery | None


def destinations_of(
    recipients: Sequence[Recipient], deliveries: Iterable[Delivery]
) -> tuple[Destination, ...]:
    """`deliveries`: newest first."""
    newest: dict[tuple[str, str], Delivery] = {}
    for each in deliveries:
        newest.setdefault(_whose(each.recipient), each)
    return tuple(
        Destination(recipient=each, to=to_shown(each), last=newest.get(_whose(each)))
        for each in recipients
    )


def _whose(recipient: Recipient) -> tuple[str, str]:
    return recipient.channel.value, recipient.to


def to_shown(recipient: Recipient) -> str:
    return masked_url(recipient.to) if "://" in recipient.to else recipient.to


# @@ Who is told of a schedule's runs, what became of the last messages, and a test of each.


def _tab_of(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/deliveries"


@router.get("/schedules/{id}/deliveries")
async def deliveries(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    query = DeliveryQuery(schedule_id=schedule.id, limit=LOG_PAGE)
    found = await request.context.messages.deliveries(request.actor, query)
    return show(
        request,
        schedule,
        "deliveries",
        destinations=destinations_of(schedule.policy.delivery, found.items),
        deliveries=[(each, to_shown(each.recipient)) for each in found.items],
        more=found.next is not None,
        channels=CHANNELS,
    )


@router.post("/schedules/{id}/deliveries/{place}/test")
async def send_test(request: PageRequest) -> Response:
    """A real message to one of those who are told, marked as a test."""
    schedule = await schedule_in(request)
    recipient = _recipient_in(request, schedule)
    outcome = await request.context.messages.send_test(request.actor, recipient, schedule=schedule)
    return request.redirect_with_toast(
        outcome.words, to=request.back_url(_tab_of(schedule)), kind=outcome.kind
    )


def _recipient_in(request: PageRequest, schedule: Schedule) -> Recipient:
    """By its place in the list."""
    place, told = request.path_params["place"], schedule.policy.delivery
    if not (place.isascii() and place.isdigit() and len(place) < 6 and int(place) < len(told)):
        raise NotFound(_("there is no such recipient any more"))
    return told[int(place)]


@router.post("/schedules/{id}/deliveries/{delivery}/retry")
async def retry_delivery(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    await request.context.messages.retry(request.actor, DeliveryId(request.path_params["delivery"]))
    text = _("It is tried again from now on.")
    return request.redirect_with_toast(text, to=request.back_url(_tab_of(schedule)))
