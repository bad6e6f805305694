"""The store port: what the engine and the services ask of a store.

Every adapter keeps these contracts word for word; `tests/store_contract` proves it once for all
of them by comparing whole values. Each verb is atomic: it happens as a whole or not at all, also
when the process is killed. All times are aware UTC datetimes with microseconds.

A verb raises `StoreUnavailable` when the store cannot answer or cannot write now; nothing has
then happened, unless the answer itself was lost, which is why every write below can be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from chimes.errors import Conflict, NotFound
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
from chimes.model.planning import FireContext, FirePlan
from chimes.model.recipient import Channel
from chimes.model.run import Completion, LogEntry, Run
from chimes.model.schedule import Schedule

# @@ What the verbs of a store are given and answer with.


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimRequest:
    """A node's offer to carry runs out at once."""

    node_id: NodeId
    #: What its runners can carry out: `http`, `task:NAME`, `flow:NAME` (`target.needs`).
    capabilities: frozenset[str]
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FireResult:
    #: Runs that were inserted already claimed for the node that offered places.
    claimed: tuple[Run, ...] = ()
    #: Every other row that was inserted: waiting, missed, skipped.
    others: tuple[Run, ...] = ()
    #: Each schedule as it was, with the plan that was written for it.
    plans: tuple[tuple[Schedule, FirePlan], ...] = ()
    #: Schedules that could not be planned and were set aside, with the error in last_error.
    broken: tuple[Schedule, ...] = ()
    #: True if due schedules may be left: call again.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionResult:
    """What became of a batch of verdicts."""

    #: The runs as they are now, in the order of the accepted verdicts.
    accepted: tuple[Run, ...] = ()
    #: Ownership was lost before the verdict came (fenced): the worker's word does not count.
    refused: tuple[RunId, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyRecord:
    """The first request under an idempotency key. `status` 0: it is still under way."""

    fingerprint: str
    status: int = 0
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreStatus:
    kind: str
    #: Where the data is, without any password.
    location: str
    schema: str
    #: Why the store is not in full order, e.g. a corrupt file was set aside; empty when it is.
    degraded: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLog:
    """The whole log of a run, for export."""

    run_id: RunId
    entries: tuple[LogEntry, ...]


#: What a store consists of, apart from what only lives as long as the processes (nodes, requests).
Item = Schedule | Run | RunLog | AuditEntry | ApiKey | Checkpoint | Delivery | InboxItem


# @@ The part of the store port that counts: what the dashboard shows without loading rows.
#
# Answers are of the moment, and exact but for what the values say: lags are kept in brackets
# (`model/lags.py`), `MADE_BEFORE` leaves out what was made long before its time, and what
# retention has forgotten is not counted any more.


class InsightStore(Protocol):
    async def schedule_counts(
        self, query: ScheduleQuery, *, failing: bool = True
    ) -> ScheduleCounts:
        """Of the schedules that the query matches on all its pages. `failing`: count those too,
        which takes longer than all the rest."""

    async def count_runs(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, step: timedelta | None = None
    ) -> tuple[StatusCounts, ...]:
        """Runs planned in the window by status, one tally for each bucket, empty ones too; without
        a step the window is one bucket. Of one schedule: without those of `MADE_BEFORE`."""

    async def run_lags(
        self,
        window: Window,
        owner: Owner | None = None,
        *,
        step: timedelta | None = None,
        by_node: bool = False,
    ) -> tuple[LagBucket, ...]:
        """Of the runs planned in the window (`lag_of`), one for each bucket, empty ones too. By
        node: one for each node that began any in a bucket, by name; only of all owners
        (InvalidInput)."""

    async def newest_results(
        self, schedule_ids: Collection[ScheduleId], *, each: int, owner: Owner | None = None
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """Of each schedule its newest runs (created_at, id), newest first, all in one question;
        those without any are not there. `owner`: only runs of that owner. InvalidInput for more
        than `MOST_SCHEDULES`, `MOST_OF_ONE`, or `MOST_RESULTS` in all."""

    async def running_now(self, owner: Owner | None = None, *, limit: int) -> tuple[Run, ...]:
        """Those that a node has in hand and that have begun, the longest first (started_at, id)."""

    async def needing_attention(
        self, owner: Owner | None = None, *, late: timedelta, limit: int
    ) -> AttentionList:
        """Schedules with a reason to look at them (`Cause`), the gravest and newest first, at most
        `MOST_SCHEDULES`:

        STOPPED: `stopped_by_error`. FAILING: enabled, and `is_failing`. MISSED: slots that were
        found to be in the last 24 hours. LATE: enabled, and a slot of the last hour that began more
        than `late` after it was planned, or one of any age that waits for a node, or to be fired,
        for longer. PAUSE_OVER: paused, although `pause_until` has passed."""

    async def error_groups(
        self, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int
    ) -> ErrorGroups:
        """Runs planned in the window that ended badly (`BAD`), by the first `ERROR_ROOM` characters
        of what they say; of the newest `MAX_ERRORS` (created_at, id), and without those of
        `MADE_BEFORE`."""

    async def roll_up(self, *, limit: int) -> int:
        """Count up to `limit` ended runs into the sums from which windows are answered; how many.
        To be called again while it was as many. A store that needs no sums answers 0. Whether and
        when it is called changes no answer, only what it costs."""


# @@ The part of the store port that is about messages: deliveries, the inbox, and the limits that
# nodes share.


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenGrant:
    """What came of asking for tokens."""

    #: None, or as many as were asked for.
    granted: int
    #: Whole tokens that are left.
    remaining: int
    #: When as many as were asked for will be there; zero if they were granted.
    wait: timedelta


class MessageStore(Protocol):
    # --- deliveries and inbox -----------------------------------------------------------------
    async def add_delivery(self, delivery: Delivery, audit: AuditEntry | None = None) -> Delivery:
        """One that no run has written; one whose id exists is answered with the existing one, and
        `audit` is not appended. Wakes."""

    async def claim_deliveries(
        self, channels: Collection[Channel], *, limit: int, lease: timedelta, overdue: timedelta
    ) -> tuple[Delivery, ...]:
        """Hand out up to `limit` pending deliveries with available_at <= now, oldest available_at
        first, then id; each comes back `delivery_begun`. Those of other channels only if they have
        been available for more than `overdue`: nobody who can send them has come. Two callers
        never get the same one before `hold` is over."""

    async def finish_deliveries(
        self, completions: Sequence[DeliveryCompletion]
    ) -> tuple[Delivery, ...]:
        """`delivery_settled`, each only under its current fence, with the inbox items they bring;
        those that were accepted, as they are now."""

    async def retry_delivery(
        self, delivery_id: DeliveryId, audit: AuditEntry | None = None
    ) -> Delivery | None:
        """`delivery_reopened`; None: no such delivery. Wakes."""

    async def list_deliveries(self, query: DeliveryQuery) -> Page[Delivery]: ...

    async def next_delivery(self) -> datetime | None:
        """The earliest available_at of what is pending; cheap, from an index."""

    async def add_inbox(self, item: InboxItem) -> InboxItem:
        """One whose id exists is answered with the existing one."""

    async def list_inbox(self, query: InboxQuery) -> Page[InboxItem]: ...

    async def count_unread(self, query: InboxQuery) -> int:
        """How many unread ones the query matches on all its pages."""

    async def change_inbox(
        self, item_id: InboxId, change: Callable[[InboxItem, datetime], InboxItem]
    ) -> InboxItem:
        """As change_schedule; NotFound if there is none."""

    async def forget_inbox(self, item_ids: Sequence[InboxId]) -> int:
        """Those of these, at most a thousand, that there are, starred or not; how many."""

    async def prune_messages(self, *, before: datetime, limit: int) -> int:
        """Forget deliveries that finished before `before`, and then inbox items created before it
        that are not starred, each the oldest first (their time, id); how many. Buckets of tokens
        that are full by now may go with them."""

    # --- shared limits ------------------------------------------------------------------------
    async def take_tokens(
        self, name: str, *, rate: float, burst: int, count: int = 1
    ) -> TokenGrant:
        """A bucket that all nodes share, by the store's clock: `rate` tokens come in a second, at
        most `burst` lie in it, and it begins full. All of `count` or none. It may be forgotten
        when it is full, and need not survive a crash."""


# @@ What operators do to nodes, and what the store tells about nodes and about itself.

#: Marks that are older than this are forgotten when the next node comes.
NODE_EVENT_RETENTION = timedelta(days=31)


class NodeStore(Protocol):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        """Ask a node to take nothing new, or to go on; it hears so with its next heartbeat. The
        node as it is now. Raises NotFound, or Conflict if its lease is over. One that was asked
        already stays as it is; `audit` is appended all the same."""

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        """Take a node off the list whose lease is over; runs that it still holds count as lost
        now. The node as it was. Raises NotFound, or Conflict while its lease is alive."""

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        """Who came and went since then, at most the newest `limit`, oldest first. A store of one
        process remembers as long as that process lives, the others `NODE_EVENT_RETENTION`."""

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        """How many runs `prune_runs` would forget; counts no further than `most`."""

    async def size(self) -> int | None:
        """Bytes that all this takes where it is kept, as nearly as the store can tell cheaply;
        None: it cannot."""


def node_not_found(node_id: NodeId) -> NotFound:
    return NotFound(_("There is no node {id!r}", id=node_id))


def node_gone(node_id: NodeId) -> Conflict:
    return Conflict(_("The node {id!r} is gone: its lease is over", id=node_id), code="node_gone")


def node_alive(node_id: NodeId) -> Conflict:
    return Conflict(
        _("The node {id!r} is alive; only one whose lease is over can be forgotten", id=node_id),
        code="node_alive",
    )


# @@ Changes of several schedules that belong together.


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleEdit:
    """What `change_schedule` is told, but for quotas."""

    schedule_id: ScheduleId
    change: Callable[[Schedule, datetime], Schedule]
    audit: AuditEntry | None = None
    runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None


class ScheduleEditStore(Protocol):
    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        """`change_schedule` for each of them, in ONE transaction: all of it happens or nothing
        does (C16). No id may be there twice. The audit entries follow each other as given.
        NotFound if one is not there or deleted; whatever a change raises is raised."""


Planner = Callable[[Schedule, FireContext, datetime], FirePlan]
#: Gets the current value and the store's time; returns the new value, or raises to change nothing.
ScheduleChange = Callable[[Schedule, datetime], Schedule]


@runtime_checkable
class MigratableStore(Protocol):
    """A store whose schema is brought up to date by hand."""

    async def migrate(self) -> tuple[str | None, str]:
        """Instead of `open`, and safe to repeat: from which revision (None: there was nothing, or
        nobody can tell) to which. Raises SchemaMismatch or StoreUnavailable."""


@runtime_checkable
class InitializableStore(Protocol):
    """A store that can lose everything at once, and is set up again by hand only (F41)."""

    async def init(self) -> str:
        """Instead of `open`: a new identity, whatever was there before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefetchWindow:
    """The part of what is to come for which there is least time."""

    due: datetime
    #: When to begin, to have taken by then all that is due until then.
    begin_by: datetime


@runtime_checkable
class PrefetchStore(Protocol):
    """A store whose `fire_due` may take schedules ahead of their time.

    Until `CLOSED` before its time, every change of its schedule takes such a run back: its row is
    gone and the cursor stands on its slot again before the change looks (`taken_back`), and so
    does a run by hand that would have to wait for it. From then on it counts as begun."""

    @property
    def supports_prefetch(self) -> bool:
        """Whether it does, on this database."""

    async def next_prefetch(self, within: timedelta, each: timedelta) -> PrefetchWindow | None:
        """Of what comes due within that time, if it is taken in its order and each takes so long.
        None: it is not a crowd. From an index; as far as it has to be walked."""

    async def confirm_prefetched(
        self, claims: Sequence[tuple[RunId, int]]
    ) -> frozenset[tuple[RunId, int]]:
        """Of runs taken ahead (run id, fence) those that nothing takes back any more: closed, held
        under this fence, and not asked to stop. One that somebody is just changing is not among
        them; ask again."""


class Store(MessageStore, ScheduleEditStore, InsightStore, NodeStore, Protocol):
    # --- life ---------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, set up an empty store, take exclusive locks where the store needs them.
        Raises StoreLocked, SchemaMismatch or StoreUnavailable."""

    async def close(self) -> None:
        """Flush and let go. Calling it twice is harmless."""

    async def status(self) -> StoreStatus:
        """For health, doctor and `store status`."""

    # --- time ---------------------------------------------------------------------------------
    async def now(self) -> datetime:
        """The store's own clock: every wall-time decision uses it and nothing else."""

    def changes(self) -> int:
        """A counter that rises whenever something may have become due or claimable, or a running
        run of this process was asked to stop. Take it before looking, hand it to wait_for_work."""

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        """Return as soon as `changes()` is above `since`, at the latest at `until` by the store's
        clock (None: only when told). Changes made by other processes count, if need be with a
        short delay; waking for nothing is allowed."""

    def wake(self) -> None:
        """Raise the counter by hand, so that every `wait_for_work` of this process returns. Safe
        from any thread."""

    # --- schedules ----------------------------------------------------------------------------
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        """Raises AlreadyExists if the id was ever used, QuotaExceeded if the schedule counts
        against one of `quotas` and its owner already has that many (counted in the same
        transaction, serial with others of that owner, S25)."""

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Also a deleted one: callers look at `deleted_at`."""

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
        """Read, apply the pure `change`, write, append `audit`: one transaction, serial with
        fire_due and finish, so that nothing is overwritten. NotFound if there is none or it is
        deleted. Whatever `change` raises is raised and changes nothing.

        `runs` is called with the value *before* the change; its rows are inserted in the same
        transaction (a slot that has its row already keeps that one). A change that sets
        `deleted_at` ends the waiting runs of the schedule as canceled (reason schedule_deleted);
        a running one goes on to its end (C16). `quotas` as in add_schedule, where the schedule
        counts after the change and did not before. `deleted`: also one that is, to bring it
        back."""

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        """Without the deleted ones; order is total (id breaks ties) and stable under inserts."""

    async def count_schedules(self, query: ScheduleQuery) -> int:
        """How many the query matches on all its pages."""

    async def next_due(self) -> datetime | None:
        """The earliest next_run_at of all enabled schedules; cheap, from an index."""

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        """By the name of the zone that applies (`trigger.zone`): the enabled schedules to come, by
        id. Every one of them is looked at, though not read whole: not a question for every
        page."""

    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = timedelta(0),
    ) -> FireResult:
        """Take up to `limit` due schedules (enabled, not deleted, next_run_at <= now; earliest
        first; those another node is just firing are left out), call `plan` for each, insert the
        runs it asks for, move the cursors, ask the runs in `cancel` to stop: ONE transaction.

        A slot that has a row already keeps it (unique for ever) while the cursor still moves. Up
        to `places.free` of the new claimable runs, in order of rank and due time, are inserted
        already claimed for `places.node_id`, provided its lease is alive. `plan` raising sets
        that schedule aside (`set_aside`) and stops no other.

        Where a crowd comes due within `ahead`, a store may take of it what can be claimed for
        `places` at once and is `OnTime` by its own due time, which `plan` then gets as now: those
        runs are inserted claimed although their time is still to come (`Run.ahead`), and whatever
        else is not due yet is left alone. Other stores look at what is due, and nothing else."""

    # --- runs ---------------------------------------------------------------------------------
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        """Insert; a run whose id or (schedule, slot) exists is answered with the existing one. A
        run whose concurrency key is at its limit is inserted blocked, a step of a flow that has
        ended canceled. Same order as given."""

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        """Insert `run`, which has a concurrency key and is not ended, unless a run with that key
        is active already (waiting, blocked or running): then the oldest of those (created_at, id)
        and False, and `audit` is not appended. A run whose id exists is answered with that one and
        False. However many ask at once, on however many nodes, one of them inserts (R4.20). Raises
        StoreBusy where somebody else has held that key for too long."""

    async def get_run(self, run_id: RunId) -> Run | None: ...

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        """The existing runs of those slots."""

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        """RunRequest is total (id breaks ties) and stable under inserts."""

    async def next_available(self) -> datetime | None:
        """The earliest available_at of the claimable runs; None if there are none."""

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        """Hand out up to `places.free` claimable runs whose needs it offers, with available_at <=
        now, by rank (highest first), then available_at, planned_at, id. Nothing if the node's
        lease is not alive. Each comes back `claimed`: attempt + 1, fence + 1."""

    async def start(self, run_id: RunId, fence: int) -> bool:
        """The started mark. False: ownership is lost, do not begin."""

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        """Write verdicts with their logs, each only if its fence is the current one of a running
        run. Runs that end update their schedule (`recorded`), pause it where the verdict says
        so, and let the next blocked run of their key go. Repeating an accepted verdict (same
        fence, and the run shows that very attempt) is accepted again and changes nothing (F23).

        Here and in every other verb that ends a run: if that run is a flow, its unfinished child
        runs are asked to stop in the same transaction (`abandoned`). The end of a child wakes
        those who wait for work: its flow may go on.

        Here and in every other verb that ends a run, or inserts one that has ended: its `outbox`
        is written in the same transaction (a delivery whose id exists stays as it is), and those
        who wait for work are woken if there is any. The run before it of the same schedule is the
        one that the schedule's `last_status` told of until then."""

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        """Give runs that have not begun back (run id, fence); those not owned are left alone, and
        one that was asked to stop ends as canceled (`given_back`). The started mark does not keep
        a run: its holder may have lost the answer to it, and knows that it did not begin."""

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        """`cancel_asked`, and the next blocked run of the key is let go. None: no such run."""

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        """Forget ended runs that finished before `before`, with their logs, except the steps of
        a flow that has not ended: whoever takes it over would repeat them. Raises
        `purged_until` of their schedules so that no forgotten slot is ever made again."""

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        """As `prune_runs`, but those of these, at most a thousand, that have ended, whenever that
        was; how many."""

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        """Fenced like a verdict."""

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        """Entries numbered above `after`, ascending."""

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        """The last entry of each of these runs, at most a thousand, in one question however long
        their logs are; those without any are not there."""

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        """Forget the logs of those of these runs, at most a thousand, that have ended; the others
        keep theirs."""

    # --- state of targets ---------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        """Fenced like a verdict: a run that has lost its node must not set back what the one that
        took over has kept."""

    async def get_checkpoint(self, name: str) -> Checkpoint | None: ...

    async def set_checkpoint(
        self, name: str, value: str | None, audit: AuditEntry | None = None
    ) -> Checkpoint | None:
        """By hand, whatever runs meanwhile; None forgets it. What was there before."""

    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        """Register a node, or what it offers now; its lease runs from the store's now. One that
        was there already keeps its `started_at`, what it has told and whether it is to drain: what
        an operator has asked for since is not undone by what the node has not heard yet."""

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        """Renew the lease, unless it has ended (then `alive` is False, for ever: the node has to
        join under a new id). `clock` is the node's own wall clock, kept as clock_offset; `facts`
        are kept as they are."""

    async def leave(self, node_id: NodeId) -> None:
        """Take the node off; runs it still holds count as lost now."""

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        """Take the runs of nodes whose lease has ended away from them (`lost`); those runs as
        they are now, oldest first (created_at, id). Nodes without runs left are forgotten."""

    async def nodes(self) -> tuple[Node, ...]:
        """Those that have joined and not left, by id."""

    # --- audit, keys, requests ----------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        """Chained to the entry before it."""

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]: ...

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        """Raises AlreadyExists."""

    async def get_key(self, key_id: KeyId) -> ApiKey | None: ...

    async def list_keys(self) -> tuple[ApiKey, ...]:
        """Revoked ones too, oldest first."""

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
        """None: this is the first request under (scope, key), now on record as under way until
        `keep` is over. Otherwise what is on record."""

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        """Record the answer to the first request."""

    async def forget_request(self, scope: str, key: str) -> None:
        """The first request failed before it did anything; let it be tried again."""

    # --- insights -----------------------------------------------------------------------------
    async def counts(self) -> Counts:
        """Computed by the store, not by loading rows."""

    # --- moving house -------------------------------------------------------------------------
    def dump(self) -> AsyncIterator[Item]:
        """Everything, deleted schedules included: schedules, runs, their logs, audit entries in
        ascending order, keys, kept states."""

    async def load(self, items: Sequence[Item]) -> int:
        """Insert items exactly as they are; one that exists already stays and is not counted.
        Runs that were running arrive queued (`lost` does not apply: their node is elsewhere)."""
