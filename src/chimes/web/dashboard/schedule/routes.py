"""Page of one schedule: overview, runs, fire log and deliveries."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

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
from chimes.redaction import mask_url
from chimes.services.schedules.history import FireLogPage
from chimes.services.schedules.versions import list_schedule_audit, periods_of
from chimes.services.webhooks import hook_url, may_see_hook
from chimes.triggers import Fire as Slot
from chimes.triggers import Note
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.lists import next_page, page_position
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.runs.views import rows_of, visible
from chimes.web.dashboard.schedule.actions import page_of, schedule_of
from chimes.web.dashboard.schedule.charts import (
    PAST,
    duration_chart,
    expected_marks,
    lag_chart,
    marks_of,
    timeline_chart,
)
from chimes.web.dashboard.schedule.fire_log import (
    LogFilter,
    encode_position,
    log_lines,
    oldest_unexplained,
    parse_cursor,
)
from chimes.web.dashboard.schedules.views import expression_of, row_of, state_of, without_anchor

NEXT_FIRES = 5
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class NextFire:
    at: datetime
    #: In the schedule's zone, and in the viewer's (or UTC if both are the same).
    there: str
    here: str
    note: Note | None


def next_slots(schedule: Schedule, now: datetime, count: int = NEXT_FIRES) -> list[Slot]:
    """Upcoming slots; for a paused schedule, those if it were resumed now."""
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


def second_zone(zone: str, display: DisplayPreferences) -> str:
    """The viewer's zone, or UTC if that is the schedule's zone."""
    return display.zone if display.zone != zone else "UTC"


def next_fires(
    schedule: Schedule, display: DisplayPreferences, now: datetime
) -> tuple[NextFire, ...]:
    zone = schedule.trigger.zone
    other = second_zone(zone, display)
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
    """The next fire in the viewer's zone; None if the offsets are equal or there is none."""
    zone = schedule.trigger.zone
    slots = next_slots(schedule, now, 1)
    if not slots or display.zone == zone or not schedule.enabled:
        return None
    at = slots[0].at
    info, own = times.zone_info(zone), times.zone_info(display.zone)
    if at.astimezone(info).utcoffset() == at.astimezone(own).utcoffset():
        return None
    here = times.absolute(at, display.zone, display, now=now)
    return _("Next in your time zone ({zone}): {here}.", zone=display.zone, here=here)


router = PageRouter()
MAX_POINTS = 100
_RATES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
PAGE_SIZE = 50
_NOT_STARTED = frozenset({RunStatus.SKIPPED, RunStatus.MISSED})


def render_tab(
    request: PageRequest, schedule: Schedule, tab: str, /, *, status: int = 200, **values: object
) -> Response:
    """A tab of the page, with the shared header."""
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


def _hook_url(request: PageRequest, schedule: Schedule) -> str | None:
    if not may_see_hook(request.actor, schedule):
        return None
    base = request.context.settings.public_url or str(request.http.base_url)
    return hook_url(schedule, base)


