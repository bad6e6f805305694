"""Events become runs: accepted once, kept until their run is stored (ADR 73).

Without `debounce`, `throttle` and `batch` an event is one insert of its run, whose id is derived
from the event. With one of them it first becomes part of the state of its schedule
(`chimes.model.event`), and `flush` inserts the run when it is due, on any node.

The document `events:due` says which states have something to do, and when. An event is written to
the state first, then its schedule is entered there, then it is acknowledged. An entry has the nonce
of the state, which changes when an idle state becomes busy: `flush` removes the entry of a state
that it found idle only if it still has that nonce, so that it never removes the entry of a newer
event.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec import ValidationError, convert, to_builtins

from chimes.errors import NotFound, StaleVersion
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.event import (
    DUE_DOCUMENT,
    MAX_PAYLOAD_LENGTH,
    EventState,
    add_ends,
    add_event,
    close_due,
    event_document,
    next_due,
    remove_ready,
    watch_documents,
)
from chimes.model.ids import RunId, ScheduleId, event_run_id
from chimes.model.listing import RunQuery
from chimes.model.planning import end_immediately, event_run, find_window
from chimes.model.policy import Overlap
from chimes.model.run import Cause, Reason, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import SyncTarget
from chimes.services.documents import Document, DocumentStore
from chimes.services.runs import traced
from chimes.store.codec.values import to_text
from chimes.store.port import Store, read_maintenance
from chimes.triggers import EventTrigger

#: Characters of a state: a batch, with all characters escaped, and the run that it becomes.
_STATE_LENGTH = 8 * MAX_PAYLOAD_LENGTH
#: Events that are added to a state at once, and the characters of their payloads.
_MAX_PART, _MAX_PART_LENGTH = 500, MAX_PAYLOAD_LENGTH // 2


class EventService:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = DocumentStore(store, DUE_DOCUMENT)

    async def accept(self, schedule: Schedule, event: Cause) -> RunId | None:
        """Stores an event. Returns the id of its run; None: it becomes part of a later run, or of
        none. A repeated event returns the same."""
        trigger = schedule.trigger
        assert isinstance(trigger, EventTrigger)
        if not trigger.paced:
            now = await self._store.now()
            known = await self._store.get_run(event_run_id(schedule.id, event.delivery_id))
            run = known or await self._insert(schedule, event, now)
            return None if run.reason in _DROPPED_FOR else run.id
        await self._add_paced(schedule.id, lambda state, now: add_event(state, trigger, event, now))
        return None

    async def accept_ends(
        self, schedule: Schedule, events: Sequence[Cause], listed: Collection[str] | None
    ) -> None:
        """Stores the events of ended runs, each of them once. `listed`: as in `add_ends`."""
        trigger = schedule.trigger
        assert isinstance(trigger, EventTrigger)
        if not trigger.paced:
            for event in events:
                await self.accept(schedule, event)
            return
        for part in _parts(events):
            await self._add_paced(
                schedule.id,
                lambda state, now, part=part: add_ends(  # type: ignore[misc]
                    state, trigger, part, now, listed
                ),
            )

    async def _add_paced(
        self, schedule_id: ScheduleId, add: Callable[[EventState, datetime], EventState]
    ) -> None:
        async with _lock(self._store, schedule_id):
            # Not before: in a burst, the wait for the lock is a part of the quiet time.
            now = await self._store.now()
            state = await self._change(schedule_id, lambda state: add(state, now))
            await self._enter(schedule_id, state, now)
        hit("events.accepted")
        if state.ready:
            await self.flush(schedule_id)

    async def flush(self, schedule_id: ScheduleId) -> EventState:
        """Inserts the runs of a schedule that are due, and returns the state after that."""
        now = await self._store.now()
        state = await self._change(schedule_id, lambda state: close_due(state, now))
        if not state.ready:
            return state
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at is not None:
            await self._store.set_checkpoint(event_document(schedule_id), None)
            return EventState()
        for event in state.ready:
            await self._insert(schedule, event, now)
        hit("events.inserted")
        stored = state.ready
        return await self._change(schedule_id, lambda state: remove_ready(state, stored))

    async def flush_due(self) -> datetime | None:
        """`flush` for every schedule that is due; returns when the next one is."""
        now = await self._store.now()
        entries = await self._due.read()
        following: datetime | None = None
        for name, entry in entries.items():
            due = _due_of(entry)
            if due <= now:
                schedule_id = ScheduleId(name)
                state = await self.flush(schedule_id)
                due_again = next_due(state, now)
                await self._settle(schedule_id, entry, state, due_again)
                if due_again is None:
                    continue
                due = due_again
            following = due if following is None else min(following, due)
        return following

    async def forget(self, schedule_id: ScheduleId) -> None:
        """Removes the documents of a schedule that is deleted or has no event trigger any more, and
        its entry of `events:due`."""
        entry = (await self._due.read()).get(schedule_id)
        for name in (event_document(schedule_id), *watch_documents(schedule_id)):
            # Read before the schedule: an event after a restore changes the version.
            stored = await self._store.get_checkpoint(name)
            schedule = await self._store.get_schedule(schedule_id)
            trigger = None if schedule is None or schedule.deleted_at else schedule.trigger
            if isinstance(trigger, EventTrigger):
                return
            if stored is not None:
                with suppress(StaleVersion):
                    await self._store.set_checkpoint(name, None, expected=stored.version)
        if entry is not None:
            await self._settle(schedule_id, entry, EventState(), None)

    async def dropped(self, schedule_id: ScheduleId) -> int:
        """Events that throttle has dropped in the current period."""
        return (await self.state(schedule_id)).dropped

    async def state(self, schedule_id: ScheduleId) -> EventState:
        return _state_of(await self._document(schedule_id).read())

    # --- documents ----------------------------------------------------------------------------
    def _document(self, schedule_id: ScheduleId) -> DocumentStore:
        return DocumentStore(self._store, event_document(schedule_id), limit=_STATE_LENGTH)

    async def _change(
        self, schedule_id: ScheduleId, change: Callable[[EventState], EventState]
    ) -> EventState:
        def apply(document: Document) -> tuple[Document, AuditEntry | None]:
            before = _state_of(document)
            after = change(before)
            return (document if after == before else _document_of(after)), None

        return _state_of(await self._document(schedule_id).change(apply))

    async def _enter(self, schedule_id: ScheduleId, state: EventState, now: datetime) -> None:
        """Makes sure that `events:due` has the state, no later than it is due."""
        due = next_due(state, now)
        if due is None:
            return

        def apply(document: Document) -> tuple[Document, AuditEntry | None]:
            known = document.get(schedule_id)
            entered = known is not None and _nonce_of(known) == state.nonce
            # An urgent one is always written: a flush under way may be about to postpone it.
            if entered and not state.ready and _due_of(known) <= due:
                return document, None
            serial = _serial_of(known) + 1
            return document | {schedule_id: f"{to_text(due)} {state.nonce} {serial}"}, None

        await self._due.change(apply)

    async def _settle(
        self, schedule_id: ScheduleId, entry: object, state: EventState, due: datetime | None
    ) -> None:
        """Removes or postpones the entry that was read before the state was, if it is still the
        same."""

        def apply(document: Document) -> tuple[Document, AuditEntry | None]:
            if document.get(schedule_id) != entry:
                return document, None
            rest = {name: value for name, value in document.items() if name != schedule_id}
            if due is not None:
                rest[schedule_id] = f"{to_text(due)} {state.nonce} {_serial_of(entry) + 1}"
            return rest, None

        await self._due.change(apply)

    # --- runs ---------------------------------------------------------------------------------
    async def _insert(self, schedule: Schedule, event: Cause, now: datetime) -> Run:
        """Adds the run of an event as the policy of its schedule says."""
        run = traced(event_run(schedule, event, now))
        if event.kind == "dropped":
            skipped = end_immediately(run, RunStatus.SKIPPED, Reason.THROTTLED, now)
            return await self._add(replace(skipped, missed_count=event.events))
        if not schedule.enabled:
            return await self._add(end_immediately(run, RunStatus.SKIPPED, Reason.PAUSED, now))
        windows = await read_maintenance(self._store)
        if find_window(windows, schedule.namespace, now) is not None:
            return await self._add(end_immediately(run, RunStatus.SKIPPED, Reason.MAINTENANCE, now))
        if await self._lacks_dependency(schedule, now):
            return await self._add(end_immediately(run, RunStatus.SKIPPED, Reason.DEPENDENCY, now))
        if run.concurrency_key is None:
            return await self._add(run)
        if isinstance(schedule.target, SyncTarget):
            return await self._add_unless_active(run, now)
        match schedule.policy.overlap:
            case Overlap.SKIP:
                return await self._add_unless_active(run, now)
            case Overlap.CANCEL_OLD:
                stored = await self._add(run)
                if stored.blocked:
                    await self._cancel_oldest(schedule, stored)
                return stored
            case _:
                return await self._add(run)

    async def _add(self, run: Run) -> Run:
        return (await self._store.add_runs([run]))[0]

    async def _add_unless_active(self, run: Run, now: datetime) -> Run:
        assert run.concurrency_key is not None
        if run.concurrency_limit == 1:
            stored, created = await self._store.add_unless_active(run)
            if created or stored.id == run.id:
                return stored
        else:
            active = await self._active(run.concurrency_key, run.concurrency_limit)
            if len(active) < run.concurrency_limit:
                return await self._add(run)
        return await self._add(end_immediately(run, RunStatus.SKIPPED, Reason.OVERLAP, now))

    async def _cancel_oldest(self, schedule: Schedule, run: Run) -> None:
        assert run.concurrency_key is not None
        for each in await self._active(run.concurrency_key, 100):
            own = each.schedule_id == schedule.id and each.id != run.id
            if own and each.admitted and not each.cancel_requested:
                await self._store.cancel_run(each.id, Reason.REPLACED)
                return

    async def _active(self, key: str, limit: int) -> tuple[Run, ...]:
        """Oldest first."""
        query = RunQuery(
            concurrency_key=key,
            statuses=(RunStatus.QUEUED, RunStatus.RUNNING),
            descending=False,
            limit=limit,
        )
        return (await self._store.list_runs(query)).items

    async def _lacks_dependency(self, schedule: Schedule, now: datetime) -> bool:
        needed = schedule.depends_on
        if needed is None:
            return False
        other = await self._store.get_schedule(needed.schedule_id)
        succeeded = None if other is None else other.last_success_at
        return succeeded is None or succeeded < now - needed.within


#: Reasons for which the sender gets no run id.
_DROPPED_FOR = (Reason.PAUSED, Reason.MAINTENANCE)


def not_a_hook() -> NotFound:
    return NotFound(_("there is no hook with this address"), code="unknown_hook")


def _parts(events: Sequence[Cause]) -> Iterator[list[Cause]]:
    """Parts that fit into a state together with what it has."""
    part: list[Cause] = []
    length = 0
    for event in events:
        if part and (len(part) >= _MAX_PART or length + len(event.payload) > _MAX_PART_LENGTH):
            yield part
            part, length = [], 0
        part.append(event)
        length += len(event.payload)
    yield part


def _state_of(document: Document) -> EventState:
    try:
        return convert(document, EventState)
    except ValidationError:
        return EventState()


def _document_of(state: EventState) -> Document:
    plain = to_builtins(state)
    assert isinstance(plain, dict)
    return {name: value for name, value in plain.items() if value}


def _due_of(entry: object) -> datetime:
    return datetime.fromisoformat(str(entry).split(" ")[0])


def _nonce_of(entry: object) -> str:
    return str(entry).split(" ")[1]


def _serial_of(entry: object) -> int:
    """Makes every entry of a schedule different from the one before."""
    return 0 if entry is None else int(str(entry).split(" ")[2])


#: Events of one schedule that a process accepts wait for each other, so that a burst does not
#: repeat its compare-and-set again and again.
_locks: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock] = weakref.WeakValueDictionary()


def _lock(store: Store, schedule_id: ScheduleId) -> asyncio.Lock:
    key = (id(store), str(schedule_id))
    lock = _locks.get(key)
    if lock is None:
        lock = _locks[key] = asyncio.Lock()
    return lock


def json_payload(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
