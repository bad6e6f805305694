"""The questions whose answers differ from database to database.

The store is written once against this; it never asks which database it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Insert, Row, Select, Table

from chimes.clock import Clock
from chimes.store.sql.dialects.counting import Counting
from chimes.store.sql.rows.parts import Value

Rows = Sequence[Row[Any]]


class Dialect(ABC):
    #: As StoreStatus.kind says it.
    name: str
    #: Whether transactions run side by side, so that rows have to be locked.
    locks_rows: bool
    #: How it counts.
    counting: Counting
    #: Whether a standby that takes over begins a history of its own, which has a number.
    forks: bool = False

    #: Whether `fire_plain`, `take`, `finish_plain`, `coming` and `confirm` are there; otherwise the
    #: store goes the long way, and does not look ahead.
    fast: bool = False

    # --- time and errors ----------------------------------------------------------------------
    @abstractmethod
    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        """The store's clock: the database's own where it has one, unless a clock is given."""

    @abstractmethod
    def unavailable(self, error: Exception) -> str | None:
        """Why the database cannot answer or write now; None if the error is of another kind."""

    def lock_timed_out(self, error: Exception) -> bool:
        """Whether somebody else held a row for as long as a session waits."""
        return False

    def end_stalled(self, connection: Connection, seconds: float) -> int:
        """End our sessions that have waited so long in the middle of a statement for a client
        which stands still, where the limits of a session do not: how many (F17)."""
        return 0

    # --- expressions --------------------------------------------------------------------------
    @abstractmethod
    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Whether the column's value is in the list bound as `name`; the statement's text does
        not depend on the length of the list."""

    @abstractmethod
    def listed(self, values: Collection[str]) -> object:
        """A list as the parameter that `among` reads."""

    @abstractmethod
    def contains(self, column: Column[Any], text: str) -> ColumnElement[bool]:
        """Literal, case-sensitive substring."""

    @abstractmethod
    def has_entry(self, column: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        """Whether the JSON object in the column has the key, and under it this value, if given."""

    @abstractmethod
    def insert_new(self, table: Table) -> Insert:
        """An insert that leaves rows out whose key exists; the row count tells."""

    @abstractmethod
    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        """The rows stay as they are read until the transaction ends; `skip` leaves out those that
        somebody else holds. Only asked where `locks_rows`."""

    # --- the hot statements -------------------------------------------------------------------
    @abstractmethod
    def next_due(self, connection: Connection) -> int | None:
        """The earliest due time of all schedules that wait for one."""

    @abstractmethod
    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        """Due schedules, earliest first, held until the transaction ends."""

    @abstractmethod
    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        """(concurrency_key, id) of the active runs that are not blocked, oldest first."""

    @abstractmethod
    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        """The run of this concurrency key that was created first, of those that have not ended."""

    @abstractmethod
    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        """Those of the concurrency keys that have blocked runs."""

    @abstractmethod
    def slots_taken(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        """(id, schedule_id, slot) of the runs that have one of these (schedule_id, slot)."""

    @abstractmethod
    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`cursor_values` with the schedule's id, for many schedules."""

    @abstractmethod
    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        """Rows whose keys are known to be free, each with a value for every column."""

    @abstractmethod
    def claimable(
        self, connection: Connection, now: int, offers: Collection[str], limit: int
    ) -> Rows:
        """Claimable runs in queue order, held until the transaction ends."""

    @abstractmethod
    def next_available(self, connection: Connection) -> int | None:
        """The earliest available_at of the claimable runs."""

    @abstractmethod
    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`state_values` with the run's id, for many runs."""

    # --- what is told to people, and limits -----------------------------------------------------
    @abstractmethod
    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        """Pending deliveries of these channels that are available by `now`, and any that have
        been since `overdue`, oldest first; held until the transaction ends."""

    @abstractmethod
    def next_delivery(self, connection: Connection) -> int | None:
        """The earliest available_at of the pending deliveries."""

    @abstractmethod
    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`progress_values` with the delivery's id, for many of them."""

    @abstractmethod
    def take_tokens(
        self, connection: Connection, now: int | None, asked: Asked
    ) -> tuple[float, int]:
        """How many tokens are left, and how many were granted (`store/tokens.py`). `now` None:
        what the database's clock says."""

    # --- shorter ways, where there are any ------------------------------------------------------
    def fire_plain(
        self, connection: Connection, batch: Batch, plain: Sequence[PlainFiring]
    ) -> Collection[str]:
        """Move the cursors of schedules that are held and insert their runs, copied from them;
        write down the batch. The ids of the runs that were inserted: a slot that has its row
        keeps it."""
        raise NotImplementedError

    def coming(self, connection: Connection, until: int, most: int) -> Sequence[int]:
        """The earliest due times up to `until`, not more than `most` of them."""
        raise NotImplementedError

    def pressing(self, connection: Connection, until: int, each: int, most: int) -> Row[Any] | None:
        """Of the earliest `most` due times up to `until`, with each one `each` later in line than
        the one before: (number, due, begin_by) of the one that must begin first."""
        raise NotImplementedError

    def unconfirmed(
        self, connection: Connection, closed: int | None, holds: Sequence[tuple[str, int]]
    ) -> Rows:
        """All of the runs (id, fence) but those that are held, not asked to stop, planned for
        `closed` or earlier, and not just being changed by anybody. Whoever wants to change one of
        those afterwards waits until this is committed. `closed` None: what the database's clock
        says."""
        raise NotImplementedError

    def take(
        self,
        connection: Connection,
        now: int | None,
        offers: Collection[str],
        limit: int,
        node_id: str,
    ) -> Rows:
        """`claimable`, and written down as `claimed` by this node, in one statement; in any order.
        None where its lease has ended. `now` None: what the database's clock says."""
        raise NotImplementedError

    def finish_plain(
        self,
        connection: Connection,
        now: int | None,
        verdicts: Sequence[tuple[Value, ...]],
        *,
        recording: bool,
    ) -> Rows:
        """Write verdicts (`PLAIN_VERDICT`) whose fence is the current one of a running run.
        (id, when, cancel_requested, whether its key has blocked runs) of those that were accepted;
        when is `now`, or what the database's clock says. `recording`: the schedules hear of the
        ends, of which each has one at most."""
        raise NotImplementedError


class PlainFiring(NamedTuple):
    """`Firing.plain`: what cannot be copied from the schedule's row."""

    schedule_id: str
    run_id: str
    next_slot: int | None
    next_run_at: int | None
    planned_at: int
    concurrency_limit: int
    needs: str
    fence: int


class Batch(NamedTuple):
    """A pass of a scheduler; the first `claimed` of its runs are claimed for its node."""

    id: int
    node_id: str
    now: int
    #: When it is written down; None: the database's clock says it.
    done: int | None
    claimed: int


class Asked(NamedTuple):
    """Tokens of a bucket."""

    name: str
    rate: float
    burst: int
    wanted: int
    #: The answer, and what is left, where the bucket is new.
    first_granted: int
    first_tokens: float
    #: Microseconds in which an empty one is full again.
    fills_in: int


#: The order of the values of a verdict.
PLAIN_VERDICT = ("id", "attempt", "fence", "status", "retry_in", "result", "error", "reason")
