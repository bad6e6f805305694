"""The store port: the interface of all storage adapters, with the contract of each method.

`tests/store_contract` checks these contracts for every adapter. Each method is atomic, also when
the process is killed. All times are aware UTC datetimes with microseconds.

A method raises `StoreUnavailable` when the store cannot be read or written now; nothing has then
changed, unless only the response was lost. Therefore every write below can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from msgspec import Struct

from chimes.envelope import Keyring
from chimes.errors import Conflict, NotFound, StoreIncomplete
from chimes.i18n import _
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
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    FirePlan,
    MaintenanceWindow,
    Planner,
    windows_from_text,
)
from chimes.model.recipient import Channel
from chimes.model.routing import RoutingCache
from chimes.model.run import Completion, LogEntry, Run, Turns, advance_turns, owner_number
from chimes.model.schedule import Schedule

# --- requests and results


class ClaimRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A node's request for runs that it can start now."""

    node_id: NodeId
    #: What it can execute: `http`, `task:NAME`, `flow:NAME` (`target.requirement`).
    capabilities: frozenset[str]
    #: Free permits.
    free: int


class FireResult(Struct, frozen=True, kw_only=True, gc=False):
    #: Runs inserted already claimed for the requesting node.
    claimed: tuple[Run, ...] = ()
    #: All other inserted runs: queued, missed, skipped.
    others: tuple[Run, ...] = ()
    #: Each schedule before the change, with its plan. Their last runs (`last_run_at` …) may be
    #: older than the stored ones.
    plans: tuple[tuple[Schedule, FirePlan], ...] = ()
    #: Schedules that could not be planned (`stop_with_error`).
    broken: tuple[Schedule, ...] = ()
    #: True: due schedules may be left, call again.
    more: bool = False


class CompletionResult(Struct, frozen=True, kw_only=True, gc=False):
    """The result of a batch of completions."""

    #: The updated runs, in the order of the accepted completions.
    accepted: tuple[Run, ...] = ()
    #: Fenced: the worker had lost the run before.
    refused: tuple[RunId, ...] = ()


class IdempotencyRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The first request under an idempotency key. `status` 0: still in progress."""

    fingerprint: str
    status: int = 0
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class StoreStatus(Struct, frozen=True, kw_only=True, gc=False):
    kind: str
    #: Where the data is, without passwords.
    location: str
    schema: str
    #: Why the store is degraded, e.g. a corrupt file was moved away; empty if it is not.
    degraded: str = ""


class RunLog(Struct, frozen=True, kw_only=True, gc=False):
    """The whole log of a run, for export."""

    run_id: RunId
    entries: tuple[LogEntry, ...]


#: Everything that is exported; nodes and idempotency records are not.
Item = Schedule | Run | RunLog | AuditEntry | ApiKey | Checkpoint | Delivery | InboxItem


# --- insights: statistics computed without loading rows. Exact except for the lag brackets
# (`LagHistogram`), MAX_PLANNING_LEAD and runs that retention has deleted.


class InsightStore(Protocol):
    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        """Counts over all pages of the query. `failing`: also count failing schedules, which is
        slow."""

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        """Runs planned in the window by status, one value per bucket, including empty ones; without
        a step one bucket. For one schedule MAX_PLANNING_LEAD applies."""

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        """Lags of the runs planned in the window (`lag_of`), one value per bucket, including empty
        ones. By node: one per bucket and node, sorted by node; only for all owners (else
        InvalidInput)."""

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """The newest runs (created_at, id) of each schedule, newest first, in one query; schedules
        without runs are missing. InvalidInput for more than MAX_SCHEDULES,
        MAX_RESULTS_PER_SCHEDULE or MAX_RESULTS in total."""

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        """In-flight runs that have started, oldest first (started_at, id)."""

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        """Schedules with an issue (`IssueCause`), most severe and newest first, at most
        MAX_SCHEDULES:

        STOPPED: `stopped_by_error`. FAILING: enabled, and `is_failing`. MISSED: missed slots
        recorded in the last 24 hours. LATE: enabled, and a slot of the last hour started more than
        `late` after its planned time, or one of any age waits longer than that for a node or to be
        fired. PAUSE_OVER: paused, although `pause_until` has passed."""

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        """Failed runs planned in the window, grouped by the first ERROR_KEY_LENGTH characters of
        the error; only the newest MAX_ERRORS (created_at, id); MAX_PLANNING_LEAD applies."""

    async def roll_up(self, *, limit: int) -> int:
        """Add up to `limit` ended runs to the rollups; return how many. Call again while it equals
        `limit`. Stores without rollups return 0. It changes the cost of queries, not their
        results."""


# --- deliveries, inbox and shared rate limits


class TokenGrant(Struct, frozen=True, kw_only=True, gc=False):
    """The result of taking tokens."""

    #: 0, or all requested tokens.
    granted: int
    #: Whole tokens left.
    remaining: int
    #: Time until the requested tokens are available; zero if granted.
    wait: timedelta


class MessageStore(Protocol):
    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        """Add a delivery without a run. If the id exists, the existing one is returned and `audit`
        is not appended. Wakes waiting nodes."""

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        """Claim up to `limit` pending deliveries with available_at <= now, oldest available_at
        first, then id; each as `claim_delivery` returns it. Other channels only if available for
        more than `overdue`, since no node with that channel claims them. Two callers never get the
        same one before `lease` is over."""

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        """`complete_delivery` and add the inbox items, each only under its current fence; return
        the accepted deliveries as updated."""

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        """`reopen_delivery`; None: no such delivery. Wakes waiting nodes."""

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]: ...

    async def next_delivery(self) -> datetime | None:
        """The earliest available_at of pending deliveries; cheap, from an index."""

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        """If the id exists, the existing item is returned."""

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]: ...

    async def count_unread(self, query: InboxQuery) -> int:
        """Unread items on all pages of the query."""

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        """As change_schedule; NotFound if there is none."""

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        """Delete up to a thousand items, starred or not; return how many existed."""

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        """Delete up to `limit` deliveries that finished before `before`, then inbox items created
        before it that are not starred, oldest first; return how many. May drop full token
        buckets."""

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        """Take `count` tokens or none from a bucket that all nodes share: `rate` tokens per second
        by the store's clock, capacity `burst`, initially full. A negative `count` returns tokens,
        up to the capacity. A full bucket may be dropped; it need not survive a crash."""


# --- nodes

#: Older node events are deleted when the next node joins.
NODE_EVENT_RETENTION = timedelta(days=31)


class NodeStore(Protocol):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        """Request a node to drain, or to resume; it receives this with its next heartbeat. Returns
        the updated node. Raises NotFound, or Conflict if its lease has expired. Idempotent, but
        `audit` is always appended."""

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        """Remove a node whose lease has expired; its runs count as lost now. Returns the removed
        node. Raises NotFound, or Conflict while its lease is alive."""

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        """The newest `limit` joins and leaves since then, oldest first. Embedded stores keep them
        while the process lives, the others for `NODE_EVENT_RETENTION`."""

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        """How many runs `prune_runs` would delete; stops counting at `most`."""

    async def size(self) -> int | None:
        """Approximate size of the data in bytes; None: unknown."""


def node_not_found(node_id: NodeId) -> NotFound:
    return NotFound(_("There is no node {id!r}", id=node_id))


def node_gone(node_id: NodeId) -> Conflict:
    return Conflict(
        _("The node {id!r} is gone: its lease has expired", id=node_id), code="node_gone"
    )


def node_alive(node_id: NodeId) -> Conflict:
    return Conflict(
        _("The node {id!r} is alive; only a node with an expired lease can be removed", id=node_id),
        code="node_alive",
    )


# --- changes of several schedules


class ScheduleEdit(Struct, frozen=True, kw_only=True, gc=False):
    """The arguments of `change_schedule`, without quotas."""

    schedule_id: ScheduleId
    change: Callable[[Schedule, datetime], Schedule]
    audit: AuditEntry | None = None
    runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None


class ScheduleEditStore(Protocol):
    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        """`change_schedule` for each, in ONE transaction. Ids must be unique. Audit entries keep
        the given order. NotFound if one is missing or deleted; errors of a change are raised."""


#: Gets the current value and the store's time; returns the new value, or raises to change nothing.
ScheduleChange = Callable[[Schedule, datetime], Schedule]


@runtime_checkable
class MigratableStore(Protocol):
    """A store whose schema is migrated by a command."""

    async def migrate(
        self, progress: Callable[[str, int, int], None] | None = None
    ) -> tuple[str | None, str]:
        """Used instead of `open`, safe to repeat. Returns the old revision (None: empty) and the
        new one. `progress` gets the name of a step, how much of it is done, and how much there is.
        Raises SchemaMismatch or StoreUnavailable."""


@runtime_checkable
class InitializableStore(Protocol):
    """A store that can lose everything at once, and is then set up again only by a command."""

    async def init(self) -> str:
        """Used instead of `open`: give the store a new identity."""


@runtime_checkable
class SnapshotStore(Protocol):
    """A store that only one process can open, and others can still read."""

    async def open_snapshot(self) -> None:
        """Used instead of `open`, to read one state while another process uses the store; nothing
        can be written."""


#: The checkpoint of a restore that is not complete. No node starts on such a store.
RESTORE_CHECKPOINT = "store:restore"


async def check_restored(store: Store) -> None:
    """Raises StoreIncomplete if a restore was interrupted or is still at work."""
    if await store.get_checkpoint(RESTORE_CHECKPOINT) is not None:
        raise StoreIncomplete(
            _(
                "a backup is being restored into the store, or that was interrupted: wait for it,"
                " or repeat `chimes store restore --force`"
            )
        )


async def read_maintenance(store: Store) -> tuple[MaintenanceWindow, ...]:
    """The windows that are on, planned or have ended lately."""
    stored = await store.get_checkpoint(MAINTENANCE_CHECKPOINT)
    return windows_from_text(None if stored is None else stored.value)


class PrefetchWindow(Struct, frozen=True, kw_only=True, gc=False):
    """The most urgent group of schedules to prefetch."""

    due: datetime
    #: When to start claiming, to have claimed all of them by `due`.
    begin_by: datetime


@runtime_checkable
class PrefetchStore(Protocol):
    """A store whose `fire_due` can prefetch.

    Until `PREFETCH_CUTOFF` before its due time, every change of the schedule withdraws the run:
    its row is deleted and the cursor is back on its slot before the change is applied
    (`withdraw_prefetched`). A manual run that would wait for it does the same. After that, or once
    it is confirmed, the run counts as started. The next run of a withdrawn slot has a higher
    fence."""

    @property
    def supports_prefetch(self) -> bool:
        """Whether this database can."""

    async def next_prefetch(self, within: timedelta, each: timedelta) -> PrefetchWindow | None:
        """The next group due within that time, if each claim takes `each`. None: too few to
        prefetch. Read from an index."""

    async def confirm_prefetched(
        self, claims: Sequence[tuple[RunId, int]]
    ) -> frozenset[tuple[RunId, int]]:
        """Confirm prefetched runs (run id, fence): they can never be withdrawn again, whatever the
        clock says. Returns those that were confirmed: past the cutoff, owned under this fence, no
        cancellation requested. A run that is being changed is not included; call again."""


class Store(MessageStore, ScheduleEditStore, InsightStore, NodeStore, Protocol):
    # --- lifecycle
    # ---------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, set up an empty store, take exclusive locks where needed.
        Raises StoreLocked, SchemaMismatch or StoreUnavailable."""

    async def close(self) -> None:
        """Flush and disconnect; idempotent."""

    async def status(self) -> StoreStatus:
        """For health, doctor and `store status`."""

    @property
    def keyring(self) -> Keyring:
        """The keys of the secrets in this store. Every method encrypts the secrets that it writes
        with the first of them; without a key it writes them as they are."""

    @property
    def routing(self) -> RoutingCache:
        """The routing rules that every method which ends runs passes to `plan_deliveries`."""

    async def reseal(self) -> int:
        """Encrypt all stored secrets with the first key, in batches while others work. Returns how
        many values were encrypted; 0: all of them are. Safe to repeat and to interrupt. Raises
        SecretUnreadable if the key of one is missing."""

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        """The store's clock, used by every wall-time decision."""

    def changes(self) -> int:
        """A counter that rises when work may have become due or claimable, or a cancellation was
        requested for a run of this process. Read it before polling, pass it to wait_for_work."""

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        """Return as soon as `changes()` is above `since`, at the latest at `until` by the store's
        clock (None: no timeout). Includes changes of other processes, possibly with a short delay;
        spurious wake-ups are allowed."""

    def wake(self) -> None:
        """Raise the counter, so that every `wait_for_work` of this process returns. Thread-safe."""

    # --- schedules ----------------------------------------------------------------------------
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        """Raises AlreadyExists if the id is used, also by a deleted schedule that retention has not
        purged, QuotaExceeded if the schedule counts against one of `quotas` and its owner already
        has that many (counted in the same transaction, serialised per owner)."""

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Also a deleted one: check `deleted_at`."""

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
        """Read, apply the pure `change`, write, append `audit`: one transaction, serialised with
        fire_due and finish. NotFound if missing or deleted. Errors of `change` are raised and
        change nothing. If the change sets the cursor back to a future slot that has a run, the
        cursor passes on to the next slot without one (`returned_slot`).

        `runs` is called with the value *before* the change; its runs are inserted in the same
        transaction (a slot that has a run keeps it). A change that sets `deleted_at` cancels the
        queued runs of the schedule (reason schedule_deleted); running ones continue. `quotas` as
        in add_schedule, if the schedule counts after the change and did not before. `deleted`:
        also change a deleted schedule, to restore it."""

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        """Without deleted schedules; the order is total (id breaks ties) and stable under
        inserts. `query.triggers` compares the kind of the trigger itself, not what its other
        fields contain."""

    async def count_schedules(self, query: ScheduleQuery) -> int:
        """Schedules on all pages of the query."""

    async def next_due(self) -> datetime | None:
        """The earliest next_run_at of all enabled schedules; cheap, from an index."""

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        """Ids of enabled schedules with a next run, by zone name (`trigger.zone`). Scans all of
        them: too slow for every page."""

    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = timedelta(0),
    ) -> FireResult:
        """Fire up to `limit` due schedules (enabled, not deleted, next_run_at <= now; earliest
        first; without those that another node is firing): call `plan` for each, insert its runs,
        move the cursor, request the cancellations: ONE transaction.

        A slot that has a run keeps it while the cursor still moves. Up to `request.free` of the
        new claimable runs, by rank and due time, are inserted already claimed for
        `request.node_id` if its lease is alive. A schedule whose `plan` raises is stopped
        (`stop_with_error`); the others continue.

        If many schedules are due within `prefetch`, a store may also fire those that can be
        claimed for `request` and have an `on_time` plan at their due time, which `plan` gets as
        now: their runs are inserted claimed before they are due (`Run.prefetched`). Other stores
        ignore `prefetch`.

        The windows of `MAINTENANCE_CHECKPOINT` are read in the same transaction, and every plan
        respects them (`with_maintenance`)."""

    # --- runs ---------------------------------------------------------------------------------
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        """Insert runs and return them in the same order. If the id or (schedule, slot) exists, the
        existing run is returned. A run whose concurrency key is at its limit is inserted blocked,
        a step of an ended flow canceled."""

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        """Insert `run`, which has a concurrency key and is not ended, unless a run with that key is
        active (queued, blocked or running): then return the oldest of those (created_at, id) and
        False, without appending `audit`. If the id exists, return that run and False. Of
        concurrent callers on any nodes exactly one inserts. Raises StoreBusy if the key stays
        locked for too long."""

    async def get_run(self, run_id: RunId) -> Run | None: ...

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        """The existing runs of these slots."""

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        """The order is total (id breaks ties) and stable under inserts."""

    async def next_available(self) -> datetime | None:
        """The earliest available_at of the claimable runs; None if there are none."""

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        """Claim up to `request.free` claimable runs that the node can execute, with available_at <=
        now: by rank (highest first), within a rank in turn between owners (`take_turns`), of one
        owner by available_at, planned_at, id. The turns of a rank continue where the last claim of
        this process with the same capabilities ended. Where many owners wait, a claim may serve
        the first 32 in turn and others by available_at. Nothing if the node's lease is not alive.
        Returns them in queue order as after `claim`: attempt + 1, fence + 1."""

    async def start(self, run_id: RunId, fence: int) -> bool:
        """Set the started mark. False: the run was lost, do not start."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        """Write completions with their logs, each only under the current fence of a running run.
        A run that ends updates its schedule (`record_run`), pauses it if the completion says so,
        and unblocks the next run of its key. A repeated completion (same fence and attempt) is
        accepted and changes nothing.

        Every method that ends a run: if the run is a flow, its unfinished steps are canceled in
        the same transaction (`cancel_step`). The end of a step wakes waiting nodes, since its flow
        may continue.

        Every method that ends a run or inserts an ended one: its deliveries (`plan_deliveries`)
        are written in the same transaction (existing ids stay unchanged), and waiting nodes are
        woken if there are any. The previous status is the schedule's `last_status`.

        Every method that ends a run in one of FAILED_STATUSES: if its policy has
        `auto_pause_after`, the newest conclusive runs that were created since the last change of
        the schedule decide whether the schedule is paused in the same transaction
        (`pause_after_failures`), with an audit entry and `plan_pause_deliveries`. Of concurrent
        ends, on any nodes, exactly one pauses it."""

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        """Return unstarted runs (run id, fence) to the queue (`release_or_cancel`); ignores runs
        not owned. The started mark does not matter: the node may have lost the response to it, and
        knows that it did not start the run."""

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        """`request_cancel`, and unblock the next run of the key. None: no such run."""

    async def change_run(
        self,
        run_id: RunId,
        change: Callable[[Run, datetime], Run],
        audit: AuditEntry | None = None,
    ) -> Run | None:
        """Write what `change` makes of a run and the store's time: a queued run ends, or is due at
        another time; a run that it returns unchanged is not written. It may be called twice, and
        may raise to change nothing. Of concurrent changes each gets the result of the one before.
        If the run ends, that has the effects of an end. Wakes waiting nodes. None: no such run."""

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        """Delete ended runs that finished before `before`, with their logs and their own
        checkpoints, except steps of an unfinished flow, which would repeat them. Raises
        `purged_until` of the schedules, so that no deleted slot fires again. About the oldest come
        first if there are more than `limit`."""

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        """Delete the ended ones of up to a thousand runs as `prune_runs` does; return how many."""

    async def prune_unused(self, *, before: datetime, limit: int) -> int:
        """Delete what nothing uses any more, up to `limit` of each kind; return how many in total.
        Call again while it is at least `limit`. These are schedules that may be purged
        (`is_purgeable`) and have no runs, with their own checkpoints, keys (`unused_keys`),
        and what a store keeps for itself, such as the locks of idle concurrency keys."""

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        """Fenced like a completion."""

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        """Entries numbered above `after`, ascending."""

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        """The last entry of each of up to a thousand runs, in one query; runs without entries are
        missing."""

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        """Delete the logs of the ended ones of up to a thousand runs."""

    # --- checkpoints --------------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        """Fenced like a completion: a lost attempt must not overwrite the checkpoint of the
        next."""

    async def get_checkpoint(self, name: str) -> Checkpoint | None: ...

    async def set_checkpoint(
        self,
        name: str,
        value: str | None,
        audit: AuditEntry | None = None,
        *,
        expected: int | None = None,
    ) -> Checkpoint | None:
        """Set without a fence; None deletes it. Returns the previous checkpoint.

        `expected` makes it a compare-and-set: the `version` of the stored checkpoint must be this
        one, 0: it must not exist. Otherwise raises StaleVersion, and neither the checkpoint nor the
        audit log changes. Repeated after a lost response, it raises StaleVersion: read again."""

    async def set_maintenance(
        self, value: str | None, audit: AuditEntry | None = None, *, expected: int | None = None
    ) -> Checkpoint | None:
        """`set_checkpoint` of MAINTENANCE_CHECKPOINT. When it returns, no transaction of any node
        fires by the value before any more, and prefetched runs are withdrawn that are not
        confirmed."""

    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        """Register a node, or update its capabilities; the lease starts now. A known node keeps
        `started_at`, its report and its drain request, so that a request that the node has not
        received yet is not undone."""

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        """Renew the lease, unless it has expired (then `alive` is False for good: the node must
        join under a new id). `clock` is the node's wall clock, stored as clock_offset."""

    async def leave(self, node_id: NodeId) -> None:
        """Remove the node; its in-flight runs count as lost now."""

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        """`mark_lost` the runs of nodes with an expired lease; returns the updated runs, oldest
        first (created_at, id). Expired nodes without runs are removed."""

    async def nodes(self) -> tuple[Node, ...]:
        """Registered nodes, by id."""

    # --- audit, keys, requests ----------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Append, chained to the previous entry."""

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]: ...

    async def prune_audit(
        self, *, upto: int, checkpoint: str, expected: int, audit: AuditEntry
    ) -> None:
        """Delete the entries with numbers up to `upto`, store the checkpoint AUDIT_CHECKPOINT,
        which stands for them, and append `audit`. `expected` as in set_checkpoint; raises
        StaleVersion."""

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        """Raises AlreadyExists."""

    async def get_key(self, key_id: KeyId) -> ApiKey | None: ...

    async def list_keys(self) -> tuple[ApiKey, ...]:
        """Including revoked keys, oldest first."""

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        """As change_schedule; NotFound if there is none."""

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        """None: the first request under (scope, key), now recorded as in progress until `keep` is
        over. Otherwise the existing record."""

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        """Record the response to the first request."""

    async def forget_request(self, scope: str, key: str) -> None:
        """Delete the record of a request that failed before any effect, so that it can be
        retried."""

    # --- insights -----------------------------------------------------------------------------
    async def counts(self) -> Counts:
        """Computed by the store, not by loading rows."""

    # --- export and import ------------------------------------------------------------------------
    def dump(self) -> AsyncIterator[Item]:
        """Everything, including deleted schedules: schedules, runs, logs, audit entries in
        ascending order, keys, checkpoints, deliveries, inbox. Other processes may write meanwhile:
        the result is one state, except on Redis (`store/redis/export.py`)."""

    async def load(self, items: Sequence[Item]) -> int:
        """Insert items unchanged; existing ones stay and are not counted. Running runs become
        queued without `mark_lost`, since their node is elsewhere."""

    async def clear(self, *, keep: str = "") -> None:
        """Delete everything, also nodes with their leases and requests, except the checkpoint
        `keep`. Not atomic, but it can be repeated. Nodes that used the store find that it went
        back in time (`EpochStore`)."""


