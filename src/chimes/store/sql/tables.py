"""Schema. What is filtered, sorted or written often has a column; the rest is JSON text.

Times are integer microseconds since 1970 in UTC, so that they compare as integers without loss.
Flags are small integers and JSON is text that `rows` encodes, so that both are the same on every
database. Text compares by code point (binary collation). `rows` unpacks by position: the order of
columns here is the order there.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)


def _word(length: int) -> String:
    """Compared by code point on every database; PostgreSQL needs an explicit collation."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


IDENTITY = _word(255)
#: `schedule:` and an identity.
CONCURRENCY_KEY = _word(300)
#: `task:`, `flow:` or `sync:` and a name.
NEEDS = _word(300)
#: An owner's type and id.
OWNER = String(255).with_variant(String(330, collation="C"), "postgresql")
WORD = _word(64)
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
MOMENT = BigInteger()
FLAG = SmallInteger()

DUE = "enabled = 1 AND deleted_at IS NULL AND next_run_at IS NOT NULL"
PRESENT = "deleted_at IS NULL"
#: Schedules that may need attention. Healthy schedules are in no index with this condition.
NEEDS_ATTENTION = f"{PRESENT} AND (enabled = 0 OR last_status <> 'succeeded')"
ACTIVE = "status IN ('queued', 'running')"
CLAIMABLE = "status = 'queued' AND blocked = 0"
BLOCKED = "status = 'queued' AND blocked = 1"
WAITING = "status = 'queued'"
HAS_HOLDER = "holder IS NOT NULL"
ENDED = "finished_at IS NOT NULL"
CHILD = "parent_id IS NOT NULL"
PLANNED = "slot IS NOT NULL"
SCHEDULED = "schedule_id IS NOT NULL"
UNUSUAL = "status NOT IN ('queued', 'running', 'succeeded')"
SYNC = "kind = 'sync'"

metadata = MetaData()

