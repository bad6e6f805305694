"""The tables of Chimes on a PostgreSQL server, filled in bulk.

One schedule (or run) is written through the store; the server copies that row with other ids,
names, arguments and cron expressions. The benchmark therefore depends on few columns, and a million
rows take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from chimes.clock import SystemClock
from chimes.config import Settings, store_location
from chimes.model.ids import RunId, ScheduleId
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run
from chimes.model.schedule import Schedule
from chimes.model.target import TaskTarget
from chimes.runtime.composition import build_store
from chimes.store.port import Store
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

#: Distinct for every number below 60 × 24 × 28 × 12.
_CRON_SQL = "format('%s %s %s %s *', n % 60, n / 60 % 24, n / 1440 % 28 + 1, n / 40320 % 12 + 1)"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str


class ChimesTables:
    """The schema of Chimes in a separate database."""

    def __init__(self, postgres: Postgres, database: str) -> None:
        self._postgres = postgres
        self._database = database
        self.url = postgres.fresh_database(database)
        asyncio.run(self._prepare())
        self._schedule_columns = self._columns("schedules")
        self._run_columns = self._columns("runs")

    def sql(self, text: str) -> str:
        return self._postgres.sql(text, self._database)

    def psql_session(self) -> PsqlSession:
        return self._postgres.psql_session(self._database)

    def environment(self) -> dict[str, str]:
        return {"PGDATABASE": self._database}

    # --- filling ------------------------------------------------------------------------------
    def fill(self, kind: str, count: int, *, due: datetime, first: int = 0) -> None:
        """Schedules numbered from `first`, all due at one moment; kind is `every` or `cron`."""
        moment = micros(due)
        values = {
            "id": schedule_id_sql(),
            "name": "'bench ' || n",
            "target": f"replace(t.target, '{NUMBER}', n::text)",
            "trigger": f"replace(t.trigger, '{EXPRESSION}', {_CRON_SQL})",
            "next_slot": str(moment),
            "next_run_at": str(moment),
        }
        template = f"bench_template_{kind}"
        self._copy("schedules", self._schedule_columns, values, template, first, count)

    def queue(self, count: int, *, available: datetime, first: int = 0) -> None:
        """No-op runs without a schedule."""
        moment = micros(available)
        values = {
            "id": "'0193b2c4-1111-7000-8000-' || lpad(n::text, 12, '0')",
            "target": f"replace(t.target, '{NUMBER}', n::text)",
            "planned_at": str(moment),
            "available_at": str(moment),
            # Increasing, as if enqueued one after another.
            "created_at": f"{moment} - {count} + n - {first}",
        }
        self._copy("runs", self._run_columns, values, "bench_template_run", first, count)

    def empty(self) -> None:
        self.sql("TRUNCATE schedules, runs, run_logs CASCADE")

    def settle(self) -> None:
        """Does what autovacuum would have done on a table that grew to this size."""
        self.sql("VACUUM ANALYZE schedules")
        self.sql("VACUUM ANALYZE runs")
        self.sql("CHECKPOINT")

    # --- the same work in one statement -------------------------------------------------------
    def raw_statement(self, limit: int) -> str:
        """One statement with the writes of `fire_due` and none of its decisions: claims due
        schedules, inserts claimed runs and advances the schedules. A run is a copy of one that
        Chimes wrote, with other keys."""
        values = {
            "id": "md5(d.id || d.next_slot)::uuid",
            "schedule_id": "d.id",
            "schedule_name": "d.name",
            "slot": "d.next_slot",
            "target": "d.target",
            "concurrency_key": "'schedule:' || d.id",
            "planned_at": "d.next_run_at",
            "available_at": "d.next_run_at",
            "created_at": "d.next_run_at",
            "claimed_at": "d.next_run_at",
            "started_at": "d.next_run_at",
        }
        names, chosen = self._chosen(self._run_columns, values)
        hour = 3_600_000_000
        return (
            f"WITH due AS (SELECT * FROM schedules WHERE {DUE}"
            " AND next_run_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            f" ORDER BY next_run_at, id LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED),"
            f" made AS (INSERT INTO runs ({names}) SELECT {chosen}"
            " FROM due AS d, bench_template_claimed AS t ON CONFLICT DO NOTHING),"
            f" moved AS (UPDATE schedules AS s SET next_slot = s.next_slot + {hour},"
            f" next_run_at = s.next_run_at + {hour}, last_slot = s.next_slot,"
            " last_enqueued_at = s.next_slot, fired_count = s.fired_count + 1"
            " FROM due WHERE s.id = due.id RETURNING 1) SELECT count(*) FROM moved;"
        )

    # --- counting -----------------------------------------------------------------------------
    def faults(self, count: int, *, first: int = 0) -> Faults:
        """Duplicates and missed slots of `count` schedules that were due once each."""
        low, high = schedule_id_of(first), schedule_id_of(first + count)
        every, distinct = self.sql(
            "SELECT count(*), count(DISTINCT schedule_id) FROM runs"
            f" WHERE schedule_id >= '{low}' AND schedule_id < '{high}'"
            " AND status NOT IN ('missed', 'skipped')"
        ).split("|")
        return Faults(duplicates=int(every) - int(distinct), missed=count - int(distinct))

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT count(*) FROM {table}"))

    def now(self) -> datetime:
        epoch = self.sql("SELECT extract(epoch FROM clock_timestamp())")
        return datetime.fromtimestamp(float(epoch), UTC)

    # --- internals ----------------------------------------------------------------------------
    async def _prepare(self) -> None:
        store = open_store(self.url)
        await store.open()
        try:
            await store.load([_schedule("every"), _schedule("cron"), _queued_run(), _claimed_run()])
        finally:
            await store.close()
        for kind in ("every", "cron"):
            self._save_template("schedules", f"bench_template_{kind}", f"id = 'template-{kind}'")
        self._save_template("runs", "bench_template_run", "id = 'template-run'")
        self._save_template("runs", "bench_template_claimed", "id = 'template-claimed'")
        self.sql(
            "UPDATE bench_template_claimed SET status = 'running', holder = 'bench-raw',"
            " attempt = 1, fence = 1, concurrency_limit = 1"
        )
        self.empty()

    def _save_template(self, table: str, name: str, condition: str) -> None:
        self.sql(f"CREATE TABLE {name} AS SELECT * FROM {table} WHERE {condition}")
        if self.sql(f"SELECT count(*) FROM {name}") != "1":
            raise RuntimeError(f"the store did not write the template of {name}")

    def _columns(self, table: str) -> list[Column]:
        found = self.sql(
            "SELECT column_name, udt_name FROM information_schema.columns"
            f" WHERE table_name = '{table}' AND table_schema = current_schema()"
            " AND is_generated = 'NEVER' ORDER BY ordinal_position"
        )
        return [Column(*line.split("|")) for line in found.splitlines()]

    @staticmethod
    def _chosen(columns: Sequence[Column], values: Mapping[str, str]) -> tuple[str, str]:
        names = ", ".join(f'"{each.name}"' for each in columns)
        chosen = ", ".join(
            f"({values[each.name]})::{each.type}" if each.name in values else f't."{each.name}"'
            for each in columns
        )
        return names, chosen

    def _copy(
        self,
        table: str,
        columns: Sequence[Column],
        values: Mapping[str, str],
        template: str,
        first: int,
        count: int,
    ) -> None:
        names, chosen = self._chosen(columns, values)
        self.sql(
            f"INSERT INTO {table} ({names}) SELECT {chosen} FROM {template} AS t,"
            f" generate_series({first}, {first + count - 1}) AS n"
        )


def open_store(url: str) -> Store:
    return build_store(store_location(Settings(store=url)), SystemClock())


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def schedule_id_sql() -> str:
    return "'0193b2c4-0000-7000-8000-' || lpad(n::text, 12, '0')"


def schedule_id_of(number: int) -> str:
    return f"0193b2c4-0000-7000-8000-{number:012d}"


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


def _queued_run() -> Run:
    return Run(
        id=RunId("template-run"),
        schedule_id=None,
        schedule_name=TASK,
        origin=Origin.MANUAL,
        target=TaskTarget(name=TASK, args={"number": NUMBER}),
        policy=_POLICY,
        created_at=_LONG_AGO,
        planned_at=_LONG_AGO,
        available_at=_LONG_AGO,
    )


def _claimed_run() -> Run:
    return Run(
        id=RunId("template-claimed"),
        schedule_id=ScheduleId("template-every"),
        schedule_name="template every",
        schedule_version=1,
        slot=_LONG_AGO,
        origin=Origin.SCHEDULE,
        target=TaskTarget(name=TASK, args={"number": NUMBER}),
        policy=_POLICY,
        concurrency_key="schedule:template-every",
        created_at=_LONG_AGO,
        planned_at=_LONG_AGO,
        available_at=_LONG_AGO,
    )
