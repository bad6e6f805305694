"""Schema, one definition for every SQL database.

What fires, waits and runs has narrow tables of its own: `cursors`, `queue` and `claims`. What
describes a run is stored once per version of its schedule or per kind of request: `definitions`.
`runs` is the history: a row is inserted when the run is planned and written once more when it ends.

Times are integer microseconds since 1970 in UTC, so that they compare as integers without loss.
Flags are small integers and JSON is text that `rows` encodes, so that both are the same on every
database. Text compares by code point (binary collation). `rows` unpacks by position: the order of
columns here is the order there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    text,
)

POSTGRES, MARIADB, SQLITE = "postgresql", "mariadb", "sqlite"


def _word(length: int) -> String:
    """Compared by code point on every database; PostgreSQL needs an explicit collation."""
    return String(length).with_variant(String(length, collation="C"), POSTGRES)


class _LongText(Text):
    """The type of MariaDB, without the import of its dialect."""

    __visit_name__ = "LONGTEXT"


IDENTITY = _word(255)
#: A name that people choose, or the text of a concurrency key.
KEY_TEXT = _word(700)
#: `task:`, `flow:` or `sync:` and a name.
NEEDS = _word(300)
#: An owner's type and id.
OWNER = _word(330)
WORD = _word(64)
#: Part of a long primary key, which MariaDB limits.
SHORT_WORD = _word(32)
TEXT = Text().with_variant(Text(collation="C"), POSTGRES).with_variant(_LongText(), MARIADB)
MOMENT = BigInteger()
FLAG = SmallInteger()
#: A number that the database assigns. SQLite numbers only `INTEGER` keys.
NUMBER = BigInteger().with_variant(Integer(), SQLITE)

metadata = MetaData()
_TABLE: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}


#: Options of tables and indexes, named `dialect_option`. Not passed to SQLAlchemy at once: it
#: imports the dialect of each option, and a process uses one database.
_OPTIONS: list[tuple[Table | Index, dict[str, Any]]] = []


def set_dialect_options(dialect: str) -> None:
    """Adds the options for one database; call it before creating tables or indexes."""
    for item, options in _OPTIONS:
        for name, value in options.items():
            of, _, option = name.partition("_")
            if of == dialect:
                item.dialect_options[of][option] = value


def _table(name: str, *columns: Column[Any], **options: Any) -> Table:
    found: Table = Table(name, metadata, *columns)
    _OPTIONS.append((found, _TABLE | options))
    return found


def _index(name: str, *columns: ColumnElement[Any], unique: bool = False, **options: Any) -> Index:
    found = Index(name, *columns, unique=unique)
    _OPTIONS.append((found, options))
    return found


def _not_on(dialect: str) -> Any:
    """For indexes that one database does not get."""
    return lambda ddl, target, bind, **_: bind.dialect.name != dialect


def _key() -> Column[int]:
    """A number that is computed from the row (`number_of`), so that every process knows it without
    asking, and it means the same after a fail-over that lost rows."""
    return Column("key", BigInteger, primary_key=True, autoincrement=False)


def _partial(
    name: str, *columns: ColumnElement[Any], where: str, first: Sequence[Column[Any]] = ()
) -> None:
    """An index of the rows that match the condition. MariaDB has no partial indexes: there every
    row is in it, and the columns of the condition come first, if given."""
    condition: dict[str, Any] = {"sqlite_where": text(where), "postgresql_where": text(where)}
    if not first:
        _index(name, *columns, **condition)
        return
    _index(name, *columns, **condition).ddl_if(callable_=_not_on(MARIADB))
    Index(name, *first, *columns).ddl_if(dialect=MARIADB)


PRESENT = "deleted_at IS NULL"
DUE = "live = 1 AND next_run_at IS NOT NULL"
CLAIMABLE = "blocked = 0"
BLOCKED = "blocked = 1"
CANCELING = "cancel_requested = 1"
#: Problems are runs that ended in another way than by success.
PROBLEM = "problem IS NOT NULL"
UNSUCCESSFUL = "last_status <> 'succeeded'"

#: What people write: read when a schedule is shown or fires the first time on a node.
schedules = _table(
    "schedules",
    _key(),
    Column("id", IDENTITY, nullable=False),
    Column("namespace", IDENTITY, nullable=False),
    Column("name", KEY_TEXT, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("kind", WORD, nullable=False),
    Column("trigger", TEXT, nullable=False),
    Column("target", TEXT, nullable=False),
    Column("policy", TEXT, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("labels", TEXT, nullable=False),
    Column("enabled", FLAG, nullable=False),
    Column("pause_note", TEXT, nullable=False),
    Column("pause_until", MOMENT),
    Column("depends_on", TEXT),
    Column("compat_data", TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("created_by", TEXT, nullable=False),
    Column("updated_at", MOMENT, nullable=False),
    Column("updated_by", TEXT, nullable=False),
    Column("deleted_at", MOMENT),
    #: The definition of the runs of this version.
    Column("definition", BigInteger, nullable=False),
)
Index("schedules_by_id", schedules.c.id, unique=True)
_partial("schedules_created", schedules.c.created_at, schedules.c.id, where=PRESENT)
# Covers counts by owner and by `enabled`.
Index(
    "schedules_owned",
    *(schedules.c.owner_type, schedules.c.owner_id, schedules.c.deleted_at, schedules.c.enabled),
)
# For retention. On MariaDB `schedules_paused` begins with it.
_index(
    "schedules_deleted",
    schedules.c.deleted_at,
    sqlite_where=text("deleted_at IS NOT NULL"),
    postgresql_where=text("deleted_at IS NOT NULL"),
).ddl_if(callable_=_not_on(MARIADB))
_partial("schedules_named", schedules.c.name, where=PRESENT)
_partial(
    "schedules_paused",
    schedules.c.key,
    where=f"{PRESENT} AND enabled = 0",
    first=(schedules.c.deleted_at, schedules.c.enabled),
)

#: Where each schedule stands. Its row is also the lock of the schedule and of the schedule's own
#: concurrency key.
cursors = _table(
    "cursors",
    Column("schedule", BigInteger, primary_key=True, autoincrement=False),
    #: Changes with every edit, so that a node knows whether its copy of the schedule is current.
    Column("revision", BigInteger, nullable=False),
    #: Enabled and not deleted.
    Column("live", FLAG, nullable=False),
    Column("next_slot", MOMENT),
    Column("next_run_at", MOMENT),
    Column("last_slot", MOMENT),
    Column("last_enqueued_at", MOMENT),
    Column("fired_count", BigInteger, nullable=False),
    Column("purged_until", MOMENT),
)
_partial(
    "cursors_due", cursors.c.next_run_at, cursors.c.schedule, where=DUE, first=(cursors.c.live,)
)

#: The last run of each schedule. Success after success changes no index.
schedule_stats = _table(
    "schedule_stats",
    Column("schedule", BigInteger, primary_key=True, autoincrement=False),
    Column("last_run_at", MOMENT),
    Column("last_status", WORD),
    Column("last_error", TEXT, nullable=False),
    Column("last_success_at", MOMENT),
    postgresql_with={"fillfactor": 50},
)
_partial(
    "schedule_stats_unsuccessful",
    schedule_stats.c.schedule,
    where=UNSUCCESSFUL,
    first=(schedule_stats.c.last_status,),
)

#: What runs do and for whom (`RunDefinition`), once for equal ones. Rows never change.
definitions = _table(
    "definitions",
    _key(),
    #: Of all columns after it except `used_at`.
    Column("digest", WORD, nullable=False),
    #: The key of the schedule.
    Column("schedule", BigInteger),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("schedule_version", BigInteger, nullable=False),
    Column("namespace", IDENTITY, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("kind", WORD, nullable=False),
    Column("target", TEXT, nullable=False),
    Column("policy", TEXT, nullable=False),
    #: The capability that a node needs to execute it.
    Column("needs", NEEDS, nullable=False),
    #: When it was written or last used by a manual run; retention deletes unused ones.
    Column("used_at", MOMENT, nullable=False),
    #: W3C trace context of the request, where the process traces.
    Column("trace", WORD),
    #: Labels of the schedule as JSON; NULL: none.
    Column("labels", TEXT),
    #: The event that started the run (`Cause`).
    Column("cause", TEXT),
)
Index("definitions_by_schedule", definitions.c.schedule)

#: Every run. While a run waits it also has a row in `queue`, while it runs one in `claims`; these
#: contain its current state, and `status` here is `queued` until it ends.
runs = _table(
    "runs",
    Column("id", IDENTITY, primary_key=True),
    #: The key of the schedule.
    Column("schedule", BigInteger),
    Column("slot", MOMENT),
    Column("definition", BigInteger, nullable=False),
    #: Arguments of a task, where they are not part of the definition.
    Column("args", TEXT),
    #: The requirement of a sync run; its source is found by it.
    Column("source", NEEDS),
    Column("origin", WORD, nullable=False),
    Column("parent_id", IDENTITY),
    Column("step", TEXT),
    Column("retry_of", IDENTITY),
    Column("priority", BigInteger, nullable=False),
    Column("catch_up", FLAG, nullable=False),
    #: Empty: the own key of its schedule.
    Column("concurrency_key", KEY_TEXT),
    Column("concurrency_limit", BigInteger, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("planned_at", MOMENT, nullable=False),
    #: The scheduler pass that created it (`fire_batches`).
    Column("batch_id", BigInteger),
    Column("missed_count", BigInteger),
    Column("missed_until", MOMENT),
    # Written at the end of the run; the texts also when it is requeued or canceled.
    Column("available_at", MOMENT, nullable=False),
    Column("status", WORD, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    #: The node of the last attempt.
    Column("node", IDENTITY),
    Column("claimed_at", MOMENT),
    Column("started_at", MOMENT),
    Column("finished_at", MOMENT),
    #: Of the last attempt, by the clock of its node.
    Column("attempt_started_at", MOMENT),
    Column("attempt_finished_at", MOMENT),
    Column("result", TEXT),
    Column("error", TEXT),
    Column("reason", TEXT),
    #: NULL: none, or one that succeeded, which the columns of the run describe completely.
    Column("attempts", TEXT),
    #: Of a run that is not running; 1 or NULL.
    Column("cancel_requested", FLAG),
    #: The status, if it is neither active nor a success.
    Column("problem", WORD),
    # Room on the page for the new row version, so that the end of a run changes no index.
    postgresql_with={"fillfactor": 50},
)
# One run per slot, for ever. Runs without a slot are exempt, because NULLs are distinct.
_index(
    "runs_by_slot",
    *(runs.c.schedule, runs.c.slot),
    unique=True,
    postgresql_where=text("slot IS NOT NULL"),
)
_partial("runs_by_schedule", runs.c.schedule, runs.c.created_at, where="schedule IS NOT NULL")
_partial("runs_by_parent", runs.c.parent_id, runs.c.created_at, where="parent_id IS NOT NULL")
_partial("runs_by_source", runs.c.source, runs.c.created_at, where="source IS NOT NULL")
_partial("runs_problems", runs.c.problem, runs.c.created_at, where=PROBLEM)
Index("runs_created", runs.c.created_at, runs.c.id)
# BRIN needs only a few pages: runs are planned about when they are created.
_index("runs_planned", runs.c.planned_at, postgresql_using="brin").ddl_if(dialect=POSTGRES)
Index("runs_planned_at", runs.c.planned_at, runs.c.id).ddl_if(callable_=_not_on(POSTGRES))

#: Runs that wait: for their time, for a node, for a retry or, if blocked, for their concurrency
#: key.
queue = _table(
    "queue",
    Column("run_id", IDENTITY, primary_key=True),
    Column("rank", BigInteger, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("planned_at", MOMENT, nullable=False),
    Column("needs", NEEDS, nullable=False),
    Column("attempt", Integer, nullable=False),
    #: The fence of the last claim.
    Column("fence", BigInteger, nullable=False),
    Column("blocked", FLAG, nullable=False),
    #: The concurrency key: of a schedule's own the negative key of the schedule, else
    #: `concurrency_keys.key`.
    Column("concurrency", BigInteger),
    Column("concurrency_limit", BigInteger, nullable=False),
    #: The owner (`owner_number`), for turns within a rank; 0 in rows of programs of schema 1.
    Column("owner", BigInteger, nullable=False, server_default="0"),
)
# Ascending in rank on MariaDB, although the highest goes first: ranks are read one by one, and a
# descending column would keep it from jumping from rank to rank. `needs` is last, so that runs for
# other nodes are filtered within the index.
Index(
    "queue_claimable",
    *(queue.c.blocked, queue.c.rank, queue.c.available_at, queue.c.planned_at),
    *(queue.c.run_id, queue.c.needs),
).ddl_if(dialect=MARIADB)
_index(
    "queue_order",
    *(queue.c.rank.desc(), queue.c.available_at, queue.c.planned_at, queue.c.run_id),
    sqlite_where=text(CLAIMABLE),
    postgresql_where=text(CLAIMABLE),
).ddl_if(callable_=_not_on(MARIADB))
# The same runs by owner: a claim jumps from owner to owner and reads the head of each.
Index(
    "queue_turns",
    *(queue.c.blocked, queue.c.rank, queue.c.owner, queue.c.available_at, queue.c.planned_at),
    *(queue.c.run_id, queue.c.needs),
).ddl_if(dialect=MARIADB)
_index(
    "queue_turns",
    *(queue.c.rank.desc(), queue.c.owner, queue.c.available_at, queue.c.planned_at),
    queue.c.run_id,
    sqlite_where=text(CLAIMABLE),
    postgresql_where=text(CLAIMABLE),
).ddl_if(callable_=_not_on(MARIADB))
_partial(
    "queue_by_concurrency",
    *(queue.c.concurrency, queue.c.blocked, queue.c.rank.desc(), queue.c.available_at),
    *(queue.c.planned_at, queue.c.run_id),
    where="concurrency IS NOT NULL",
)

#: Runs that a node has: prefetched or running.
claims = _table(
    "claims",
    Column("run_id", IDENTITY, primary_key=True),
    Column("node", IDENTITY, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    #: Started mark of this fence.
    Column("started", FLAG, nullable=False),
    Column("cancel_requested", FLAG, nullable=False),
    #: Earlier than `available_at`: prefetched and not confirmed.
    Column("claimed_at", MOMENT, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("concurrency", BigInteger),
    # Room for the confirmation of a prefetched run.
    postgresql_with={"fillfactor": 60},
)
Index("claims_by_node", claims.c.node).ddl_if(callable_=_not_on(POSTGRES))
# On PostgreSQL an entry in that index costs too much when a schedule fires (ADR 66). There are no
# more claims than permits of all nodes, so what happens when a node ends or is lost reads them all;
# what every heartbeat reads has an index.
_index("claims_to_cancel", claims.c.node, postgresql_where=text(CANCELING)).ddl_if(dialect=POSTGRES)
_partial("claims_by_concurrency", claims.c.concurrency, where="concurrency IS NOT NULL")

#: A schedule as it is read: what people wrote, where it stands, and its last run.
schedule_rows = schedules.join(cursors, cursors.c.schedule == schedules.c.key).join(
    schedule_stats, schedule_stats.c.schedule == schedules.c.key
)
SCHEDULE_COLUMNS = (
    *schedules.c,
    *(cursors.c.next_slot, cursors.c.next_run_at, cursors.c.last_slot, cursors.c.last_enqueued_at),
    *(cursors.c.fired_count, cursors.c.purged_until),
    *(schedule_stats.c.last_run_at, schedule_stats.c.last_status, schedule_stats.c.last_error),
    schedule_stats.c.last_success_at,
)

#: A run as it is read: its row and its current state in the queue or in a claim.
run_rows = runs.outerjoin(queue, queue.c.run_id == runs.c.id).outerjoin(
    claims, claims.c.run_id == runs.c.id
)
RUN_COLUMNS = (
    *runs.c,
    *(
        each.label(f"queue_{each.name}")
        for each in (queue.c.available_at, queue.c.attempt, queue.c.fence, queue.c.blocked)
    ),
    *(
        each.label(f"claim_{each.name}")
        for each in (
            *(claims.c.node, claims.c.attempt, claims.c.fence, claims.c.started),
            *(claims.c.cancel_requested, claims.c.claimed_at, claims.c.available_at),
        )
    ),
    func.coalesce(queue.c.concurrency, claims.c.concurrency).label("concurrency"),
)

run_logs = _table(
    "run_logs",
    Column("run_id", IDENTITY, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
    Column("level", WORD, nullable=False),
    Column("message", TEXT, nullable=False),
    sqlite_with_rowid=False,
)

nodes = _table(
    "nodes",
    Column("id", IDENTITY, primary_key=True),
    Column("version", WORD, nullable=False),
    Column("roles", TEXT, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("started_at", MOMENT, nullable=False),
    Column("heartbeat_at", MOMENT, nullable=False),
    Column("lease_until", MOMENT, nullable=False),
    Column("clock_offset", Float(53), nullable=False),
    Column("offers", TEXT, nullable=False, server_default="[]"),
    Column("drain", SmallInteger, nullable=False, server_default="0"),
    #: Report sent with the heartbeat, as JSON; empty: none.
    Column("facts", TEXT, nullable=False, server_default=""),
)

#: Nodes that joined and left; shown in the dashboard only.
node_marks = _table(
    "node_marks",
    Column("at", MOMENT, primary_key=True, autoincrement=False),
    Column("node", IDENTITY, primary_key=True),
    Column("joined", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", WORD, nullable=False),
    sqlite_with_rowid=False,
)

audit = _table(
    "audit",
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
    Column("actor", TEXT, nullable=False),
    Column("interface", WORD, nullable=False),
    Column("verb", WORD, nullable=False),
    Column("object_kind", WORD, nullable=False),
    Column("object_id", IDENTITY, nullable=False),
    Column("owner", OWNER, nullable=False),
    Column("changes", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("address", TEXT, nullable=False),
    Column("allowed", FLAG, nullable=False),
    Column("previous_hash", WORD, nullable=False),
    Column("hash", WORD, nullable=False),
)

#: One row: the end of the audit chain. It is locked by every append, as the last lock of its
#: transaction, so that no two entries follow the same one.
audit_head = _table(
    "audit_head",
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", WORD, nullable=False),
)
Index("audit_by_object", audit.c.object_id, audit.c.number)
Index("audit_by_owner", audit.c.owner, audit.c.number)

api_keys = _table(
    "api_keys",
    Column("id", IDENTITY, primary_key=True),
    Column("secret_hash", IDENTITY, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("role", WORD, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("created_by", TEXT, nullable=False),
    Column("expires_at", MOMENT),
    Column("last_used_at", MOMENT),
    Column("revoked_at", MOMENT),
    Column("scopes", TEXT, nullable=False, server_default="[]"),
)

requests = _table(
    "requests",
    Column("scope", IDENTITY, primary_key=True),
    Column("request_key", IDENTITY, primary_key=True),
    Column("fingerprint", TEXT, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", TEXT, nullable=False),
    Column("headers", TEXT, nullable=False),
    Column("expires_at", MOMENT, nullable=False),
)
Index("requests_expiring", requests.c.expires_at)

#: Rows that exist to be locked: one for each concurrency key that is not a schedule's own, and one
#: for each owner whose quota is counted. Retention deletes idle ones.
concurrency_keys = _table(
    "concurrency_keys",
    _key(),
    Column("name", KEY_TEXT, nullable=False),
)

#: Checkpoints: state that targets keep between runs.
kept_states = _table(
    "kept_states",
    #: Usually a concurrency key.
    Column("name", KEY_TEXT, primary_key=True),
    Column("value", TEXT, nullable=False),
    Column("changed_at", MOMENT, nullable=False),
    Column("run_id", IDENTITY, nullable=False),
)

#: Facts about the store: `epoch`, `min_revision`, and when each `history` was first seen.
store_facts = _table(
    "store_facts",
    Column("name", WORD, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

#: One row for each scheduler pass that claimed due schedules; runs refer to it.
fire_batches = _table(
    "fire_batches",
    #: Time-ordered: `claimed_at` and a random part.
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("node_id", IDENTITY, nullable=False),
    Column("claimed_at", MOMENT, nullable=False),
    Column("enqueued_at", MOMENT, nullable=False),
    Column("duration_ms", Float(53), nullable=False),
)

#: Schedules that a pass claimed and could not plan.
fire_failures = _table(
    "fire_failures",
    Column("batch_id", BigInteger, primary_key=True, autoincrement=False),
    Column("schedule_id", IDENTITY, primary_key=True),
    Column("error", TEXT, nullable=False),
)

#: Changes through the compatibility views that are not in the audit log yet.
sql_changes = _table(
    "sql_changes",
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("actor", TEXT, nullable=False),
    Column("schedule_id", IDENTITY, nullable=False),
    Column("changes", TEXT, nullable=False),
)

# Notifications and token buckets.

PENDING = "state = 'pending'"
_FINISHED = text("finished_at IS NOT NULL")

#: The outbox: one row for each run and recipient.
deliveries = _table(
    "deliveries",
    Column("id", IDENTITY, primary_key=True),
    Column("run_id", IDENTITY, nullable=False),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("channel", WORD, nullable=False),
    Column("recipient", TEXT, nullable=False),
    Column("occasion", WORD, nullable=False),
    Column("state", WORD, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("progress", Integer, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("finished_at", MOMENT),
    Column("error", TEXT, nullable=False),
    Column("code", WORD, nullable=False),
    Column("receipt", TEXT, nullable=False),
)
# Finished deliveries are not in it, so the cost depends on the number of pending ones.
_index(
    "deliveries_pending",
    *(deliveries.c.available_at, deliveries.c.id),
    sqlite_where=text(PENDING),
    postgresql_where=text(PENDING),
).ddl_if(callable_=_not_on(MARIADB))
Index("deliveries_pending", deliveries.c.state, deliveries.c.available_at, deliveries.c.id).ddl_if(
    dialect=MARIADB
)
_index(
    "deliveries_ended",
    deliveries.c.finished_at,
    deliveries.c.id,
    sqlite_where=_FINISHED,
    postgresql_where=_FINISHED,
)
Index("deliveries_by_run", deliveries.c.run_id)
Index(
    "deliveries_by_owner",
    deliveries.c.owner_type,
    deliveries.c.owner_id,
    deliveries.c.created_at,
    deliveries.c.id,
)
# Covers counts by state.
Index("deliveries_by_state", deliveries.c.state, deliveries.c.created_at, deliveries.c.id)
Index("deliveries_created", deliveries.c.created_at, deliveries.c.id)

inbox = _table(
    "inbox",
    Column("id", IDENTITY, primary_key=True),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("run_id", IDENTITY),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("title", TEXT, nullable=False),
    Column("text", TEXT, nullable=False),
    Column("status", WORD, nullable=False),
    Column("artifacts", TEXT, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("read_at", MOMENT),
    Column("starred", FLAG, nullable=False),
    Column("archived_at", MOMENT),
    Column("snoozed_until", MOMENT),
)
Index("inbox_by_owner", inbox.c.owner_type, inbox.c.owner_id, inbox.c.created_at, inbox.c.id)
Index("inbox_created", inbox.c.created_at, inbox.c.id)
Index("inbox_by_run", inbox.c.run_id)

#: Token buckets. On PostgreSQL the table is unlogged: taking a token must not wait for the disk,
#: and no bucket has to survive a crash.
buckets = _table(
    "buckets",
    Column("name", IDENTITY, primary_key=True),
    Column("tokens", Float(53), nullable=False),
    #: When the bucket contained that many tokens.
    Column("at", MOMENT, nullable=False),
    #: How many tokens the last request got.
    Column("granted", BigInteger, nullable=False),
    #: When the bucket is certainly full, so that its row may be deleted.
    Column("full_at", MOMENT, nullable=False),
)


# Rollups, which time windows are answered from; see `rollups`.

#: The owner of the rollups over all owners.
ALL = ""
#: The fact that records up to which `created_at` runs are in the rollups or in `open_runs`.
COUNTED_UNTIL = "counted_until"

#: Ended runs by the quarter of an hour for which they were planned, once for their owner and once
#: for `ALL`.
run_tallies = _table(
    "run_tallies",
    Column("owner_type", SHORT_WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("namespace", IDENTITY, primary_key=True),
    Column("kind", SHORT_WORD, primary_key=True),
    Column("origin", SHORT_WORD, primary_key=True),
    Column("status", SHORT_WORD, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# To delete rows whose count became zero when runs were deleted.
Index("run_tallies_by_quarter", run_tallies.c.quarter)

#: The same runs, if they have a lag, by its bracket.
run_lags = _table(
    "run_lags",
    Column("owner_type", SHORT_WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("run_lags_by_quarter", run_lags.c.quarter)

#: Lags of all owners, by the node that started the run.
node_lags = _table(
    "node_lags",
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("node", IDENTITY, primary_key=True),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

ROLLUPS = (run_tallies, run_lags, node_lags)

#: Runs that had not ended when the rollups reached their `created_at`, and are not counted yet.
open_runs = _table(
    "open_runs", Column("run_id", IDENTITY, primary_key=True), sqlite_with_rowid=False
)