schedules = Table(
    "schedules",
    metadata,
    Column("id", IDENTITY, primary_key=True),
    Column("namespace", IDENTITY, nullable=False),
    Column("name", TEXT, nullable=False),
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
    Column("door_data", TEXT, nullable=False),
    Column("next_slot", MOMENT),
    Column("next_run_at", MOMENT),
    Column("last_slot", MOMENT),
    Column("last_enqueued_at", MOMENT),
    Column("last_run_at", MOMENT),
    Column("last_status", WORD),
    Column("last_error", TEXT, nullable=False),
    Column("last_success_at", MOMENT),
    Column("fired_count", BigInteger, nullable=False),
    Column("purged_until", MOMENT),
    Column("version", BigInteger, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("created_by", TEXT, nullable=False),
    Column("updated_at", MOMENT, nullable=False),
    Column("updated_by", TEXT, nullable=False),
    Column("deleted_at", MOMENT),
)


def _partial(name: str, *columns: ColumnElement[Any], where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


# PostgreSQL writes every index of a row that changes, so it has fewer of them, and without the id
# at the end: it sorts the few rows with equal times itself.
_ON_FILES, _ON_POSTGRES = "sqlite", "postgresql"

_partial("schedules_due", schedules.c.next_run_at, schedules.c.id, where=DUE)
_partial("schedules_created", schedules.c.created_at, schedules.c.id, where=PRESENT).ddl_if(
    dialect=_ON_FILES
)
_partial("schedules_created_at", schedules.c.created_at, where=PRESENT).ddl_if(dialect=_ON_POSTGRES)
# Covers counts by owner and by `enabled`.
Index(
    "schedules_owned",
    *(schedules.c.owner_type, schedules.c.owner_id, schedules.c.deleted_at, schedules.c.enabled),
)
_partial("schedules_troubled", schedules.c.id, where=NEEDS_ATTENTION)
_partial("schedules_named", schedules.c.name, schedules.c.id, where=PRESENT)

runs = Table(
    "runs",
    metadata,
    Column("id", IDENTITY, primary_key=True),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("schedule_version", BigInteger, nullable=False),
    Column("namespace", IDENTITY, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("slot", MOMENT),
    Column("origin", WORD, nullable=False),
    Column("parent_id", IDENTITY),
    Column("step", TEXT, nullable=False),
    Column("retry_of", IDENTITY),
    Column("kind", WORD, nullable=False),
    Column("target", TEXT, nullable=False),
    Column("policy", TEXT, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("catch_up", FLAG, nullable=False),
    Column("rank", BigInteger, nullable=False),
    Column("concurrency_key", CONCURRENCY_KEY),
    Column("concurrency_limit", BigInteger, nullable=False),
    Column("blocked", FLAG, nullable=False),
    Column("status", WORD, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("holder", IDENTITY),
    Column("started", FLAG, nullable=False),
    Column("cancel_requested", FLAG, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("planned_at", MOMENT, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("claimed_at", MOMENT),
    Column("started_at", MOMENT),
    Column("finished_at", MOMENT),
    Column("result", TEXT),
    Column("error", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("missed_count", BigInteger, nullable=False),
    Column("missed_until", MOMENT),
    Column("attempts", TEXT, nullable=False),
    #: The capability that a node needs to execute it.
    Column("needs", NEEDS, nullable=False, server_default="http"),
    #: The scheduler pass that created it (`fire_batches`).
    Column("batch_id", BigInteger),
    #: One run per slot, for ever. Runs without a slot are exempt, because NULLs are distinct.
    UniqueConstraint("schedule_id", "slot", name="runs_one_per_slot").ddl_if(dialect=_ON_FILES),
)

_QUEUE_ORDER = (runs.c.rank.desc(), runs.c.available_at, runs.c.planned_at, runs.c.id)
_partial("runs_claimable", *_QUEUE_ORDER, where=CLAIMABLE)
_partial("runs_blocked", runs.c.concurrency_key, *_QUEUE_ORDER, where=BLOCKED)
_partial("runs_held", runs.c.holder, where=HAS_HOLDER)
_partial("runs_by_parent", runs.c.parent_id, runs.c.created_at, runs.c.id, where=CHILD)
# The tasks of a source in the order of time; partial, so that other runs do not pay for it.
_partial("runs_by_source", runs.c.needs, runs.c.created_at, runs.c.id, where=SYNC)

for _index in (
    _partial(
        "runs_active_by_key",
        *(runs.c.concurrency_key, runs.c.created_at, runs.c.id, runs.c.blocked),
        where=ACTIVE,
    ),
    _partial("runs_waiting_by_schedule", runs.c.schedule_id, where=WAITING),
    _partial("runs_ended", runs.c.finished_at, runs.c.id, where=ENDED),
    Index("runs_by_schedule", runs.c.schedule_id, runs.c.created_at, runs.c.id),
    Index("runs_by_status", runs.c.status, runs.c.created_at, runs.c.id),
    Index("runs_created", runs.c.created_at, runs.c.id),
    Index("runs_planned", runs.c.planned_at, runs.c.id),
):
    _index.ddl_if(dialect=_ON_FILES)

for _index in (
    _partial("runs_active", runs.c.concurrency_key, runs.c.blocked, where=ACTIVE),
    _partial("runs_ended_at", runs.c.finished_at, where=ENDED),
    _partial("runs_unusual", runs.c.status, runs.c.created_at, where=UNUSUAL),
    # One run per slot. Runs without a schedule are in neither index: their claim and their
    # completion would each write an entry.
    Index(
        "runs_by_slot",
        *(runs.c.schedule_id, runs.c.slot),
        unique=True,
        postgresql_where=text(PLANNED),
    ),
    _partial("runs_scheduled", runs.c.schedule_id, runs.c.created_at, where=SCHEDULED),
    Index("runs_created_at", runs.c.created_at),
    # BRIN needs only a few pages: runs are planned about when they are created.
    Index("runs_planned_at", runs.c.planned_at, postgresql_using="brin"),
):
    _index.ddl_if(dialect=_ON_POSTGRES)

run_logs = Table(
    "run_logs",
    metadata,
    Column("run_id", IDENTITY, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
    Column("level", WORD, nullable=False),
    Column("message", TEXT, nullable=False),
    sqlite_with_rowid=False,
)

nodes = Table(
    "nodes",
    metadata,
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
node_marks = Table(
    "node_marks",
    metadata,
    Column("at", MOMENT, primary_key=True, autoincrement=False),
    Column("node", IDENTITY, primary_key=True),
    Column("joined", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", WORD, nullable=False),
    sqlite_with_rowid=False,
)

audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
    Column("actor", TEXT, nullable=False),
    # The column keeps its first name: a new one would need a schema revision.
    Column("door", WORD, nullable=False, key="interface"),
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
audit_head = Table(
    "audit_head",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", WORD, nullable=False),
)
Index("audit_by_object", audit.c.object_id, audit.c.number)
Index("audit_by_owner", audit.c.owner, audit.c.number)

api_keys = Table(
    "api_keys",
    metadata,
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

requests = Table(
    "requests",
    metadata,
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
#: for each owner whose quota is counted.
concurrency_keys = Table(
    "concurrency_keys",
    metadata,
    Column("key", CONCURRENCY_KEY, primary_key=True),
)

#: Checkpoints: state that targets keep between runs.
kept_states = Table(
    "kept_states",
    metadata,
    #: Usually a concurrency key.
    Column("name", CONCURRENCY_KEY, primary_key=True),
    Column("value", TEXT, nullable=False),
    Column("changed_at", MOMENT, nullable=False),
    Column("run_id", IDENTITY, nullable=False),
)

#: Facts about the store: `epoch`, `min_revision`, and when each `history` was first seen.
store_facts = Table(
    "store_facts",
    metadata,
    Column("name", WORD, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

#: One row for each scheduler pass that claimed due schedules; runs refer to it.
fire_batches = Table(
    "fire_batches",
    metadata,
    #: Time-ordered: `claimed_at` and a random part.
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("node_id", IDENTITY, nullable=False),
    Column("claimed_at", MOMENT, nullable=False),
    Column("enqueued_at", MOMENT, nullable=False),
    Column("duration_ms", Float(53), nullable=False),
)

#: Schedules that a pass claimed and could not plan.
fire_failures = Table(
    "fire_failures",
    metadata,
    Column("batch_id", BigInteger, primary_key=True, autoincrement=False),
    Column("schedule_id", IDENTITY, primary_key=True),
    Column("error", TEXT, nullable=False),
)

#: Changes through the compatibility views that are not in the audit log yet.
sql_changes = Table(
    "sql_changes",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("actor", TEXT, nullable=False),
    Column("schedule_id", IDENTITY, nullable=False),
    Column("changes", TEXT, nullable=False),
)


# Notifications and token buckets.

__all__ = ["PENDING", "buckets", "deliveries", "inbox", "metadata"]

PENDING = "state = 'pending'"
_FINISHED = text("finished_at IS NOT NULL")

#: The outbox: one row for each run and recipient.
deliveries = Table(
    "deliveries",
    metadata,
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
Index(
    "deliveries_pending",
    deliveries.c.available_at,
    deliveries.c.id,
    sqlite_where=text(PENDING),
    postgresql_where=text(PENDING),
)
Index(
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

inbox = Table(
    "inbox",
    metadata,
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
buckets = Table(
    "buckets",
    metadata,
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
#: The fact that records up to which `finished_at` ended runs are in the rollups.
ROLLED_UNTIL = "rolled_until"

#: Ended runs by the quarter of an hour for which they were planned, once for their owner and once
#: for `ALL`.
run_tallies = Table(
    "run_tallies",
    metadata,
    Column("owner_type", WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("namespace", IDENTITY, primary_key=True),
    Column("kind", WORD, primary_key=True),
    Column("origin", WORD, primary_key=True),
    Column("status", WORD, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# To delete rows whose count became zero when runs were deleted.
Index("run_tallies_by_quarter", run_tallies.c.quarter)

#: The same runs, if they have a lag, by its bracket.
run_lags = Table(
    "run_lags",
    metadata,
    Column("owner_type", WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("run_lags_by_quarter", run_lags.c.quarter)

#: Lags of all owners, by the node that started the run.
node_lags = Table(
    "node_lags",
    metadata,
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("node", IDENTITY, primary_key=True),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

ROLLUPS = (run_tallies, run_lags, node_lags)