# --- what stores share ----------------------------------------------------------------------------
class Wakeup:
    """A counter that event loops can wait on: the part of `wait_for_work` inside a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    @property
    def count(self) -> int:
        return self._count

    def wake(self) -> None:
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with contextlib.suppress(RuntimeError):  # that loop has been closed
                loop.call_soon_threadsafe(_resolve, future)

    async def wait(self, since: int, seconds: float | None) -> bool:
        """Whether the count rose above `since` before the timeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._count > since:
                return True
            self._waiting[future] = loop
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.pop(future, None)
        return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# Rules of token buckets, also for stores that compute them in the database.

#: Clocks of nodes differ: a small step back must not refill the bucket twice. A larger one means
#: that the clock was set back, and refilling restarts from there.
MAX_CLOCK_STEP_BACK = timedelta(minutes=1)


def take_from(
    tokens: float, elapsed: float, *, rate: float, burst: int, count: int
) -> tuple[float, TokenGrant]:
    """The tokens left and the grant. `elapsed` seconds ago the bucket held `tokens`; a clock that
    went back adds none."""
    available = min(float(burst), tokens + max(0.0, elapsed) * rate)
    granted = count if available >= count else 0
    left = min(float(burst), available - granted)
    return left, grant_tokens(left, granted=granted, rate=rate, count=count)


