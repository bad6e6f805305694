"""Conversion of databases of schema 0009: it loses nothing, and continues after interruptions."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import create_engine, inspect

from chimes.cli.store.commands import export_lines
from chimes.config import Settings
from chimes.errors import SchemaMismatch
from chimes.failpoints import Injected
from chimes.model.audit import verify_chain
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.run import AttemptEnd, RunStatus
from chimes.store.sql import SqlStore, open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.migrations import (
    CONVERTIBLE,
    CONVERTING,
    FILE_VERSIONS,
    HEAD,
    SERVER_VERSIONS,
    baseline,
    conversion,
)
from chimes.testing import SettableClock
from tests.builders import LEASE, a_completion, a_node, an_entry, claim_request
from tests.servers import MARIADB, POSTGRES, shared
from tests.store import mariadb_rig, old_databases
from tests.store_contract.scenes import all_runs
from tests.web.rig import serving

ROOT = Path(__file__).parents[2]
KEY = "key-of-the-tests"
SHOWN = old_databases.shown_by_api()
#: When the responses were given; the leases of the nodes are valid then.
THEN = datetime.fromisoformat(SHOWN["now"])
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Old:
    """A database of schema 0009."""

    kind: str
    #: URL or path.
    at: str
    opener: Callable[..., SqlStore]

    def store(self, now: datetime = THEN + HOUR) -> SqlStore:
        return self.opener(self.at, clock=SettableClock(now))

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Rows of the last statement."""
        found: list[tuple[Any, ...]] = []
        if self.kind == "sqlite":
            connection = sqlite3.connect(self.at)
            for statement in statements:
                found = connection.execute(statement).fetchall()
            connection.commit()
            connection.close()
        elif self.kind == "postgresql":
            client = await asyncpg.connect(self.at)
            for statement in statements:
                found = [tuple(row) for row in await client.fetch(statement)]
            await client.close()
        else:
            found = await mariadb_rig.sql(self.at, *statements)
        return found

    async def version(self) -> str:
        table = FILE_VERSIONS if self.kind == "sqlite" else SERVER_VERSIONS
        ((found,),) = await self.sql(f"SELECT version_num FROM {table}")
        return str(found)

    async def tables(self) -> set[str]:
        statement = {
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
            "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
            "mariadb": "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'",
        }[self.kind]
        return {str(row[0]) for row in await self.sql(statement)}


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Old]:
    if request.param == "sqlite":
        path = tmp_path / "chimes.db"
        old_databases.load_sqlite(path)
        yield Old("sqlite", str(path), open_sqlite)
        return
    postgres = request.param == "postgresql"
    server = shared(POSTGRES if postgres else MARIADB)
    url = server.new_database()
    if postgres:
        await old_databases.load_postgres(url)
    else:
        await old_databases.load_mariadb(url)
    yield Old(request.param, url, open_postgres if postgres else open_mariadb)
    server.drop_database(url)


# --- everything is the same afterwards ------------------------------------------------------------
#: Killed in the middle of a transaction of the copy of runs.
KILLED = """
import asyncio, os, signal, sys
from datetime import datetime
from chimes.store.sql import open_mariadb, open_postgres, open_sqlite
from chimes.store.sql.migrations import conversion
from chimes.testing import SettableClock

conversion.BATCH = 5

def progress(step, done, total):
    if step == "runs" and done >= 20:
        os.kill(os.getpid(), signal.SIGKILL)

opener = {"sqlite": open_sqlite, "postgresql": open_postgres, "mariadb": open_mariadb}[sys.argv[1]]
clock = SettableClock(datetime.fromisoformat(sys.argv[3]))
asyncio.run(opener(sys.argv[2], clock=clock).migrate(progress))
"""


