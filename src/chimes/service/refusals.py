"""Secrets and tokens that are not accepted: by the receiver of a schedule's calls, or by the
channel that tells of its results (UX A.1). From the newest failures, which indexes give."""

from __future__ import annotations

import re
from asyncio import gather
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.access import Actor, Owner
from chimes.model.attention import Attention, Cause, Sign
from chimes.model.delivery import Delivery, DeliveryState
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import DeliveryQuery, RunQuery, ScheduleQuery
from chimes.model.recipient import Channel
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.store.port import Store

WITHIN = timedelta(hours=24)
#: Of each kind that is looked at, the newest.
LOOKED_AT = 50
#: Codes of deliveries that were not accepted because of who sends them.
CODES = frozenset({"bad_token", "blocked", "bad_login", "http_401", "http_403"})
#: As our targets say it; the status of an answer is not kept by itself.
_ANSWER = re.compile(r"(?:^|answered )HTTP (?:401|403)\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    found: Attention
    #: Who does not take it; None: the receiver of its calls.
    channel: Channel | None
    #: In its words; English, as all that is on record.
    error: str


def says_refused(error: str) -> bool:
    return _ANSWER.search(error) is not None


async def refusals(
    store: Store, actor: Actor, now: datetime, *, failed: bool = True
) -> tuple[Refusal, ...]:
    """One for each schedule, the newest first. `failed`: whether any run of the last day has."""
    owner = None if actor.sees_everything else actor.owner
    suspects, letters = await gather(
        _refused_runs(store, owner, now) if failed else _none(), _letters(store, owner, now)
    )
    names = dict.fromkeys([*suspects, *letters])
    if not names:
        return ()
    wanted = ScheduleQuery(owner=owner, ids=tuple(names), limit=None)
    found: list[Refusal] = []
    for schedule in (await store.list_schedules(wanted)).items:
        run_id = suspects.get(schedule.id)
        if run_id is not None and _fails_so(schedule):
            found.append(_by_receiver(schedule, run_id, now))
        elif schedule.id in letters:
            found.append(_by_channel(schedule, letters[schedule.id]))
    return tuple(sorted(found, key=lambda each: each.found.sign.at, reverse=True))


def _fails_so(schedule: Schedule) -> bool:
    """Its last run, and not only one before it."""
    failed = schedule.last_status is RunStatus.FAILED
    return schedule.enabled and failed and says_refused(schedule.last_error)


def _by_receiver(schedule: Schedule, run_id: RunId, now: datetime) -> Refusal:
    sign = Sign(
        schedule_id=schedule.id,
        cause=Cause.REFUSED,
        at=schedule.last_run_at or now,
        run_id=run_id,
    )
    found = Attention(schedule=schedule, sign=sign)
    return Refusal(found=found, channel=None, error=schedule.last_error)


def _by_channel(schedule: Schedule, letters: Sequence[Delivery]) -> Refusal:
    newest = letters[0]
    sign = Sign(
        schedule_id=schedule.id,
        cause=Cause.REFUSED,
        at=newest.finished_at or newest.created_at,
        count=len(letters),
        run_id=newest.run_id,
    )
    found = Attention(schedule=schedule, sign=sign)
    return Refusal(found=found, channel=newest.recipient.channel, error=newest.error)


async def _none() -> dict[ScheduleId, RunId]:
    return {}


async def _refused_runs(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, RunId]:
    """Schedules with such a run, and the newest of each."""
    query = RunQuery(
        owner=owner, statuses=(RunStatus.FAILED,), created_since=now - WITHIN, limit=LOOKED_AT
    )
    found: dict[ScheduleId, RunId] = {}
    for run in (await store.list_runs(query)).items:
        if run.schedule_id is not None and says_refused(run.error):
            found.setdefault(run.schedule_id, run.id)
    return found


async def _letters(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, list[Delivery]]:
    """What a channel did not take and was not given another since, newest first."""
    dead, waiting = await gather(
        _newest(store, owner, DeliveryState.DEAD), _newest(store, owner, DeliveryState.PENDING)
    )
    refused = [
        each
        for each in sorted((*dead, *waiting), key=lambda each: each.created_at, reverse=True)
        if each.code in CODES and each.created_at >= now - WITHIN
    ]
    if not refused:
        return {}
    taken = _last_taken(await _newest(store, owner, DeliveryState.DELIVERED))
    found: dict[ScheduleId, list[Delivery]] = {}
    for each in refused:
        later = taken.get((each.schedule_id, each.recipient.channel, each.recipient.to))
        if each.schedule_id is not None and (later is None or later < each.created_at):
            found.setdefault(each.schedule_id, []).append(each)
    return found


async def _newest(store: Store, owner: Owner | None, state: DeliveryState) -> tuple[Delivery, ...]:
    query = DeliveryQuery(owner=owner, states=(state,), limit=LOOKED_AT)
    return (await store.list_deliveries(query)).items


def _last_taken(
    delivered: Iterable[Delivery],
) -> dict[tuple[ScheduleId | None, Channel, str], datetime]:
    found: dict[tuple[ScheduleId | None, Channel, str], datetime] = {}
    for each in delivered:
        place = each.schedule_id, each.recipient.channel, each.recipient.to
        found.setdefault(place, each.created_at)
    return found
