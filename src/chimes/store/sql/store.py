"""The SQL implementation of the store port.

Each method runs one function of a neighbouring module in a transaction of its database. Methods
that need several transactions combine them here. The contracts stand in `store/port.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from chimes.envelope import NO_KEYS, Keyring
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
from chimes.model.routing import RoutingCache
from chimes.model.run import Completion, LogEntry, Run, queue_order, request_cancel
from chimes.model.schedule import Schedule
from chimes.store.epoch import Epoch
from chimes.store.port import (
    ClaimRequest,
    CompletionResult,
    FireResult,
    IdempotencyRecord,
    Item,
    PrefetchWindow,
    ScheduleChange,
    ScheduleEdit,
    StoreStatus,
    TokenGrant,
)
from chimes.store.selection import check_by_node, check_newest
from chimes.store.sql import (
    claims as stored_claims,
)
from chimes.store.sql import (
    completion,
    due_schedules,
    export,
    insights,
    nodes,
    notifications,
    prefetch,
    records,
    rollups,
    schedules,
)
from chimes.store.sql import runs as stored_runs
from chimes.store.sql.database.base import Database, Tx, Work
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.listing import SCHEDULE_SORTS
from chimes.store.sql.migrations import HEAD, Progress
from chimes.store.sql.rows import access
from chimes.store.sql.rows import secrets as stored_secrets

T = TypeVar("T")

_NO_PREFETCH = timedelta(0)
#: How often to look again for due schedules that other transactions have locked.
_LOCKED_TRIES = 4

_log = logging.getLogger(__name__)


class SqlStore:
    def __init__(self, database: Database, keyring: Keyring = NO_KEYS) -> None:
        self._database = database
        self.keyring = database.dialect.keyring = keyring
        self.routing = database.dialect.routing = RoutingCache()
        #: The node that joined last through this store; recorded with the batches that it fires.
        self._node_id: NodeId | None = None
        self._epoch: Epoch | None = None
        #: How many passes in a row found all due schedules locked by others.
        self._locked_passes = 0
        #: The last pass left schedules that are due.
        self._more_due = False
        #: Due times of the schedules that were prefetched last. A small rest of such a batch is
        #: prefetched too.
        self._prefetched_times: frozenset[datetime] = frozenset()

    @property
    def dialect(self) -> Dialect:
        """For a transaction of the caller (`joined_transaction`)."""
        return self._database.dialect

    def counters(self) -> Mapping[str, int]:
        """Returns counters of database errors that were handled, by name."""
        return self._database.error_counts()

    async def epoch(self) -> Epoch:
        identity = self._database.identity
        epoch = await self._database.write(lambda tx: records.raise_epoch(tx, identity))
        before, self._epoch = self._epoch, epoch
        if before is not None and (
            epoch.history != before.history or epoch.counter <= before.counter
        ):
            self._database.forget_known()
        return epoch

    async def _write_runs(self, work: Work[T]) -> T:
        """Degraded mode: runs continue while the table of schedules cannot be used.

        A run needs its schedule only to update the schedule's summary and as the lock of its
        concurrency key. When a transaction fails for a reason that is neither a conflict nor an
        unavailable server, it is tried once more without touching that table. If the table was not
        the cause, the second try fails too and its error is raised."""
        try:
            return await self._database.write(work)
        except DBAPIError as error:
            _log.debug("retrying without the schedules table: %s", error)

        def without(tx: Tx) -> T:
            tx.schedules_usable = False
            return work(tx)

        return await self._database.write(without)

    # --- lifecycle ----------------------------------------------------------------------------
    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def migrate(self, progress: Progress | None = None) -> tuple[str | None, str]:
        return await self._database.migrate(progress)

    async def reseal(self) -> int:
        return await stored_secrets.reseal(self._database)

    async def status(self) -> StoreStatus:
        return StoreStatus(
            kind=self._database.dialect.name,
            location=self._database.location,
            schema=HEAD,
            degraded=self._database.degraded,
        )

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        return await self._database.now()

    def changes(self) -> int:
        return self._database.changes()

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - await self._database.approximate_now()).total_seconds())
        await self._database.wait(since, seconds)

    def wake(self) -> None:
        self._database.wake()

    # --- schedules ----------------------------------------------------------------------------
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        return await self._database.write(
            lambda tx: schedules.add_schedule(tx, schedule, audit, quotas)
        )

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return await self._database.query(lambda tx: access.load_schedule(tx, schedule_id))

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
        return await self._database.write(
            lambda tx: schedules.change_schedule(tx, edit, quotas, deleted=deleted)
        )

    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        return await self._database.write(lambda tx: schedules.change_schedules(tx, edits))

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        # Schedules without a sort value need a second query (`page_of`) on the same snapshot.
        nullable = SCHEDULE_SORTS[query.sort].nullable
        read = self._database.read if nullable else self._database.query
        return await read(lambda tx: schedules.list_schedules(tx, query))

    async def count_schedules(self, query: ScheduleQuery) -> int:
        return await self._database.query(lambda tx: schedules.count_schedules(tx, query))

    async def next_due(self) -> datetime | None:
        return await self._database.query(due_schedules.next_due)

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        return await self._database.query(lambda tx: schedules.zones_in_use(tx, owner))

    # --- firing -------------------------------------------------------------------------------
    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = _NO_PREFETCH,
    ) -> FireResult:
        """Skips schedules that other transactions have locked. If all of them are locked, it looks
        again after short pauses, and finally reports that there may be more: the other transaction
        fires or changes them, or its node is gone and will be detected."""
        if (
            self._database.has_single_writer
            and not self._more_due
            and not await self._database.read(due_schedules.anything_due)
        ):
            return FireResult()
        window = _NO_PREFETCH
        if prefetch and self._database.dialect.prefetches:
            upcoming = await self._database.query(lambda tx: due_schedules.look_ahead(tx, prefetch))
            if not upcoming.due:
                is_batch = upcoming.is_batch or upcoming.first in self._prefetched_times
                if not is_batch or request is None or request.free <= 0:
                    return FireResult()
                window = prefetch
        node_id = self._node_id if request is None else request.node_id

        def work(tx: Tx) -> FireResult | None:
            return due_schedules.fire_due(tx, plan, limit, request, node_id, window)

        for times in range(_LOCKED_TRIES):
            fired = await self._database.write(work)
            self._more_due = fired is not None and fired.more
            if fired is not None:
                self._locked_passes = 0
                if window:
                    self._prefetched_times = frozenset(run.planned_at for run in fired.claimed)
                return fired
            if self._database.has_single_writer or not await self._database.read(
                due_schedules.anything_due
            ):
                return FireResult()
            await asyncio.sleep(due_schedules.locked_pause(times + self._locked_passes))
        self._locked_passes += _LOCKED_TRIES
        return FireResult(more=True)

    @property
    def supports_prefetch(self) -> bool:
        return self._database.dialect.prefetches

    async def next_prefetch(self, within: timedelta, each: timedelta) -> PrefetchWindow | None:
        return await self._database.query(lambda tx: prefetch.next_prefetch(tx, within, each))

    async def confirm_prefetched(
        self, claims: Sequence[tuple[RunId, int]]
    ) -> frozenset[tuple[RunId, int]]:
        if not claims:
            return frozenset()
        return await self._database.write(lambda tx: prefetch.confirm_prefetched(tx, claims))

    # --- runs ---------------------------------------------------------------------------------
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        return await self._write_runs(lambda tx: stored_runs.add_runs(tx, runs, audit))

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        """Checks, locks, checks again. Usually the first check is enough and needs no lock."""
        existing = await self._database.query(lambda tx: stored_runs.find_existing(tx, run))
        if existing is not None:
            return existing, False
        return await self._write_runs(lambda tx: stored_runs.add_unless_active(tx, run, audit))

    async def get_run(self, run_id: RunId) -> Run | None:
        return await self._database.query(lambda tx: access.load_run(tx, run_id))

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        return await self._database.read(lambda tx: stored_runs.slot_runs(tx, schedule_id, slots))

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        return await self._database.query(lambda tx: stored_runs.list_runs(tx, query))

    async def next_available(self) -> datetime | None:
        return await self._database.query(stored_runs.next_available)

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        if request.free <= 0:
            return ()
        if self._database.has_single_writer and not await self._database.read(
            stored_claims.anything_available
        ):
            return ()
        if self._database.dialect.claims_at_once:
            found = await self._database.write_alone(
                lambda tx: stored_claims.claim_at_once(tx, request)
            )
        else:
            found = await self._database.write(lambda tx: stored_claims.claim(tx, request))
        corrupt = [run for run in found if stored_claims.is_corrupt(run)]
        if corrupt:
            await self._database.write(lambda tx: stored_claims.end_corrupt(tx, corrupt))
            found = [run for run in found if not stored_claims.is_corrupt(run)]
        return tuple(sorted(found, key=queue_order))

    async def start(self, run_id: RunId, fence: int) -> bool:
        return await self._database.write(lambda tx: stored_claims.start(tx, run_id, fence))

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        if not completions:
            return CompletionResult()
        ended: Mapping[RunId, Run] = {}
        if self._database.dialect.ends_at_once:
            plain = completion.plain_ends(completions, self.routing)
            if plain:
                ended = await self._database.write_alone(lambda tx: completion.end(tx, plain))
        others = [each for each in completions if each.run_id not in ended]
        if not others:
            return CompletionResult(accepted=tuple(ended[each.run_id] for each in completions))
        # Completions that were stored already are recognised as repetitions.
        result = await self._write_runs(lambda tx: completion.finish(tx, others))
        return completion.merged(completions, ended, result) if ended else result

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        await self._write_runs(lambda tx: stored_claims.release(tx, claims))

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
        return await self._write_runs(lambda tx: stored_runs.change_run(tx, run_id, change, audit))

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        if self._database.has_single_writer and not await self._database.read(
            lambda tx: stored_runs.anything_prunable(tx, before)
        ):
            return 0
        return await self._database.write(lambda tx: stored_runs.prune_runs(tx, before, limit))

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        if not run_ids:
            return 0
        return await self._database.write(lambda tx: stored_runs.forget_runs(tx, run_ids))

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        return await self._database.write(
            lambda tx: stored_runs.append_logs(tx, run_id, fence, entries)
        )

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        return await self._database.query(
            lambda tx: stored_runs.read_logs(tx, run_id, after, limit)
        )

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        if not run_ids:
            return {}
        return await self._database.query(lambda tx: stored_runs.last_logs(tx, run_ids))

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        if run_ids:
            await self._database.write(lambda tx: stored_runs.drop_logs(tx, run_ids))

    # --- checkpoints --------------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        return await self._database.write(
            lambda tx: records.save_checkpoint(tx, run_id, fence, name, value)
        )

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        return await self._database.query(lambda tx: records.get_checkpoint(tx, name))

    async def set_checkpoint(
        self,
        name: str,
        value: str | None,
        audit: AuditEntry | None = None,
        *,
        expected: int | None = None,
    ) -> Checkpoint | None:
        return await self._database.write(
            lambda tx: records.set_checkpoint(tx, name, value, audit, expected)
        )

    async def set_maintenance(
        self, value: str | None, audit: AuditEntry | None = None, *, expected: int | None = None
    ) -> Checkpoint | None:
        before = await self.set_checkpoint(MAINTENANCE_CHECKPOINT, value, audit, expected=expected)
        if self._database.dialect.locks_rows:
            # A pass that read the value before holds the locks of its cursors until it commits.
            await self._database.write(due_schedules.wait_for_running_passes)
        if self._database.dialect.prefetches:
            await self._database.write(prefetch.withdraw_all)
        return before

    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        joined = await self._database.write(lambda tx: nodes.join(tx, node, lease))
        self._node_id = joined.id
        return joined

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        """May be called from any thread and event loop. It shares the writer with the other
        operations and precedes them: on SQLite a separate connection would wait for the same lock,
        with less fairness."""
        return await self._database.write(
            lambda tx: nodes.heartbeat(tx, node_id, lease, clock, report), urgent=True
        )

    async def leave(self, node_id: NodeId) -> None:
        await self._write_runs(lambda tx: nodes.leave(tx, node_id))

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        about = await self._database.approximate_now()
        if not await self._database.query(lambda tx: nodes.rescue_needed(tx, about)):
            return ()
        return await self._write_runs(lambda tx: nodes.rescue(tx, limit))

    async def nodes(self) -> tuple[Node, ...]:
        return await self._database.query(nodes.list_nodes)

    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        return await self._database.write(lambda tx: nodes.drain_node(tx, node_id, drain, audit))

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        return await self._write_runs(lambda tx: nodes.forget_node(tx, node_id, audit))

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        return await self._database.query(lambda tx: nodes.node_events(tx, since, limit))

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        return await self._database.query(lambda tx: nodes.count_prunable(tx, before, most))

    async def size(self) -> int | None:
        return await self._database.query(nodes.size)

    # --- audit, keys, requests ----------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        return await self._database.write(lambda tx: records.append_audit(tx, entry))

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
        return await self._database.query(lambda tx: records.list_audit(tx, query))

    async def prune_audit(
        self, *, upto: int, checkpoint: str, expected: int, audit: AuditEntry
    ) -> None:
        await self._database.write(
            lambda tx: records.prune_audit(tx, upto, checkpoint, expected, audit)
        )

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        return await self._database.write(lambda tx: records.add_key(tx, key, audit))

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        return await self._database.query(lambda tx: records.get_key(tx, key_id))

    async def list_keys(self) -> tuple[ApiKey, ...]:
        return await self._database.query(records.list_keys)

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        return await self._database.write(lambda tx: records.change_key(tx, key_id, change, audit))

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        return await self._database.write(
            lambda tx: records.remember_request(tx, scope, key, fingerprint, keep)
        )

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        await self._database.write(lambda tx: records.answer_request(tx, scope, key, answer))

    async def forget_request(self, scope: str, key: str) -> None:
        await self._database.write(lambda tx: records.forget_request(tx, scope, key))

    # --- insights -----------------------------------------------------------------------------
    async def counts(self) -> Counts:
        return await self._database.read(insights.counts)

    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        return await self._database.query(
            lambda tx: insights.schedule_counts(tx, query, failing=failing)
        )

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        window.starts(step)
        return await self._database.query(lambda tx: insights.count_runs(tx, window, filter_, step))

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
        return await self._database.query(
            lambda tx: insights.run_lags(tx, window, owner, step, by_node=by_node)
        )

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        ids = check_newest(schedule_ids, each)
        return await self._database.query(lambda tx: insights.newest_results(tx, ids, each, owner))

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        return await self._database.query(lambda tx: insights.running_now(tx, owner, limit))

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        return await self._database.read(
            lambda tx: insights.needing_attention(tx, owner, late, limit)
        )

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        return await self._database.query(
            lambda tx: insights.error_groups(tx, window, filter_, limit)
        )

    async def roll_up(self, *, limit: int) -> int:
        if not await self._database.query(rollups.anything_to_roll_up):
            return 0
        return await self._database.write(lambda tx: rollups.roll_up(tx, limit))

    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        return await self._database.write(
            lambda tx: notifications.add_delivery(tx, delivery, audit)
        )

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        if limit <= 0:
            return ()
        if self._database.has_single_writer and not await self._database.read(
            notifications.anything_pending
        ):
            return ()
        return await self._database.write(
            lambda tx: notifications.claim_deliveries(tx, channels, limit, lease, overdue)
        )

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        if not completions:
            return ()
        return await self._database.write(
            lambda tx: notifications.finish_deliveries(tx, completions)
        )

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        return await self._database.write(
            lambda tx: notifications.retry_delivery(tx, delivery_id, audit)
        )

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]:
        return await self._database.query(lambda tx: notifications.list_deliveries(tx, query))

    async def next_delivery(self) -> datetime | None:
        return await self._database.query(notifications.next_delivery)

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        return await self._database.write(lambda tx: notifications.add_inbox(tx, item))

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]:
        return await self._database.query(lambda tx: notifications.list_inbox(tx, query))

    async def count_unread(self, query: InboxQuery) -> int:
        return await self._database.query(lambda tx: notifications.count_unread(tx, query))

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        return await self._database.write(
            lambda tx: notifications.change_inbox(tx, item_id, change)
        )

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        if not item_ids:
            return 0
        return await self._database.write(lambda tx: notifications.forget_inbox(tx, item_ids))

    async def prune_unused(self, *, before: datetime, limit: int) -> int:
        return await self._database.write(lambda tx: stored_runs.prune_unused(tx, before, limit))

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        return await self._database.write(
            lambda tx: notifications.prune_messages(tx, before, limit)
        )

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        return await self._database.write(
            lambda tx: records.take_tokens(tx, name, rate, burst, count)
        )

    # --- export and import --------------------------------------------------------------------
    def dump(self) -> AsyncIterator[Item]:
        return export.dump(self._database)

    async def load(self, items: Sequence[Item]) -> int:
        return await self._database.write(lambda tx: export.load(tx, items))

    async def clear(self, *, keep: str = "") -> None:
        await export.clear(self._database, keep)
        self._database.wake()