async def test_a_killed_conversion_continues_and_loses_nothing(old: Old) -> None:
    command = [sys.executable, "-c", KILLED, old.kind, old.at, (THEN + HOUR).isoformat()]
    ended = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert await old.version() == CONVERTING
    with pytest.raises(SchemaMismatch, match="not complete: run `chimes store migrate` again"):
        await old.store().open()
    steps: list[tuple[str, int, int]] = []
    assert await old.store().migrate(lambda *step: steps.append(step)) == (CONVERTING, HEAD)
    assert steps[0] == ("schedules", 17, 17)
    assert steps[1:] == [("runs", 20, 42), ("runs", 42, 42)]
    assert await old.version() == HEAD
    left = await old.tables()
    assert not {each for each in left if each.startswith(("old_", "conversion"))}
    store = old.store(THEN)
    await store.open()
    try:
        assert await differences_of_export(store) == []
        assert await differences_of_api(store) == []
    finally:
        await store.close()


async def differences_of_export(store: SqlStore) -> list[str]:
    lines = [line async for line in export_lines(store.dump())][1:]
    import json

    before = {identity(item): as_now(item["value"]) for item in old_databases.exported()}
    after = {identity(item): as_now(item["value"]) for item in map(json.loads, lines)}
    assert len(before) == 109
    return differences("export", before, after)


def identity(item: dict[str, Any]) -> str:
    value = item["value"]
    name = next(value[key] for key in ("id", "number", "name", "run_id") if key in value)
    return f"{item['kind']} {name}"


async def differences_of_api(store: SqlStore) -> list[str]:
    settings = Settings(requests_per_second=1e6)
    clock = SettableClock(THEN)
    found: list[str] = []
    async with serving(store, clock, fixed_keys=[KEY], settings=settings) as rig:
        rig.client.headers["Authorization"] = f"Bearer {KEY}"
        listed: dict[str, Any] = {}
        # Lists first.
        for path in sorted(SHOWN["api"], key=lambda path: "?" not in path):
            expected = SHOWN["api"][path]
            response = await rig.client.get(f"/api/v1/{path}")
            assert response.status_code == 200, (path, response.text)
            shown = response.json()
            page = path.partition("?")[0]
            if isinstance(expected, dict) and "items" in shown:
                listed |= {f"{page}/{item.get('id')}": item for item in shown["items"]}
            if isinstance(expected, list):
                # Only the ids are in the file.
                shown = [item["id"] for item in shown["items"]]
            if expected == "as in the list":
                found += differences(path, listed[path], shown)
            else:
                found += differences(path, _with_new_fields(path, as_now(expected)), as_now(shown))
    return found


#: Fields that the old program did not have.
NEW_FIELDS: dict[str, dict[str, Any]] = {"audit/verify": {"checkpoint": "none", "pruned": 0}}


def _with_new_fields(path: str, expected: Any) -> Any:
    return expected | NEW_FIELDS[path] if path in NEW_FIELDS else expected


#: State of a run that has not ended; the old tables kept its last value.
OF_ACTIVE_RUNS = ("blocked", "cancel_requested", "started")
ACTIVE = ("queued", "running", None)