def grant_tokens(left: float, *, granted: int, rate: float, count: int) -> TokenGrant:
    """The grant, with `left` tokens in the bucket afterwards."""
    wait = timedelta() if granted == count else timedelta(seconds=(count - left) / rate)
    return TokenGrant(granted=granted, remaining=int(left), wait=wait)


def refilled_until(at: datetime, now: datetime) -> datetime:
    """The time up to which the bucket is refilled; `at` is the previous one."""
    return at if timedelta() < at - now < MAX_CLOCK_STEP_BACK else now


#: Sets of capabilities: pools, without those that they leave to other nodes for a while.
_MOST_POOLS = 100


class LastTurns:
    """The last owner of each rank, for each set of capabilities: pools with different ones take
    turns separately, or one could always meet the same owner."""

    def __init__(self) -> None:
        self._turns: dict[frozenset[str], Turns] = {}

    def get(self, capabilities: frozenset[str]) -> Turns:
        return self._turns.get(capabilities, {})

    def advance(self, capabilities: frozenset[str], claimed: Iterable[Run]) -> None:
        served = {(run.rank, run.definition.owner) for run in claimed}
        if not served:
            return
        numbers = [(rank, owner_number(str(owner))) for rank, owner in served]
        turns = advance_turns(self.get(capabilities), numbers)
        if len(self._turns) >= _MOST_POOLS:
            self._turns.clear()
        self._turns[capabilities] = turns
