"""Jobs as they stand in the file to schedules. What a person wrote there counts: Ksana's keys win
over what the `chimes` part recorded, and an edited job is the next version of its schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.errors import InvalidInput, told
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Policy
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, at_slot, edited, planned
from chimes.model.sync_policy import exclusive, is_pair_key
from chimes.model.target import HttpTarget, SyncTarget, Target
from chimes.store.codec.schedule import policy_to_plain, schedule_from_plain
from chimes.store.jsonfile.fields import (
    KSANA_POLICY,
    checked_http,
    extras_of,
    flag,
    mapping,
    policy_of,
    target_of,
    text_of,
    texts_given,
    time_of,
    trigger_of,
)
from chimes.store.jsonfile.job import (
    DETAILS,
    KSANA,
    NO_EXTRAS,
    SCHEDULE_KEYS,
    SEEN,
    STATUSES,
    Extras,
    digest,
    given_texts,
    schedule_keys,
    status_word,
)
from chimes.store.plain import EPOCH, MICROSECOND, Plain, maybe_text
from chimes.triggers import Every, Once, format_moment
from chimes.wording import say

EDITOR = "jobs.json"
ERROR_PREFIX = f"{EDITOR}: "
#: Stands in for a schedule that cannot be read; the end of the calendar never comes.
UNREADABLE = Once("9998-12-31T23:59:59Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedJob:
    schedule: Schedule
    extras: Extras = NO_EXTRAS
    #: The job as it stands in the file, if it makes no sense: written back until that is mended.
    broken: Plain | None = None
    edited: bool = False


def read_job(raw: Plain, job_id: ScheduleId, *, now: datetime, written_at: datetime) -> LoadedJob:
    """Never raises and never drops: a job that makes no sense comes back switched off, with its
    error."""
    try:
        details = raw.get(DETAILS)
        if details is None:
            schedule, by_hand = _plain_job(raw, job_id, now, written_at), False
        else:
            schedule, by_hand = _known_job(raw, job_id, mapping(details, DETAILS), now)
        return LoadedJob(
            schedule=_with_record(schedule, raw), extras=extras_of(raw), edited=by_hand
        )
    except (InvalidInput, ValueError, TypeError, OverflowError) as error:
        return _broken(
            raw, job_id, str(say("jobs.json: {message}", message=told(error))), written_at
        )


def _known_job(
    raw: Plain, job_id: ScheduleId, details: Plain, now: datetime
) -> tuple[Schedule, bool]:
    by_hand = digest(raw) != details.get(SEEN)
    policy = policy_of(raw, mapping(details.get("policy"), "policy"), check=by_hand)
    target = target_of(raw, check=by_hand)
    own = {name: value for name, value in details.items() if name != SEEN}
    before = schedule_from_plain(
        own
        | {
            "id": job_id,
            "name": raw.get("name"),
            "target": {**target, **mapping(own.get("target"), "target")},
            "policy": policy,
            "next_run_at": maybe_text(time_of(raw, "next_run_at")),
            "last_run_at": maybe_text(time_of(raw, "last_run_at")),
            "last_error": text_of(raw, "last_error"),
        }
    )
    if not by_hand:
        return _with_cursor(before, now), False
    return _edited_job(before, raw, now), True


def _edited_job(before: Schedule, raw: Plain, now: datetime) -> Schedule:
    keys = mapping(raw.get("schedule"), "schedule")
    shown = schedule_keys(before.trigger, given_texts(before))
    known = SCHEDULE_KEYS[str(shown["kind"])]
    trigger = before.trigger
    if any((keys.get(name) or "") != shown.get(name, "") for name in known | {"kind"}):
        trigger = trigger_of(keys, before, now)
    enabled = flag(raw, "enabled", True)
    resumed = enabled and not before.enabled
    before = _with_cursor(replace(before, policy=_policy_for(before.target, before.policy)), now)
    after = edited(
        before,
        replace(
            before,
            trigger=trigger,
            enabled=enabled,
            pause_note="" if resumed else before.pause_note,
            pause_until=None if resumed else before.pause_until,
            door_data={**before.door_data, KSANA: texts_given(raw)},
        ),
        now,
        EDITOR,
    )
    return _overdue_once(after, now)


def _policy_for(target: Target, policy: Policy) -> Policy:
    """The key of a pair goes with the pair (R4.18)."""
    if policy.concurrency_key is not None and is_pair_key(policy.concurrency_key):
        policy = replace(policy, concurrency_key=None)
    return exclusive(policy, target) if isinstance(target, SyncTarget) else policy


def _plain_job(raw: Plain, job_id: ScheduleId, now: datetime, written_at: datetime) -> Schedule:
    """A job that Ksana wrote, or a person by hand."""
    if text_of(raw, "type") not in ("http", ""):
        raise InvalidInput(say("job type must be 'http'"), field="type")
    policy = policy_of(raw, policy_to_plain(KSANA_POLICY), check=True)
    next_at = time_of(raw, "next_run_at")
    http = checked_http(mapping(raw.get("http"), "http"))
    schedule = schedule_from_plain(
        {
            "id": job_id,
            "namespace": KSANA,
            "name": text_of(raw, "name"),
            "trigger": UNREADABLE.to_dict(),
            "target": {"kind": "http", **http},
            "policy": policy,
            "enabled": flag(raw, "enabled", True),
            "door_data": {KSANA: texts_given(raw)},
            "last_run_at": maybe_text(time_of(raw, "last_run_at")),
            "last_error": text_of(raw, "last_error"),
            "created_at": format_moment(written_at),
            "updated_at": format_moment(written_at),
        }
    )
    trigger = trigger_of(mapping(raw.get("schedule"), "schedule"), None, next_at or now)
    return _first_cursor(replace(schedule, trigger=trigger), raw, next_at, now)


def _first_cursor(
    schedule: Schedule, raw: Plain, next_at: datetime | None, now: datetime
) -> Schedule:
    """R3.18, R3.29: a stale cursor stays, so that what was missed is recorded; none is planned."""
    trigger = schedule.trigger
    if not schedule.enabled:
        return schedule
    if isinstance(trigger, Once):
        done = next_at is None and (schedule.last_run_at or text_of(raw, "last_status"))
        return schedule if done else at_slot(schedule, trigger.next_after(EPOCH))
    if next_at is not None:
        slot = trigger.previous_before(next_at + MICROSECOND)
        jitter = (isinstance(trigger, Every) and trigger.jitter) or timedelta()
        if slot is not None and next_at - slot <= jitter:
            return replace(schedule, next_slot=slot, next_run_at=next_at)
    return planned(schedule, now)


def _with_cursor(schedule: Schedule, now: datetime) -> Schedule:
    """An emptied next_run_at asks for a new one; a changed one moves the slot that is next."""
    if schedule.next_slot is not None and schedule.next_run_at is None:
        return _overdue_once(planned(schedule, now), now)
    if schedule.next_slot is None and schedule.next_run_at is not None:
        return replace(schedule, next_slot=schedule.next_run_at)
    return schedule


def _overdue_once(schedule: Schedule, now: datetime) -> Schedule:
    """A moment that has passed without a record becomes `missed` when it is fired (R3.7)."""
    if not schedule.enabled or schedule.next_slot or schedule.policy.misfire is not Misfire.SKIP:
        return schedule
    slot = schedule.trigger.next_after(EPOCH) if isinstance(schedule.trigger, Once) else None
    if slot is None or slot > now or (schedule.last_slot and schedule.last_slot >= slot):
        return schedule
    return at_slot(schedule, slot)


def _with_record(schedule: Schedule, raw: Plain) -> Schedule:
    if schedule.last_error.startswith(ERROR_PREFIX):
        return replace(schedule, last_status=None, last_error="")
    word = text_of(raw, "last_status")
    if word == status_word(schedule) or word == "paused":
        return schedule
    return replace(schedule, last_status=STATUSES.get(word))


def _broken(raw: Plain, job_id: ScheduleId, error: str, written_at: datetime) -> LoadedJob:
    http, name = raw.get("http"), raw.get("name")
    url = http.get("url") if isinstance(http, dict) else ""
    schedule = Schedule(
        id=job_id,
        namespace=KSANA,
        name=name if isinstance(name, str) else "",
        trigger=UNREADABLE,
        target=HttpTarget(url=url if isinstance(url, str) else ""),
        policy=KSANA_POLICY,
        enabled=False,
        last_status=RunStatus.FAILED,
        last_error=error,
        created_at=written_at,
        updated_at=written_at,
    )
    raw = {**raw, "id": job_id, "last_status": "failed", "last_error": error}
    return LoadedJob(schedule=schedule, broken=raw)