def as_now(value: Any) -> Any:
    """With the names that are used now, and without the state that ended runs no longer have."""
    if isinstance(value, list):
        return [as_now(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {{"door": "interface"}.get(key, key): as_now(each) for key, each in value.items()}
    if renamed.get("namespace") == "native":
        renamed["namespace"] = "default"
    # Of the server that shows the schedule, not of the schedule.
    renamed.pop("warnings", None)
    if "signing_secrets" in renamed and "channel" in renamed:
        # Recipients had no choice of the envelope.
        renamed.setdefault("envelope", "")
    if "auto_pause_after" not in renamed and "misfire_grace" in renamed:
        # Policies had no named limits.
        renamed.setdefault("limits", [])
    if "attempts" in renamed and renamed.get("status") not in ACTIVE:
        for key in OF_ACTIVE_RUNS:
            renamed.pop(key, None)
    return renamed


def differences(path: str, expected: Any, shown: Any) -> list[str]:
    if isinstance(expected, dict) and isinstance(shown, dict):
        keys = sorted(expected.keys() | shown.keys())
        pairs = [(f"{path}.{key}", expected.get(key), shown.get(key)) for key in keys]
    elif isinstance(expected, list) and isinstance(shown, list) and len(expected) == len(shown):
        pairs = [
            (f"{path}[{number}]", *pair)
            for number, pair in enumerate(zip(expected, shown, strict=True))
        ]
    else:
        return [] if expected == shown else [f"{path}: {expected!r} became {shown!r}"]
    return [each for pair in pairs for each in differences(*pair)]


# --- interruptions --------------------------------------------------------------------------------
async def test_conversion_can_be_interrupted_at_any_step(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = passed = 0

    def stop_at_turn(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == turn:
            raise Injected(f"step {turn}")

    monkeypatch.setattr(conversion, "BATCH", 9)
    # Where the schema is changed in one transaction, most interruptions leave the same state.
    stride = 1 if old.kind == "mariadb" else 7
    interrupted = 0
    with monkeypatch.context() as patched:
        for module in ("baseline", "conversion", "mariadb_view"):
            patched.setattr(f"chimes.store.sql.migrations.{module}.hit", stop_at_turn)
        while await old.version() != HEAD:
            turn += stride
            passed = 0
            try:
                await old.store().migrate()
            except Injected:
                interrupted += 1
    assert interrupted > 10
    store = old.store(THEN)
    await store.open()
    try:
        assert await differences_of_export(store) == []
    finally:
        await store.close()


async def test_two_conversions_at_once_convert_once(old: Old) -> None:
    await asyncio.gather(old.store().migrate(), old.store().migrate())
    assert await old.version() == HEAD
    store = old.store(THEN)
    await store.open()
    try:
        assert await differences_of_export(store) == []
    finally:
        await store.close()


# --- what is refused ------------------------------------------------------------------------------
async def test_running_nodes_prevent_the_conversion(old: Old) -> None:
    before = await old.tables()
    with pytest.raises(SchemaMismatch, match="running on this store: node-1, node-2"):
        await old.store(THEN).migrate()
    assert await old.version() == "0009"
    assert await old.tables() == before


async def test_the_old_schema_is_not_opened(old: Old) -> None:
    with pytest.raises(SchemaMismatch, match=r"schema 0009 .* run `chimes store migrate`"):
        await old.store().open()
    assert await old.version() == "0009"


async def test_an_even_older_schema_is_refused(old: Old) -> None:
    table = FILE_VERSIONS if old.kind == "sqlite" else SERVER_VERSIONS
    await old.sql(f"UPDATE {table} SET version_num = '0008'")
    for call in (old.store().open, old.store().migrate):
        with pytest.raises(
            SchemaMismatch, match="too old to be converted: bring it to schema 0010"
        ):
            await call()


async def test_programs_of_the_old_schema_refuse_the_new_one(old: Old) -> None:
    """They accept a schema that they do not know if its `min_revision` is at most theirs; on files
    they never do."""
    await old.store().migrate()
    ((oldest,),) = await old.sql("SELECT value FROM store_facts WHERE name = 'min_revision'")
    assert oldest == baseline.REVISION_OFFSET + 1 > int(CONVERTIBLE[-1])
    assert await old.version() not in CONVERTIBLE


# --- the converted database -----------------------------------------------------------------------
async def test_a_converted_database_has_the_schema_of_a_new_one(old: Old, tmp_path: Path) -> None:
    await old.store().migrate()
    server = {"postgresql": POSTGRES, "mariadb": MARIADB}.get(old.kind)
    at = str(tmp_path / "new.db") if server is None else shared(server).new_database()
    try:
        store = old.opener(at)
        await store.open()
        await store.close()
        converted = await schema_of(old)
        new = await schema_of(Old(old.kind, at, old.opener))
        assert {part: different(converted[part], new[part]) for part in new} == dict.fromkeys(
            new, ([], [])
        )
    finally:
        if server is not None:
            shared(server).drop_database(at)


def different(one: list[Any], other: list[Any]) -> tuple[list[Any], list[Any]]:
    """Items that only one of them has."""
    return [each for each in one if each not in other], [each for each in other if each not in one]


async def schema_of(old: Old) -> dict[str, list[Any]]:
    """Columns and indexes."""
    if old.kind == "sqlite":
        engine = create_engine(f"sqlite:///{old.at}")
        with engine.connect() as connection:
            found = inspect(connection)
            tables = [
                (
                    name,
                    [(column["name"], column["nullable"]) for column in found.get_columns(name)],
                    sorted(
                        (str(each["name"]), each["column_names"])
                        for each in found.get_indexes(name)
                    ),
                )
                for name in found.get_table_names()
            ]
            views = found.get_view_names()
        engine.dispose()
        return {"tables": tables, "views": views}
    if old.kind == "postgresql":
        columns = await old.sql(
            "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable,"
            " collation_name FROM information_schema.columns WHERE table_schema = 'public'"
            " ORDER BY table_name, ordinal_position"
        )
        indexes = await old.sql(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
            f" AND tablename <> '{SERVER_VERSIONS}' ORDER BY 1"
        )
        functions = await old.sql(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            " ORDER BY 1"
        )
        return {"columns": columns, "indexes": indexes, "functions": functions}
    where = f"= '{mariadb_rig.name_of(old.at)}' ORDER BY 1, 2, 3"
    columns = await old.sql(
        "SELECT table_name, ordinal_position, column_name, column_type, is_nullable, collation_name"
        f" FROM information_schema.columns WHERE table_schema {where}"
    )
    indexes = await old.sql(
        "SELECT table_name, index_name, seq_in_index, column_name, collation"
        f" FROM information_schema.statistics WHERE table_schema {where}"
    )
    triggers = await old.sql(
        "SELECT trigger_name, action_timing, event_manipulation FROM information_schema.triggers"
        f" WHERE trigger_schema {where}"
    )
    return {"columns": columns, "indexes": indexes, "triggers": triggers}


async def test_work_goes_on_in_a_converted_database(old: Old) -> None:
    await old.store().migrate()
    clock = SettableClock(THEN + HOUR)
    store = old.opener(old.at, clock=clock)
    await store.open()
    try:
        before = await all_runs(store)
        running = {run.id for run in before.values() if run.status is RunStatus.RUNNING}
        assert {"own-0", "shared-0", "flow", "step-2"} <= running
        # The nodes are gone: their runs are queued again, or end.
        await store.rescue(limit=1000)
        after = await all_runs(store)
        assert not {run.id for run in after.values() if run.status is RunStatus.RUNNING}
        assert after[RunId("step-2")].status is RunStatus.CANCELED
        assert after[RunId("own-0")].status is RunStatus.QUEUED
        # A key lets the next one go when a run ends.
        await store.join(a_node("node-9"), LEASE)
        for expected in ("own-0", "own-1", "own-2"):
            claimed = await store.claim(claim_request("node-9", 1000))
            of_key = [run for run in claimed if run.concurrency_key == "schedule:queueing"]
            assert [run.id for run in of_key] == [expected]
            for run in claimed:
                completion = a_completion(run, clock.now(), AttemptEnd.SUCCEEDED)
                await store.finish([completion])
        # Schedules fire, with the definition of their version.
        fired = await store.fire_due(plan, limit=100)
        assert fired.broken == ()
        assert ScheduleId("daily") not in {run.schedule_id for run in fired.others}
        assert fired.others
        for run in fired.others:
            schedule = await store.get_schedule(ScheduleId(str(run.schedule_id)))
            assert schedule is not None
            assert run.definition == after_definition(schedule)
        # The audit log continues its chain.
        await store.append_audit(an_entry())
        entries = list(reversed(await store.list_audit(AuditQuery(limit=100))))
        assert len(entries) == 32
        assert verify_chain(entries) is None
    finally:
        await store.close()


def after_definition(schedule: Any) -> Any:
    from chimes.model.run import RunDefinition

    return RunDefinition(
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        schedule_version=schedule.version,
        namespace=schedule.namespace,
        owner=schedule.owner,
        target=schedule.target,
        policy=schedule.policy,
    )


# Its tables are those of 0009.
async def test_schema_0010_is_converted(old: Old) -> None:
    table = FILE_VERSIONS if old.kind == "sqlite" else SERVER_VERSIONS
    await old.sql(f"UPDATE {table} SET version_num = '0010'")
    assert await old.store().migrate() == ("0010", HEAD)
    store = old.store(THEN)
    await store.open()
    try:
        assert await differences_of_export(store) == []
    finally:
        await store.close()


async def test_a_prefetched_run_stays_prefetched(old: Old) -> None:
    """Claimed before its time, it counts as started when it is due."""
    await old.sql("UPDATE runs SET available_at = claimed_at + 5000000 WHERE id = 'own-0'")
    await old.store().migrate()
    store = old.store(THEN)
    await store.open()
    try:
        run = await store.get_run(RunId("own-0"))
        assert run is not None
        assert run.prefetched
        assert run.claimed_at == run.available_at - timedelta(seconds=5)
        assert run.started_at == run.available_at
    finally:
        await store.close()


async def test_privileges_on_the_views_remain(postgres_url: str) -> None:
    await old_databases.load_postgres(postgres_url)
    role = f"clerk_{postgres_url.rpartition('/')[2]}"
    shared(POSTGRES).admin(f"CREATE ROLE {role} LOGIN")
    old = Old("postgresql", postgres_url, open_postgres)
    try:
        await old.sql(
            f"GRANT SELECT, UPDATE ON cb_schedules TO {role}",
            # A view of another application.
            "CREATE VIEW names AS SELECT name FROM cb_schedules",
        )
        await old.store().migrate()
        client = await asyncpg.connect(postgres_url.replace("chimes@", f"{role}@"))
        await client.execute("UPDATE cb_schedules SET enabled = false WHERE id = 'daily'")
        await client.close()
        assert await old.sql("SELECT enabled FROM schedules WHERE id = 'daily'") == [(0,)]
        assert ("daily",) in await old.sql("SELECT name FROM names")
    finally:
        await old.sql(f"REVOKE ALL ON cb_schedules FROM {role}")
        shared(POSTGRES).admin(f"DROP ROLE {role}")


async def test_unreadable_rows_are_converted_as_they_are(old: Old) -> None:
    await old.sql(
        "UPDATE schedules SET target = '{broken' WHERE id = 'daily'",
        "UPDATE runs SET attempts = '[broken', target = 'x' WHERE id = 'lived-plain'",
        "UPDATE runs SET holder = NULL WHERE id = 'own-0'",
    )
    await old.store().migrate()
    found = await old.sql("SELECT target, definition FROM schedules WHERE id = 'daily'")
    assert found == [("{broken", 0)]
    found = await old.sql("SELECT attempts FROM runs WHERE id = 'lived-plain'")
    assert found == [("[broken",)]
    # Without a holder no node will return it.
    assert await old.sql("SELECT run_id FROM queue WHERE run_id = 'own-0'") == [("own-0",)]
    store = old.store()
    await store.open()
    try:
        runs = await all_runs(store)
        assert len(runs) == 42
        assert "cannot be read" in runs[RunId("lived-plain")].error
    finally:
        await store.close()


async def test_the_command_shows_its_progress(old: Old) -> None:
    await old.sql("UPDATE nodes SET lease_until = 1")
    url = f"sqlite:///{old.at}" if old.kind == "sqlite" else old.at
    command = [sys.executable, "-m", "chimes", "store", "migrate", "--store", url]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "onvert" in line or "igrat" in line]
    assert lines == [
        "Converted 17 schedules",
        "Converted 42 runs",
        f"Migrated the schema of {url} from 0009 to {HEAD}.",
    ]
