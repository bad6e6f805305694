"""Events that start runs: how `debounce`, `throttle` and `batch` turn many into one, as pure
functions.

The state of a schedule is a small document (`events:SCHEDULE`), changed with compare-and-set. An
event first becomes part of it, then is acknowledged. `ready` are events that have become runs, or
will: a node that dies in between leaves them to the next one, and the id of the run is derived from
the event, so that both insert the same run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.run import Cause
from chimes.triggers import EventTrigger

#: Delivery ids that are remembered, to recognise repeats.
MAX_REMEMBERED = 500
#: Ended runs are remembered as long as nodes read them again, and this long after their event.
ENDS_REMEMBERED_FOR = timedelta(minutes=2)
MAX_ENDS = 20_000
#: Characters of the payloads of one batch; a larger one starts its run early.
MAX_BATCH_LENGTH = 1024 * 1024
#: Most characters of a payload.
MAX_PAYLOAD_LENGTH = 1024 * 1024
#: Which schedules have a state that needs a run at some time, and when.
DUE_DOCUMENT = "events:due"


def event_document(schedule_id: ScheduleId) -> str:
    """The name of the state of a schedule."""
    return f"events:{schedule_id}"


def watch_documents(schedule_id: ScheduleId) -> tuple[str, ...]:
    """The names of what watchers of a schedule have seen."""
    return tuple(f"{event_document(schedule_id)}:{part}" for part in ("runs", "files", "sql"))


class EventState(Struct, frozen=True, kw_only=True):
    #: Changes when an idle state gets something to do (see `chimes.services.events`).
    nonce: str = ""
    #: Events that wait for `due`. Debounce keeps the last one only.
    pending: tuple[Cause, ...] = ()
    #: Events that `pending` stands for.
    count: int = 0
    due: datetime | None = None
    #: Events whose run is to be inserted now.
    ready: tuple[Cause, ...] = ()
    #: End of the current period of throttle, the event that began it, and how many it dropped.
    until: datetime | None = None
    began_by: str = ""
    dropped: int = 0
    #: The latest delivery ids.
    seen: tuple[str, ...] = ()
    #: Ended runs whose events were accepted, and when.
    ends: dict[str, datetime] = {}

    @property
    def busy(self) -> bool:
        """Whether something is to be done at `next_due`."""
        return bool(self.pending or self.ready or self.dropped)


def next_due(state: EventState, now: datetime) -> datetime | None:
    if state.ready:
        return now
    if state.pending:
        return state.due
    return state.until if state.dropped else None


def add_event(state: EventState, trigger: EventTrigger, event: Cause, now: datetime) -> EventState:
    """The state with one more event; unchanged if it has had the event before."""
    if event.delivery_id in state.seen:
        return state
    before = state
    state = close_due(state, now)
    state = replace(state, seen=(*state.seen, event.delivery_id)[-MAX_REMEMBERED:])
    if trigger.debounce is not None:
        due = now + trigger.debounce
        if state.due is not None:
            # Another node may have been faster with a later event.
            due = max(due, state.due)
        state = replace(state, pending=(event,), count=state.count + 1, due=due)
    elif trigger.throttle is not None:
        if state.until is not None and now < state.until:
            state = replace(state, dropped=state.dropped + 1)
        else:
            state = replace(
                state,
                ready=(*state.ready, event),
                until=now + trigger.throttle,
                began_by=event.delivery_id,
            )
    elif trigger.batch is not None:
        state = _add_to_batch(state, trigger, event, now)
    else:
        state = replace(state, ready=(*state.ready, event))
    if state.busy and not before.busy:
        state = replace(state, nonce=secrets.token_hex(8))
    return state


def add_ends(
    state: EventState,
    trigger: EventTrigger,
    events: Sequence[Cause],
    now: datetime,
    listed: Collection[str] | None = None,
) -> EventState:
    """The state with the events of ended runs, without those that it has had before. `listed` are
    the runs that nodes read again; others are forgotten after a while. None: none is forgotten."""
    new = [each for each in events if each.delivery_id not in state.ends]
    ends = {
        name: at
        for name, at in state.ends.items()
        if listed is None or name in listed or now - at <= ENDS_REMEMBERED_FOR
    }
    if not new and len(ends) > len(state.ends) - MAX_REMEMBERED:
        return state
    for event in new:
        state = add_event(state, trigger, event, now)
        ends[event.delivery_id] = now
    return replace(state, ends=dict(list(ends.items())[-MAX_ENDS:]))


def _add_to_batch(
    state: EventState, trigger: EventTrigger, event: Cause, now: datetime
) -> EventState:
    assert trigger.batch is not None
    length = sum(len(each.payload) for each in state.pending)
    if state.pending and length + len(event.payload) > MAX_BATCH_LENGTH:
        state = _close(state)
    state = replace(
        state,
        pending=(*state.pending, event),
        count=state.count + 1,
        due=state.due or now + trigger.batch.within,
    )
    return _close(state) if len(state.pending) >= trigger.batch.count else state


def close_due(state: EventState, now: datetime) -> EventState:
    """The state in which what is due is ready."""
    if state.pending and state.due is not None and state.due <= now:
        state = _close(state)
    if state.until is not None and state.until <= now:
        if state.dropped:
            state = replace(state, ready=(*state.ready, _dropped(state)))
        state = replace(state, until=None, began_by="", dropped=0)
    return state


def _close(state: EventState) -> EventState:
    last = state.pending[-1]
    event = replace(last, events=state.count)
    if len(state.pending) > 1:
        event = replace(
            event,
            # That of the first one stays when another one joins.
            delivery_id=state.pending[0].delivery_id,
            content_type="application/json",
            payload=batch_payload(state.pending),
        )
    return replace(state, pending=(), count=0, due=None, ready=(*state.ready, event))


def batch_payload(events: Sequence[Cause]) -> str:
    """A JSON array of the payloads: those that are JSON as they are, others as texts."""
    return f"[{','.join(_as_json(each.payload) for each in events)}]"


def _as_json(text: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    return text


def _dropped(state: EventState) -> Cause:
    """Stands for the events that throttle dropped; becomes a skipped run."""
    assert state.until is not None
    return Cause(
        kind="dropped",
        delivery_id=f"{state.began_by}:dropped",
        at=state.until,
        events=state.dropped,
        dropped=state.dropped,
    )


def remove_ready(state: EventState, stored: Sequence[Cause]) -> EventState:
    """The state without the events whose runs are stored."""
    ids = {each.delivery_id for each in stored}
    return replace(state, ready=tuple(each for each in state.ready if each.delivery_id not in ids))