@router.get("/schedules/{id}")
async def overview(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    insights = request.context.insights
    results = await insights.list_schedule_results(request.actor, schedule.id, limit=MAX_POINTS * 2)
    schedule_health = assess_health(results[:30])
    rates, hours = await _run_counts(request, schedule) if results else ((), ())
    marks = marks_of(schedule, results, hours, schedule_health.median, request.now)
    entries = await list_schedule_audit(
        request.context.store, request.actor, schedule, since=request.now - PAST
    )
    expected = expected_marks(
        schedule,
        periods_of(schedule, entries, request.now - PAST, request.now),
        results,
        hours,
        request.now,
        complete=len(results) < MAX_POINTS * 2,
    )
    language = request.display.language
    return render_tab(
        request,
        schedule,
        "overview",
        hook_url=_hook_url(request, schedule),
        fires=_fires(request, schedule),
        other_zone=second_zone(schedule.trigger.zone, request.display),
        warnings=warnings_in_words(schedule.trigger, language),
        rates=rates,
        schedule_health=schedule_health,
        row=row_of(schedule, schedule_health, request.actor, request.display),
        timeline=timeline_chart(schedule, marks, expected, request.display, request.now),
        durations=duration_chart(
            results[:MAX_POINTS], schedule, request.display, request.now, schedule_health.median
        ),
        lags=lag_chart(results[:MAX_POINTS], schedule, request.display, request.now),
    )


async def _run_counts(
    request: PageRequest, schedule: Schedule
) -> tuple[tuple[tuple[str, StatusCounts], ...], tuple[StatusCounts, ...]]:
    """Run counts of each period, and of each hour of the timeline."""
    insights, only = request.context.insights, RunFilter(schedule_id=schedule.id)

    async def total(span: timedelta) -> StatusCounts:
        return await insights.count_runs(request.actor, Window.last(span, request.now), only)

    totals, hours = await gather(
        gather(*(total(span) for span in _RATES.values())),
        insights.count_runs_by_bucket(request.actor, Window.last(PAST, request.now), _HOUR, only),
    )
    return tuple(zip(_RATES, totals, strict=True)), hours


@router.get("/schedules/{id}/preview")
async def preview(request: PageRequest) -> Response:
    """Dialog with the next fires."""
    schedule = await schedule_of(request)
    return request.render_page_or_block(
        "schedules/preview.html",
        "part",
        schedule=schedule,
        when=without_anchor(schedule.trigger),
        fires=_fires(request, schedule),
    )


def _fires(request: PageRequest, schedule: Schedule) -> list[tuple[NextFire, str]]:
    """With the note of each fire, such as a clock change."""
    return [
        (fire, note_in_words(fire.note, request.display.language) if fire.note else "")
        for fire in next_fires(schedule, request.display, request.now)
    ]


@router.get("/schedules/{id}/facts")
async def facts(request: PageRequest) -> Response:
    """The part of the header that is refreshed live."""
    schedule = await schedule_of(request)
    return request.render_block(
        "schedule/head.html",
        "facts",
        schedule=schedule,
        state=state_of(schedule),
        in_your_zone=in_your_zone(schedule, request.display, request.now),
    )


@router.get("/schedules/{id}/runs")
async def runs(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    after = page_position(request)
    query = RunQuery(schedule_id=schedule.id, after=after, limit=PAGE_SIZE)
    found = await request.context.runs.find(request.actor, query)
    more = next_page(request, found.next)
    insights = request.context.insights
    medians, origins = await gather(
        insights.get_expected_durations(request.actor, [schedule.id]),
        request.context.runs.get_origins(request.actor, found.items),
    )
    rows = rows_of(found.items, medians, origins, {schedule.id: schedule.trigger.zone}, request.now)
    return render_tab(request, schedule, "runs", rows=rows, more=more, visible=visible)


@router.get("/schedules/{id}/log")
async def fire_log(request: PageRequest) -> Response:
    """All scheduling decisions, including skipped and missed slots, with reasons."""
    schedule = await schedule_of(request)
    filter_ = LogFilter.from_query(request.query, request.display.zone)
    found = await request.context.insights.list_fire_log(
        request.actor,
        schedule.id,
        only=filter_.query,
        after=parse_cursor(request.query.get("cursor", "")),
        limit=PAGE_SIZE,
    )
    page = f"{page_of(schedule.id)}/log"
    return render_tab(
        request,
        schedule,
        "log",
        lines=log_lines(found.entries, await _earlier_runs(request, schedule, found)),
        filter=filter_,
        log=page,
        more=filter_.address(page, cursor=encode_position(found.next))
        if found.next is not None
        else "",
    )


async def _earlier_runs(
    request: PageRequest, schedule: Schedule, found: FireLogPage
) -> tuple[Run, ...]:
    """Older runs, among which may be the one that blocked a slot of this page."""
    oldest = oldest_unexplained(found.entries)
    if oldest is None:
        return ()
    query = RunQuery(
        schedule_id=schedule.id,
        statuses=tuple(each for each in RunStatus if each not in _NOT_STARTED),
        created_until=oldest.created_at,
        sort=RunSort.CREATED_AT,
        limit=PAGE_SIZE,
    )
    return tuple((await request.context.runs.find(request.actor, query)).items)


# --- deliveries -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    recipient: Recipient
    #: Address without secrets; empty: the owner's inbox.
    to: str
    #: The newest delivery.
    last: Delivery | None


def destinations_of(
    recipients: Sequence[Recipient], deliveries: Iterable[Delivery]
) -> tuple[Destination, ...]:
    """`deliveries`: newest first."""
    newest: dict[tuple[str, str], Delivery] = {}
    for each in deliveries:
        newest.setdefault(_recipient_key(each.recipient), each)
    return tuple(
        Destination(recipient=each, to=masked_address(each), last=newest.get(_recipient_key(each)))
        for each in recipients
    )


def _recipient_key(recipient: Recipient) -> tuple[str, str]:
    return recipient.channel.value, recipient.to


def masked_address(recipient: Recipient) -> str:
    return mask_url(recipient.to) if "://" in recipient.to else recipient.to


def _deliveries_tab(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/deliveries"


@router.get("/schedules/{id}/deliveries")
async def deliveries(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    query = DeliveryQuery(schedule_id=schedule.id, limit=PAGE_SIZE)
    found = await request.context.notifications.list_deliveries(request.actor, query)
    return render_tab(
        request,
        schedule,
        "deliveries",
        destinations=destinations_of(schedule.policy.delivery, found.items),
        deliveries=[(each, masked_address(each.recipient)) for each in found.items],
        more=found.next is not None,
        channels=CHANNELS,
    )


@router.post("/schedules/{id}/deliveries/{place}/test")
async def send_test(request: PageRequest) -> Response:
    """Sends a test message to one recipient."""
    schedule = await schedule_of(request)
    recipient = _recipient_of(request, schedule)
    outcome = await request.context.notifications.send_test(
        request.actor, recipient, schedule=schedule
    )
    return request.redirect_with_toast(
        outcome.words, to=request.back_url(_deliveries_tab(schedule)), kind=outcome.kind
    )


def _recipient_of(request: PageRequest, schedule: Schedule) -> Recipient:
    """By its index in the list."""
    index, recipients = request.path_params["place"], schedule.policy.delivery
    if not (index.isascii() and index.isdigit() and len(index) < 6):
        raise NotFound(_("recipient not found"))
    if int(index) >= len(recipients):
        raise NotFound(_("recipient not found"))
    return recipients[int(index)]


@router.post("/schedules/{id}/deliveries/{delivery}/retry")
async def retry_delivery(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    await request.context.notifications.retry_delivery(
        request.actor, DeliveryId(request.path_params["delivery"])
    )
    text = _("Delivery queued again.")
    return request.redirect_with_toast(text, to=request.back_url(_deliveries_tab(schedule)))
