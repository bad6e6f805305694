"""The tables of Chimes on a PostgreSQL server, filled in bulk.

One schedule of each kind and one run are written through the store; the server copies their rows
with other keys, ids, names, arguments and cron expressions. The benchmark therefore depends on few
columns, and a million rows take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5

from chimes.clock import SystemClock
from chimes.config import Settings, store_location
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.node import Node
from chimes.model.planning import plan
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunDefinition
from chimes.model.schedule import Schedule
from chimes.model.target import TaskTarget
from chimes.runtime.composition import build_store
from chimes.store.port import ClaimRequest, Store
from chimes.store.sql.rows.values import number_of
from chimes.store.sql.tables import DUE
from chimes.triggers import Cron, Every, Trigger
from suite.postgres import Postgres, PsqlSession
from suite.report import Faults

#: Placeholder in the template, replaced by the number of each copy.
NUMBER = 987654321
EXPRESSION = "59 23 28 12 *"
TASK = "noop"
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
#: The grace is longer than any round, so that no slot is missed.
_POLICY = Policy(misfire_grace=timedelta(hours=6), timeout=timedelta(seconds=60))

#: What exists once for each schedule, and for each run.
_OF_SCHEDULE = ("schedules", "definitions", "cursors", "schedule_stats")
_OF_RUN = ("runs", "queue", "claims", "run_logs")
#: Distinct for every number below 60 × 24 × 28 × 12.
_CRON_SQL = "format('%s %s %s %s *', n % 60, n / 60 % 24, n / 1440 % 28 + 1, n / 40320 % 12 + 1)"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str


class ChimesTables:
    """The schema of Chimes in a separate database.

    Keys are hashes that the server cannot compute: the table `bench_keys` has them by number. Nodes
    remember schedules and definitions by their keys, so a key never gets another content: schedules
    that are filled in after `empty` have new ids."""

    def __init__(self, postgres: Postgres, database: str) -> None:
        self._postgres = postgres
        self._database = database
        self.url = postgres.fresh_database(database)
        #: Number of schedules that `empty` has deleted.
        self._gone = 0
        #: Number of schedules in the tables.
        self._filled = 0
        self._columns: dict[str, list[Column]] = {}
        asyncio.run(self._prepare())

    def sql(self, text: str) -> str:
        return self._postgres.sql(text, self._database)

    def psql_session(self) -> PsqlSession:
        return self._postgres.psql_session(self._database)

    def environment(self) -> dict[str, str]:
        return {"PGDATABASE": self._database}

    # --- filling ------------------------------------------------------------------------------
    def fill(self, kind: str, count: int, *, due: datetime, first: int = 0) -> None:
        """Schedules numbered from `first`, all due at one moment; kind is `every` or `cron`.
        Each has a definition of its own, as an edit writes it."""
        self._add_keys(first, count)
        moment = str(micros(due))
        target, name = f"replace(t.target, '{NUMBER}', n::text)", "'bench ' || n"
        values = {
            "schedules": {
                "key": "k.key",
                "id": "k.id",
                "name": name,
                "target": target,
                "trigger": f"replace(t.trigger, '{EXPRESSION}', {_CRON_SQL})",
                "definition": "k.definition",
            },
            "definitions": {
                "key": "k.definition",
                "digest": "k.digest",
                "schedule": "k.key",
                "schedule_id": "k.id",
                "schedule_name": name,
                "target": target,
            },
            "cursors": {"schedule": "k.key", "next_slot": moment, "next_run_at": moment},
            "schedule_stats": {"schedule": "k.key"},
        }
        for table, chosen in values.items():
            names, expressions = self._chosen(table, chosen)
            self.sql(
                f"INSERT INTO {table} ({names}) SELECT {expressions}"
                f" FROM {_template(table, kind)} AS t, bench_keys AS k WHERE {_among(first, count)}"
                " ORDER BY n"
            )
        self._filled = max(self._filled, first + count)

    def make_due(self, count: int, *, first: int = 0) -> None:
        """Makes schedules that exist due now, each at its slot: the clock of the transaction is the
        same for both columns and all rows."""
        now = "(extract(epoch FROM now()) * 1000000)::bigint"
        self.sql(
            f"UPDATE cursors SET next_slot = {now}, next_run_at = {now}"
            f" FROM bench_keys AS k WHERE schedule = k.key AND {_among(first, count)}"
        )

    def end_runs(self) -> None:
        """Ends the claimed runs as succeeded."""
        self.sql(
            "BEGIN; DELETE FROM claims; UPDATE runs SET status = 'succeeded',"
            " finished_at = started_at WHERE status = 'queued'; COMMIT"
        )

    def queue(self, count: int, *, available: datetime, first: int = 0) -> None:
        """No-op runs without a schedule; they share a definition."""
        moment = str(micros(available))
        run_id = "'0193b2c4-1111-7000-8000-' || lpad(n::text, 12, '0')"
        times = {"planned_at": moment, "available_at": moment}
        runs = times | {
            "id": run_id,
            "args": f"replace(t.args, '{NUMBER}', n::text)",
            # Increasing, as if enqueued one after another.
            "created_at": f"{moment} - {count} + n - {first}",
        }
        # A run is visible with its place in the queue.
        self.sql(
            f"BEGIN; {self._copy_sql('runs', runs, 'run', first, count)};"
            f" {self._copy_sql('queue', times | {'run_id': run_id}, 'run', first, count)}; COMMIT"
        )

    def empty(self) -> None:
        """Deletes schedules and runs. The definition of the queued runs stays."""
        self.empty_runs()
        self.sql("TRUNCATE schedules, cursors, schedule_stats, bench_keys")
        self.sql("DELETE FROM definitions WHERE schedule IS NOT NULL")
        self._gone += self._filled
        self._filled = 0

    def empty_runs(self) -> None:
        self.sql(f"TRUNCATE {', '.join(_OF_RUN)}, fire_batches CASCADE")

    def settle(self) -> None:
        """Does what autovacuum would have done on tables that grew to this size."""
        for table in (*_OF_SCHEDULE, *_OF_RUN):
            self.sql(f"VACUUM ANALYZE {table}")
        self.sql("CHECKPOINT")

    def analyze(self) -> None:
        self.sql(f"ANALYZE {', '.join((*_OF_SCHEDULE, *_OF_RUN))}")

    # --- the same work in one statement -------------------------------------------------------
    def raw_statement(self, limit: int) -> str:
        """One statement with the writes of `fire_due` and none of its decisions: moves due cursors
        and inserts a run and a claim for each. A run is a copy of one that Chimes wrote, with other
        keys."""
        run_id = "md5(d.schedule || ' ' || d.next_slot)::uuid"
        moments = dict.fromkeys(("planned_at", "available_at", "created_at"), "d.next_run_at")
        runs = moments | {
            "id": run_id,
            "schedule": "d.schedule",
            "slot": "d.next_slot",
            "definition": "d.schedule",
        }
        claims = {
            "run_id": run_id,
            "claimed_at": "d.next_run_at",
            "available_at": "d.next_run_at",
            "concurrency": "-d.schedule",
        }
        run_names, run_values = self._chosen("runs", runs)
        claim_names, claim_values = self._chosen("claims", claims)
        hour = 3_600_000_000
        return (
            "WITH due AS (SELECT schedule, next_slot, next_run_at FROM cursors"
            f" WHERE {DUE} AND next_run_at"
            " <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            f" ORDER BY next_run_at, schedule LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED),"
            f" made AS (INSERT INTO runs ({run_names}) SELECT {run_values}"
            " FROM due AS d, bench_claimed_runs AS t ON CONFLICT DO NOTHING),"
            f" held AS (INSERT INTO claims ({claim_names}) SELECT {claim_values}"
            " FROM due AS d, bench_claimed_claims AS t),"
            f" moved AS (UPDATE cursors AS s SET next_slot = s.next_slot + {hour},"
            f" next_run_at = s.next_run_at + {hour}, last_slot = s.next_slot,"
            " last_enqueued_at = s.next_slot, fired_count = s.fired_count + 1"
            " FROM due WHERE s.schedule = due.schedule RETURNING 1) SELECT count(*) FROM moved;"
        )

    # --- counting -----------------------------------------------------------------------------
    def faults(self, count: int, *, first: int = 0, slots: int = 1) -> Faults:
        """Duplicates and missed slots of `count` schedules that were due `slots` times each."""
        every, distinct = self.sql(
            "SELECT count(*), count(DISTINCT (schedule, slot)) FROM runs, bench_keys AS k"
            f" WHERE schedule = k.key AND {_among(first, count)}"
            " AND status NOT IN ('missed', 'skipped')"
        ).split("|")
        extra = max(0, int(distinct) - count * slots)
        return Faults(
            duplicates=int(every) - int(distinct) + extra,
            missed=max(0, count * slots - int(distinct)),
        )

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT count(*) FROM {table}"))

    def dead_rows(self, tables: Sequence[str]) -> dict[str, int]:
        """Row versions that vacuum has not removed yet, by table."""
        names = ", ".join(f"'{table}'" for table in tables)
        found = self.sql(
            f"SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE relname IN ({names})"
        )
        return {name: int(dead) for name, dead in (row.split("|") for row in found.splitlines())}

    def now(self) -> datetime:
        epoch = self.sql("SELECT extract(epoch FROM clock_timestamp())")
        return datetime.fromtimestamp(float(epoch), UTC)

    # --- internals ----------------------------------------------------------------------------
    def _add_keys(self, first: int, count: int) -> None:
        lines = []
        for number in range(first, first + count):
            schedule_id = f"0193b2c4-0000-7000-8000-{self._gone + number:012d}"
            digest = md5(schedule_id.encode(), usedforsecurity=False).hexdigest()
            keys = f"{number_of(schedule_id)}\t{digest}\t{number_of(digest)}"
            lines.append(f"{number}\t{schedule_id}\t{keys}\n")
        self._postgres.copy("bench_keys", "".join(lines), self._database)
        self.sql("ANALYZE bench_keys")

    async def _prepare(self) -> None:
        store = open_store(self.url)
        await store.open()
        try:
            await store.load(
                [
                    _schedule("every"),
                    _schedule("cron"),
                    queued_run(RunId("template-run"), NUMBER, _LONG_AGO),
                ]
            )
            await _claim_one(store)
        finally:
            await store.close()
        self.sql(
            "CREATE TABLE bench_keys"
            " (n bigint PRIMARY KEY, id text, key bigint, digest text, definition bigint)"
        )
        self._columns = {each: self._read_columns(each) for each in (*_OF_SCHEDULE, *_OF_RUN)}
        for kind in ("every", "cron"):
            key = f"(SELECT key FROM schedules WHERE id = 'template-{kind}')"
            self._save_template("schedules", kind, f"key = {key}")
            for table in _OF_SCHEDULE[1:]:
                self._save_template(table, kind, f"schedule = {key}")
        self._save_template("runs", "run", "id = 'template-run'")
        self._save_template("queue", "run", "run_id = 'template-run'")
        self._save_template("runs", "claimed", "schedule IS NOT NULL")
        self._save_template("claims", "claimed", "true")
        self.sql("DELETE FROM nodes")
        self.empty()

    def _save_template(self, table: str, kind: str, condition: str) -> None:
        name = _template(table, kind)
        self.sql(f"CREATE TABLE {name} AS SELECT * FROM {table} WHERE {condition}")
        if self.sql(f"SELECT count(*) FROM {name}") != "1":
            raise RuntimeError(f"the store did not write the template of {name}")

    def _read_columns(self, table: str) -> list[Column]:
        found = self.sql(
            "SELECT column_name, udt_name FROM information_schema.columns"
            f" WHERE table_name = '{table}' AND table_schema = current_schema()"
            " AND is_generated = 'NEVER' ORDER BY ordinal_position"
        )
        return [Column(*line.split("|")) for line in found.splitlines()]

    def _chosen(self, table: str, values: Mapping[str, str]) -> tuple[str, str]:
        columns = self._columns[table]
        unknown = values.keys() - {each.name for each in columns}
        if unknown:
            raise RuntimeError(f"{table} has no columns {sorted(unknown)}")
        names = ", ".join(f'"{each.name}"' for each in columns)
        chosen = ", ".join(
            f"({values[each.name]})::{each.type}" if each.name in values else f't."{each.name}"'
            for each in columns
        )
        return names, chosen

    def _copy_sql(
        self, table: str, values: Mapping[str, str], kind: str, first: int, count: int
    ) -> str:
        names, chosen = self._chosen(table, values)
        return (
            f"INSERT INTO {table} ({names}) SELECT {chosen} FROM {_template(table, kind)} AS t,"
            f" generate_series({first}, {first + count - 1}) AS n"
        )


def _among(first: int, count: int) -> str:
    return f"k.n >= {first} AND k.n < {first + count}"


def _template(table: str, kind: str) -> str:
    return f"bench_{kind}_{table}"


def open_store(url: str) -> Store:
    return build_store(store_location(Settings(store=url)), SystemClock())


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _schedule(kind: str) -> Schedule:
    trigger: Trigger = (
        Every("1h", anchor=_LONG_AGO)
        if kind == "every"
        else Cron(EXPRESSION, timezone="Europe/Berlin")
    )
    return Schedule(
        id=ScheduleId(f"template-{kind}"),
        name=f"template {kind}",
        trigger=trigger,
        target=TaskTarget(name=TASK, args={"number": NUMBER}),
        policy=_POLICY,
        created_at=_LONG_AGO,
        updated_at=_LONG_AGO,
    )


def queued_run(run_id: RunId, number: int, now: datetime) -> Run:
    return Run(
        id=run_id,
        definition=RunDefinition(
            schedule_name=TASK,
            target=TaskTarget(name=TASK, args={"number": number}),
            policy=_POLICY,
        ),
        origin=Origin.MANUAL,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


async def _claim_one(store: Store) -> None:
    """Fires one schedule, so that a run and a claim of it exist."""
    now = await store.now()
    fired = replace(
        _schedule("every"), id=ScheduleId("template-fired"), next_slot=now, next_run_at=now
    )
    await store.add_schedule(fired)
    node_id = NodeId("bench-raw")
    capabilities = frozenset({f"task:{TASK}"})
    node = Node(
        id=node_id,
        version="0",
        roles=("worker",),
        capacity=1,
        started_at=now,
        heartbeat_at=now,
        lease_until=now,
        capabilities=tuple(capabilities),
    )
    await store.join(node, timedelta(minutes=1))
    request = ClaimRequest(node_id=node_id, capabilities=capabilities, free=1)
    await store.fire_due(plan, limit=1, request=request)
