"""Dialect interface: the operations whose SQL differs between databases.

The store is written once against this interface and never checks which database it uses. What all
databases understand is a statement of SQLAlchemy beside the function that executes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Delete,
    Insert,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    literal_column,
    select,
    text,
)

from chimes.clock import Clock
from chimes.envelope import NO_KEYS, Keyring
from chimes.model.routing import RoutingCache
from chimes.model.run import NO_TURNS, Turns, share_of
from chimes.store.sql.dialects.statistics import StatisticsDialect
from chimes.store.sql.rows.run import CLAIMS
from chimes.store.sql.rows.values import Value, Values
from chimes.store.sql.tables import CLAIMABLE, claims, queue

Rows = Sequence[Row[Any]]

_ABOVE_ALL = 2**63 - 1
#: Owners that one claim visits in each rank. If there are more, the rest of the claim is in queue
#: order, and the next claim continues with other owners.
MOST_OWNERS = 32
#: Ranks are read one by one: rank comes first in queue order, so a plain scan would step over every
#: retry that waits for its time in a high rank.
_NEXT_RANK = (
    select(queue.c.rank)
    .where(text(CLAIMABLE), queue.c.rank < bindparam("below"))
    .order_by(queue.c.rank.desc())
    .limit(literal_column("1"))
)
_FIRST_OF_RANK = (
    select(queue.c.available_at)
    .where(text(CLAIMABLE), queue.c.rank == bindparam("rank"))
    .order_by(queue.c.available_at)
    .limit(literal_column("1"))
)


class Dialect(ABC):
    #: The same as StoreStatus.kind.
    name: str
    #: Whether transactions run concurrently, so that rows must be locked.
    locks_rows: bool
    statistics: StatisticsDialect
    #: Whether a standby that takes over starts a new, numbered history (timeline).
    forks: bool = False
    #: Whether `claim` claims with one statement that commits by itself.
    claims_at_once: bool = False
    #: Whether `end_claimed` exists.
    ends_at_once: bool = False
    #: Whether nodes claim runs shortly before they are due: `due_times`, `next_prefetch` and
    #: `confirm_claims` are implemented.
    prefetches: bool = False
    #: How this store encrypts secrets.
    keyring: Keyring = NO_KEYS
    #: Those of its store.
    routing = RoutingCache()

    # --- time and errors ----------------------------------------------------------------------
    @abstractmethod
    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        """The store's clock: the database's own where it has one, unless a clock is given."""

    @abstractmethod
    def unavailable(self, error: Exception) -> str | None:
        """Returns why the database cannot answer or write now; None if the error is of another
        kind."""

    def lock_timed_out(self, error: Exception) -> bool:
        """Returns whether a lock wait timed out."""
        return False

    def end_stalled(self, connection: Connection, seconds: float) -> int:
        """Terminates our sessions that have waited this long in the middle of a statement for a
        stopped client, where session timeouts do not apply. Returns their number."""
        return 0

    def empty(self, connection: Connection, table: Table) -> bool:
        """Deletes all rows, or some of them if there are many: then it returns True."""
        connection.execute(table.delete())
        return False

    # --- expressions --------------------------------------------------------------------------
    @abstractmethod
    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Whether the column's value is in the list bound as `name`; the statement's text does not
        depend on the length of the list."""

    @abstractmethod
    def listed(self, values: Collection[Any]) -> object:
        """Returns the list as the parameter that `among` reads."""

    @abstractmethod
    def contains(self, column: Column[Any], text: str) -> ColumnElement[bool]:
        """Literal, case-sensitive substring."""

    @abstractmethod
    def has_entry(self, column: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        """Whether the JSON object in the column has the key, and under it this value, if given."""

    @abstractmethod
    def insert_new(self, table: Table) -> Insert:
        """An insert that skips rows whose key exists; the row count tells how many were
        inserted."""

    @abstractmethod
    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        """Locks the rows until the transaction ends; `skip` leaves out rows that another
        transaction has locked. Only called where `locks_rows`."""

    # --- many rows in one statement -------------------------------------------------------------
    @abstractmethod
    def insert_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        """Inserts rows with values of these columns. Their keys are known to be free."""

    @abstractmethod
    def insert_missing(
        self,
        connection: Connection,
        table: Table,
        names: Sequence[str],
        rows: Sequence[Values],
        *,
        unique: str,
    ) -> Collection[Value]:
        """Like `insert_many`, but leaves out rows that would violate a unique index. Returns the
        values of the column `unique` of the inserted rows."""

    @abstractmethod
    def update_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        """Writes the columns of the rows that are named by the first column."""

    def write_all(self, connection: Connection, writes: Sequence[Write]) -> None:
        """Writes to different tables; none depends on what another one changes."""
        for table, names, rows, inserts in writes:
            write = self.insert_many if inserts else self.update_many
            write(connection, table, names, rows)

    def delete_many(
        self, connection: Connection, table: Table, name: str, values: Collection[Value]
    ) -> None:
        """Deletes the rows with one of the values in the column `name`."""
        if values:
            connection.execute(_delete_many(self, table, name), {"values": self.listed(values)})

    # --- the queue ----------------------------------------------------------------------------
    def claim(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
        turns: Turns = NO_TURNS,
    ) -> Rows:
        """Claims runs for a node, in the order of `claimable`, if the lease of the node has not
        ended. Returns rows of RUN_COLUMNS. Only where `claims_at_once`."""
        raise NotImplementedError

    def claimable(
        self,
        connection: Connection,
        now: int,
        capabilities: Collection[str],
        limit: int,
        turns: Turns = NO_TURNS,
    ) -> list[Row[Any]]:
        """Returns claimable rows of `queue`, by rank and within a rank as `take_turns` describes,
        locked until the transaction ends."""
        found: list[Row[Any]] = []
        if not capabilities:
            return found
        wanted = {"now": now, "capabilities": self.listed(capabilities)}
        for rank in self._ranks(connection):
            in_rank = wanted | {"rank": rank}
            owners = self.owners(connection, rank, turns.get(rank, 0))
            if len(owners) == 1:
                found += self._due(connection, self._due_of_rank, in_rank, limit - len(found))
            else:
                found += self._in_turn(connection, in_rank, owners, limit, limit - len(found))
            if len(found) >= limit:
                break
        return found

    def _in_turn(
        self,
        connection: Connection,
        in_rank: Mapping[str, object],
        owners: Sequence[int],
        limit: int,
        most: int,
    ) -> list[Row[Any]]:
        """Returns up to `most` rows of the owners, each its share of `limit`, then what is left."""
        waiting = [
            number
            for number in owners
            if connection.execute(self._has_due, {**in_rank, "owner": number}).first()
        ]
        found: list[Row[Any]] = []
        more: list[int] = []
        for number in waiting:
            share = min(share_of(limit, len(waiting)), most - len(found))
            given = {**in_rank, "owner": number}
            rows = self._due(connection, self._due_of_owner, given, share)
            found += rows
            if len(rows) == share:
                more.append(number)
        for number in more:
            if len(found) < most:
                given = {**in_rank, "owner": number}
                rest = self._due(connection, self._due_of_owner, given, most)
                found = self._added(found, rest, most)
        if len(found) < most and len(owners) > MOST_OWNERS:
            rest = self._due(connection, self._due_of_rank, in_rank, most)
            found = self._added(found, rest, most)
        return found

    @staticmethod
    def _added(found: list[Row[Any]], rest: Rows, most: int) -> list[Row[Any]]:
        known = {row[0] for row in found}
        return [*found, *(row for row in rest if row[0] not in known)][:most]

    @staticmethod
    def _due(
        connection: Connection, statement: Select[Any], given: Mapping[str, object], most: int
    ) -> Rows:
        return connection.execute(statement, {**given, "most": most}).all() if most > 0 else ()

    def next_available(self, connection: Connection) -> int | None:
        """Returns the earliest available_at of the claimable runs."""
        heads = [
            connection.execute(_FIRST_OF_RANK, {"rank": rank}).scalar()
            for rank in self._ranks(connection)
        ]
        return min((head for head in heads if head is not None), default=None)

    @abstractmethod
    def blocked_keys(self, connection: Connection, numbers: Collection[int]) -> Sequence[int]:
        """Returns those of the concurrency keys that have blocked runs. One lookup per key, because
        a key may have tens of thousands of blocked runs and one is enough."""

    @abstractmethod
    def slot_runs(self, connection: Connection, slots: Sequence[tuple[int, int]]) -> Rows:
        """Returns (id, schedule, slot) of the runs that have one of these slots of a schedule's
        key. One lookup in the unique index per slot."""

    def end_claimed(
        self, connection: Connection, now: int | None, rows: Sequence[Values]
    ) -> tuple[Sequence[str], int]:
        """Deletes claims and ends their runs in one statement: those whose claim has the fence of
        the row and no request to cancel. `rows`: the columns of ENDING, sorted by id.
        `finished_at` becomes the database's time, unless `now` is given. Returns the ids of the
        runs that ended, and that time. Only where `ends_at_once`."""
        raise NotImplementedError

    def take_claims(self, connection: Connection, fences: Sequence[tuple[str, int]]) -> Rows:
        """Deletes the claims of these runs that have these fences, which are sorted, and returns
        their rows, in the order of CLAIMS. The transaction that deletes a claim decides the next
        state of the run."""
        ids = sorted({run_id for run_id, _ in fences})
        found = connection.execute(self._claims_of_runs, {"ids": self.listed(ids)}).all()
        place, wanted = CLAIMS.index("fence"), set(fences)
        owned = [row for row in found if (row[0], row[place]) in wanted]
        self.delete_many(connection, claims, "run_id", [row[0] for row in owned])
        return owned

    # Statements are built once: building one takes longer than executing most of them.
    @cached_property
    def _claims_of_runs(self) -> Select[Any]:
        statement = select(claims).where(self.among(claims.c.run_id, "ids"))
        return (
            self.for_update(statement.order_by(claims.c.run_id)) if self.locks_rows else statement
        )

    def _ranks(self, connection: Connection) -> Iterator[int]:
        """Yields the ranks of the claimable runs, highest first."""
        below = _ABOVE_ALL
        while True:
            rank = connection.execute(_NEXT_RANK, {"below": below}).scalar()
            if rank is None:
                return
            yield rank
            below = rank

    @cached_property
    def _due_of_rank(self) -> Select[Any]:
        return self._first_due("queue_order")

    @cached_property
    def _due_of_owner(self) -> Select[Any]:
        return self._first_due("queue_turns").where(queue.c.owner == bindparam("owner"))

    @cached_property
    def _has_due(self) -> Select[Any]:
        one = select(queue.c.run_id).where(*self._is_due, queue.c.owner == bindparam("owner"))
        return self.with_index(one, "queue_turns").limit(literal_column("1"))

    @property
    def _is_due(self) -> tuple[ColumnElement[bool], ...]:
        return (
            queue.c.blocked == literal_column("0"),
            queue.c.rank == bindparam("rank"),
            queue.c.available_at <= bindparam("now"),
            self.among(queue.c.needs, "capabilities"),
        )

    def _first_due(self, index: str) -> Select[Any]:
        statement = (
            select(queue)
            .where(*self._is_due)
            .order_by(queue.c.available_at, queue.c.planned_at, queue.c.run_id)
            .limit(bindparam("most"))
        )
        statement = self.with_index(statement, index)
        return self.for_update(statement, skip=True) if self.locks_rows else statement

    @abstractmethod
    def owners(self, connection: Connection, rank: int, last: int) -> Sequence[int]:
        """Returns owners with claimable runs of the rank, in the order of their turns after the
        last one; at most one more than MOST_OWNERS. Jumps from owner to owner in the index."""

    def with_index(self, statement: Select[Any], index: str) -> Select[Any]:
        """Makes the database use this index of `queue`, where it might choose another one."""
        return statement

    # --- prefetch -------------------------------------------------------------------------------
    def due_times(self, connection: Connection, until: int, limit: int) -> Sequence[int]:
        """Returns the earliest due times up to `until`, at most `limit` of them."""
        raise NotImplementedError

    def next_prefetch(
        self, connection: Connection, until: int, each: int, limit: int
    ) -> Row[Any] | None:
        """Of the earliest `limit` due times up to `until`, where each takes `each` longer than the
        one before: returns (number, due, begin_by) of the one that must begin first."""
        raise NotImplementedError

    def confirm_claims(
        self, connection: Connection, closed: int | None, fences: Sequence[tuple[str, int]]
    ) -> Rows:
        """Confirms prefetched runs (id, fence), so that none can be withdrawn; returns the others.
        Confirmed are runs that are claimed, not requested to cancel, due at `closed` or earlier,
        and not locked by another transaction. `closed` None: the cutoff by the database's clock."""
        raise NotImplementedError

    # --- deliveries and limits ------------------------------------------------------------------
    @abstractmethod
    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        """Returns pending deliveries of these channels that are available by `now`, and any that
        have been available since `overdue`, oldest first; locked until the transaction ends."""

    @abstractmethod
    def next_delivery(self, connection: Connection) -> int | None:
        """Returns the earliest available_at of the pending deliveries."""

    @abstractmethod
    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        """Returns how many tokens are left, and how many were granted. `now` None: the database's
        clock."""


@cache
def _delete_many(dialect: Dialect, table: Table, name: str) -> Delete:
    return delete(table).where(dialect.among(table.c[name], "values"))


class Write(NamedTuple):
    """Rows to insert whose keys are known to be free, or to update by their first column."""

    table: Table
    names: tuple[str, ...]
    rows: Sequence[Values]
    inserts: bool = True


class TokenRequest(NamedTuple):
    """A request for tokens of a bucket."""

    name: str
    rate: float
    burst: int
    wanted: int
    #: Granted and remaining tokens if the bucket is new.
    first_granted: int
    first_tokens: float
    #: Microseconds in which an empty bucket fills.
    fills_in: int
