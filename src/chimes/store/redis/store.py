"""The Redis implementation of the store port.

Each method is one script, or a read and a script that checks revisions; the functions are in the
neighbouring modules. The contracts stand in `store/port.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.envelope import NO_KEYS, Keyring
from chimes.errors import StoreLost
from chimes.model.access import ApiKey, Owner, Quota
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import DeliveryId, InboxId, KeyId, NodeId, RunId, ScheduleId
from chimes.model.insights import (
    ALL_RUNS,
    AttentionList,
    ErrorGroups,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    StatusCounts,
    Window,
)
from chimes.model.listing import (
    AuditQuery,
    Counts,
    DeliveryQuery,
    InboxQuery,
    Page,
    RunQuery,
    ScheduleQuery,
)
from chimes.model.node import HeartbeatResult, Node, NodeEvent, NodeReport
from chimes.model.notification import Delivery, DeliveryCompletion, InboxItem
from chimes.model.planning import MAINTENANCE_CHECKPOINT, Planner
from chimes.model.recipient import Channel
from chimes.model.run import Completion, LogEntry, Run, request_cancel
from chimes.model.schedule import Schedule
from chimes.store.epoch import Epoch
from chimes.store.port import (
    ClaimRequest,
    CompletionResult,
    FireResult,
    IdempotencyRecord,
    Item,
    ScheduleChange,
    ScheduleEdit,
    StoreStatus,
    TokenGrant,
)
from chimes.store.redis import (
    completion,
    due_schedules,
    export,
    insights,
    listing,
    migration,
    notifications,
    records,
    schedules,
)
from chimes.store.redis import runs as stored_runs
from chimes.store.redis.connection import Address, Connections, Listener
from chimes.store.redis.context import Context
from chimes.store.redis.server import (
    CONVERTIBLE,
    LAYOUT,
    Marker,
    check_server,
    layout_error,
    memory_of,
    open_store,
    read_identity,
    reinitialize,
    replaced_error,
)
from chimes.store.redis.wire import text
from chimes.store.selection import check_by_node, check_newest

_log = logging.getLogger(__name__)

#: Maximum age of the cached server time for sleeping.
RECENT_SECONDS = 30.0


class RedisStore:
    def __init__(
        self,
        address: Address,
        *,
        clock: Clock | None = None,
        allow_volatile: bool = False,
        marker: Path | None = None,
        keyring: Keyring = NO_KEYS,
    ) -> None:
        """Without a clock the server's clock is used; a clock is for tests."""
        self.keyring = keyring
        self._connections = Connections(address)
        self._context = Context(self._connections, clock, keyring)
        self.routing = self._context.routing
        self._clock = clock
        self._elapsed = SystemClock()
        self._allow_volatile = allow_volatile
        self._marker = Marker(marker, address)
        self._listener: Listener | None = None
        self._note = ""
        #: The id of a store that replaced ours, once logged.
        self._strange_id = ""
        #: Last server time, with our monotonic time.
        self._last_now: tuple[datetime, float] | None = None

    # --- lifecycle ----------------------------------------------------------------------------
    async def open(self) -> None:
        self._connections.open()
        try:
            self._note = await check_server(self._connections, allow_volatile=self._allow_volatile)
            self._context.store_id = (await open_store(self._connections, self._marker)).id
        except BaseException:
            await self._connections.close()
            raise
        if self._note:
            _log.warning("Redis at %s: %s", self._connections.address.shown, self._note)
        self._listener = Listener(self._connections.address, self._context.sender, self.wake)
        self._listener.start()

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        await self._connections.close()
        self.wake()

    async def init(self) -> str:
        """Used instead of `open`: give the store a new identity and return its id."""
        self._connections.open()
        try:
            await check_server(self._connections, allow_volatile=self._allow_volatile)
            return (await reinitialize(self._connections, self._marker)).id
        finally:
            await self._connections.close()

    async def migrate(self, progress: migration.Progress | None = None) -> tuple[str | None, str]:
        self._connections.open()
        try:
            await check_server(self._connections, allow_volatile=self._allow_volatile)
            stored = await read_identity(self._connections, any_layout=True)
            if stored is None or stored.layout == LAYOUT:
                return stored.layout if stored else None, LAYOUT
            if stored.layout not in CONVERTIBLE:
                raise layout_error(self._connections.address, stored.layout)
            self._context.store_id = stored.id
            await migration.convert(self._context, progress or (lambda *_: None))
            return stored.layout, LAYOUT
        finally:
            await self._connections.close()

    async def reseal(self) -> int:
        return await records.reseal(self._context)

    async def status(self) -> StoreStatus:
        return StoreStatus(
            kind="redis",
            location=self._connections.address.shown,
            schema=LAYOUT,
            degraded=self._note,
        )

    async def size(self) -> int | None:
        """Memory of the whole server, including other data."""
        return await memory_of(self._connections)

    async def epoch(self) -> Epoch:
        """Only here another store is accepted, if it was set up by `store init --force`; not one
        that a node created on an empty server. Its counter starts lower, so watching nodes drop
        their claims."""
        try:
            _unused, (counter,) = await self._context.write("epoch")
        except StoreLost:
            other = await read_identity(self._connections)
            if other is None:
                raise
            if not other.forced:
                lost = replaced_error(self._connections.address)
                if self._strange_id != other.id:
                    self._strange_id = other.id
                    _log.critical("%s", lost, extra={"event": "store_lost"})
                raise lost from None
            _log.error("the store was replaced: it was set up again")
            self._context.store_id = other.id
            self._context.drop_caches()
            self._marker.keep(other.origin)
            return Epoch(0, other.id)
        return Epoch(int(text(counter)), self._context.store_id)

    def counters(self) -> Mapping[str, int]:
        """Counters of recovered errors, by name."""
        return {
            "conflicts": self._context.conflicts,
            "lost": self._connections.lost,
            "ambiguous": self._connections.ambiguous,
        }

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        before = self._elapsed.monotonic()
        now = await self._context.now()
        self._last_now = (now, (before + self._elapsed.monotonic()) / 2)
        return now

    async def _approximate_now(self) -> datetime:
        if self._clock is None and self._last_now is not None:
            now, at = self._last_now
            passed = self._elapsed.monotonic() - at
            if passed < RECENT_SECONDS:
                return now + timedelta(seconds=passed)
        return await self.now()

    def changes(self) -> int:
        return self._context.wakeup.count

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - await self._approximate_now()).total_seconds())
        await self._context.wakeup.wait(since, seconds)

    def wake(self) -> None:
        self._context.wake()

    # --- schedules ----------------------------------------------------------------------------
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        return await schedules.add_schedule(self._context, schedule, audit, quotas)

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return await schedules.get_schedule(self._context, schedule_id)

    async def change_schedule(
        self,
        schedule_id: ScheduleId,
        change: ScheduleChange,
        audit: AuditEntry | None = None,
        *,
        runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None,
        quotas: Sequence[Quota] = (),
        deleted: bool = False,
    ) -> Schedule:
        edit = ScheduleEdit(schedule_id=schedule_id, change=change, audit=audit, runs=runs)
        (changed,) = await schedules.change_schedules(
            self._context, [edit], quotas, deleted=deleted
        )
        return changed

    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        return await schedules.change_schedules(self._context, edits)

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        return await listing.list_schedules(self._context, query)

    async def count_schedules(self, query: ScheduleQuery) -> int:
        return await listing.count_schedules(self._context, query)

    async def next_due(self) -> datetime | None:
        return await schedules.next_due(self._context)

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        return await listing.zones_in_use(self._context, owner)

    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = timedelta(0),
    ) -> FireResult:
        return await due_schedules.fire_due(self._context, plan, limit, request)

    # --- runs ---------------------------------------------------------------------------------
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        return await stored_runs.add_runs(self._context, runs, audit)

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        return await stored_runs.add_unless_active(self._context, run, audit)

    async def get_run(self, run_id: RunId) -> Run | None:
        return await stored_runs.get_run(self._context, run_id)

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        return await stored_runs.find_slot_runs(self._context, schedule_id, slots)

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        return await listing.list_runs(self._context, query)

    async def next_available(self) -> datetime | None:
        return await stored_runs.next_available(self._context)

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        return await stored_runs.claim(self._context, request)

    async def start(self, run_id: RunId, fence: int) -> bool:
        return await stored_runs.start(self._context, run_id, fence)

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        return await completion.finish(self._context, completions)

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        await stored_runs.release(self._context, claims)

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        return await self.change_run(
            run_id, lambda run, now: request_cancel(run, reason, now), audit
        )

    async def change_run(
        self,
        run_id: RunId,
        change: Callable[[Run, datetime], Run],
        audit: AuditEntry | None = None,
    ) -> Run | None:
        return await stored_runs.change_run(self._context, run_id, change, audit)

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        return await stored_runs.prune_runs(self._context, before, limit)

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        return await stored_runs.forget_runs(self._context, run_ids)

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        return await stored_runs.count_prunable(self._context, before, most)

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        return await stored_runs.append_logs(self._context, run_id, fence, entries)

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        return await stored_runs.read_logs(self._context, run_id, after, limit)

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        return await stored_runs.last_logs(self._context, run_ids)

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        await stored_runs.drop_logs(self._context, run_ids)

    # --- checkpoints --------------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        return await records.save_checkpoint(self._context, run_id, fence, name, value)

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        return await records.get_checkpoint(self._context, name)

    async def set_checkpoint(
        self,
        name: str,
        value: str | None,
        audit: AuditEntry | None = None,
        *,
        expected: int | None = None,
    ) -> Checkpoint | None:
        return await records.set_checkpoint(self._context, name, value, audit, expected)

    async def set_maintenance(
        self, value: str | None, audit: AuditEntry | None = None, *, expected: int | None = None
    ) -> Checkpoint | None:
        # What fires compares the stored value in the script that writes.
        return await self.set_checkpoint(MAINTENANCE_CHECKPOINT, value, audit, expected=expected)

    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        return await records.join(self._context, node, lease)

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        return await records.heartbeat(self._context, node_id, lease, clock, report)

    async def leave(self, node_id: NodeId) -> None:
        await records.leave(self._context, node_id)

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        return await records.rescue(self._context, limit)

    async def nodes(self) -> tuple[Node, ...]:
        return await records.list_nodes(self._context)

    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        return await records.drain_node(self._context, node_id, drain, audit)

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        return await records.forget_node(self._context, node_id, audit)

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        return await records.node_events(self._context, since, limit)

    # --- audit, keys, requests ----------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        return await records.append_audit(self._context, entry)

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
        return await records.list_audit(self._context, query)

    async def prune_audit(
        self, *, upto: int, checkpoint: str, expected: int, audit: AuditEntry
    ) -> None:
        await records.prune_audit(self._context, upto, checkpoint, expected, audit)

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        return await records.add_key(self._context, key, audit)

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        return await records.get_key(self._context, key_id)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        return await records.list_keys(self._context)

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        return await records.change_key(self._context, key_id, change, audit)

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        return await records.remember_request(self._context, scope, key, fingerprint, keep)

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        await records.answer_request(self._context, scope, key, answer)

    async def forget_request(self, scope: str, key: str) -> None:
        await records.forget_request(self._context, scope, key)

    # --- insights -----------------------------------------------------------------------------
    async def counts(self) -> Counts:
        return await insights.counts(self._context)

    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        return await insights.schedule_counts(self._context, query, failing=failing)

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        window.starts(step)
        return await insights.count_runs(self._context, window, filter_, step)

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        window.starts(step)
        check_by_node(owner, by_node=by_node)
        return await insights.run_lags(self._context, window, owner, step, by_node=by_node)

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        return await insights.newest_results(self._context, ids, each, owner)

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        return await insights.running_now(self._context, owner, limit)

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        return await insights.needing_attention(self._context, owner, late, limit)

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        return await insights.error_groups(self._context, window, filter_, limit)

    async def roll_up(self, *, limit: int) -> int:
        return 0

    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        return await notifications.add_delivery(self._context, delivery, audit)

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        return await notifications.claim_deliveries(self._context, channels, limit, lease, overdue)

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        return await notifications.finish_deliveries(self._context, completions)

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        return await notifications.retry_delivery(self._context, delivery_id, audit)

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]:
        return await notifications.list_deliveries(self._context, query)

    async def next_delivery(self) -> datetime | None:
        return await notifications.next_delivery(self._context)

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        return await notifications.add_inbox(self._context, item)

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]:
        return await notifications.list_inbox(self._context, query)

    async def count_unread(self, query: InboxQuery) -> int:
        return await notifications.count_unread(self._context, query)

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        return await notifications.change_inbox(self._context, item_id, change)

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        return await notifications.forget_inbox(self._context, item_ids)

    async def prune_unused(self, *, before: datetime, limit: int) -> int:
        count = await schedules.purge_schedules(self._context, before, limit)
        count += await stored_runs.prune_definitions(self._context, before, limit)
        return count + await records.prune_keys(self._context, before, limit)

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        return await notifications.prune_messages(self._context, before, limit)

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        return await notifications.take_tokens(self._context, name, rate, burst, count)

    # --- export and import --------------------------------------------------------------------
    def dump(self) -> AsyncIterator[Item]:
        return export.dump(self._context)

    async def load(self, items: Sequence[Item]) -> int:
        return await export.load(self._context, items)

    async def clear(self, *, keep: str = "") -> None:
        await export.clear(self._context, keep)
