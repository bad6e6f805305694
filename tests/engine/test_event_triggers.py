"""Events on real stores: debounce, throttle and batch on two nodes, ends of runs, files, SQL."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest

from chimes.clock import SystemClock
from chimes.config import Settings
from chimes.config.connections import Connection
from chimes.engine import event_triggers, sql_condition
from chimes.engine.event_triggers import EventTriggers
from chimes.engine.events import RunEnded
from chimes.engine.membership import StoreClock
from chimes.errors import InvalidTrigger
from chimes.model import replace
from chimes.model.event import ENDS_REMEMBERED_FOR, add_ends
from chimes.model.ids import NodeId
from chimes.model.listing import ScheduleQuery
from chimes.model.planning import end_immediately, manual_run
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Cause, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.services.documents import DocumentStore
from chimes.services.events import EventService
from chimes.testing import SettableClock
from chimes.triggers import Every, OnFile, OnRunEnd, OnSql, Trigger, Webhook
from tests.builders import a_schedule
from tests.engine.rig import FAILURE, SUCCESS, Rig, eventually
from tests.store_contract.stores import KINDS, SHARED, Home, StoreKind

QUEUE = Policy(overlap=Overlap.QUEUE)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one slow list would postpone the next one by a minute."""
    monkeypatch.setattr(event_triggers, "MAX_LIST_SHARE", 1.0)
    monkeypatch.setattr(event_triggers, "MAX_SWEEP_SHARE", 1.0)


async def listen(rig: Rig, trigger: Trigger, **given: object) -> Schedule:
    now = await rig.now()
    values = {"created_at": now, "updated_at": now, "policy": QUEUE, "next_slot": None}
    return await rig.store.add_schedule(a_schedule(trigger=trigger, **(values | given)))


def event(number: int, at: datetime) -> Cause:
    return Cause(
        kind="webhook", source="none", delivery_id=f"d-{number}", at=at, payload=f'{{"n":{number}}}'
    )


async def start(rig: Rig, schedule: Schedule) -> Run:
    """A run by hand, without retries."""
    run = manual_run(schedule, await rig.now(), beside_others=True)
    policy = replace(schedule.policy, max_retries=0)
    run = replace(run, definition=replace(run.definition, policy=policy))
    return (await rig.store.add_runs([run]))[0]


@pytest.mark.parametrize("kind", SHARED, ids=lambda kind: kind.name)
async def test_a_burst_on_two_nodes_makes_one_run_with_the_last_payload(
    kind: StoreKind, tmp_path: Path
) -> None:
    """Two nodes accept 200 events, with repeats, and both flush. No time passes in the burst."""
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    rigs = [Rig(await home.open(), kind.name) for _node in range(2)]
    try:
        schedule = await listen(rigs[0], Webhook(debounce="3s"))
        for rig in rigs:
            await rig.engine()
        now = await rigs[0].now()
        services = [EventService(rig.store) for rig in rigs]
        answers = await asyncio.gather(
            *(services[number % 2].accept(schedule, event(number, now)) for number in range(199)),
            *(services[1].accept(schedule, event(number, now)) for number in range(0, 199, 20)),
        )
        assert set(answers) == {None}
        await services[1].accept(schedule, event(999, now))
        clock.advance(3)
        (run,) = await rigs[0].ended(schedule)
        cause = run.definition.cause
        assert cause is not None
        assert (cause.payload, cause.events, run.status) == ('{"n":999}', 200, RunStatus.SUCCEEDED)
        assert sum(len(rig.runner.calls) for rig in rigs) == 1
        # Nothing is left to do, and a later event starts another run.
        await eventually(
            lambda: rigs[0].store.get_checkpoint("events:due"), lambda found: found is None
        )
        await services[0].accept(schedule, event(1000, now))
        clock.advance(3)
        assert len(await rigs[1].ended(schedule, 2)) == 2
    finally:
        for rig in rigs:
            await rig.close()
        await home.close()


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def timed(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[Rig]:
    """A rig whose store has `clock`: how long a burst of events takes does not matter."""
    home = Home(request.param, tmp_path, clock)
    rig = Rig(await home.open(), request.param.name)
    yield rig
    await rig.close()
    await home.close()


async def test_throttle_starts_at_once_and_counts_what_it_drops(
    timed: Rig, clock: SettableClock
) -> None:
    rig = timed
    schedule = await listen(rig, Webhook(throttle="5s"))
    await rig.engine()
    service, now = EventService(rig.store), await rig.now()
    for number in range(5):
        await service.accept(schedule, event(number, now))
    assert [run.origin.value for run in await rig.runs(schedule)] == ["event"]
    clock.advance(5)
    runs = await eventually(lambda: rig.runs(schedule), lambda found: len(found) == 2)
    dropped = next(run for run in runs if run.status is RunStatus.SKIPPED)
    assert (dropped.reason, dropped.missed_count) == ("throttled", 4)
    (first,) = (run.definition.cause for run in runs if run is not dropped)
    assert first is not None
    assert first.payload == '{"n":0}'
    await service.accept(schedule, event(9, now))
    await eventually(lambda: rig.runs(schedule), lambda found: len(found) == 3)


async def test_batch_collects_events_until_its_count_or_its_time(
    timed: Rig, clock: SettableClock
) -> None:
    rig = timed
    schedule = await listen(rig, Webhook(batch={"count": 3, "within": "500ms"}))
    await rig.engine()
    service, now = EventService(rig.store), await rig.now()
    await asyncio.gather(*(service.accept(schedule, event(n, now)) for n in range(5)))
    assert len(await rig.ended(schedule)) == 1
    clock.advance(0.5)
    runs = await rig.ended(schedule, 2)
    payloads = [json.loads(run.definition.cause.payload) for run in runs if run.definition.cause]
    flat = [each for one in payloads for each in (one if isinstance(one, list) else [one])]
    assert sorted(each["n"] for each in flat) == [0, 1, 2, 3, 4]
    assert sorted(run.definition.cause.events for run in runs if run.definition.cause) == [2, 3]


async def test_overlap_applies_to_events(rig: Rig) -> None:
    service, now = EventService(rig.store), await rig.now()
    for overlap, wanted in (
        (Overlap.QUEUE, [("queued", False), ("queued", True), ("queued", True)]),
        (Overlap.SKIP, [("queued", False), ("skipped", False), ("skipped", False)]),
        (Overlap.ALLOW, [("queued", False)] * 3),
        (Overlap.CANCEL_OLD, [("canceled", False), ("canceled", False), ("queued", False)]),
    ):
        schedule = await listen(rig, Webhook(), policy=Policy(overlap=overlap))
        for number in range(3):
            await service.accept(schedule, event(number, now))
        found = sorted(
            await rig.runs(schedule),
            key=lambda run: run.definition.cause.delivery_id if run.definition.cause else "",
        )
        assert [(run.status.value, run.blocked) for run in found] == wanted, overlap


async def test_the_end_of_a_run_starts_a_chain(rig: Rig) -> None:
    """Only the named statuses count, runs from before the trigger do not, each counts once on two
    nodes, and the payload says what ended."""
    source = await listen(rig, Webhook())
    await start(rig, source)
    rig.runner.script = [SUCCESS]
    await rig.engine()
    await rig.ended(source)
    good = await listen(rig, OnRunEnd(source.id, status=["succeeded"]))
    after = await listen(rig, OnRunEnd(good.id))
    bad = await listen(rig, OnRunEnd(source.id, status=["failed"]))
    await rig.engine()
    rig.runner.script = [FAILURE, SUCCESS]
    failing = await start(rig, source)
    await rig.ended(bad)
    succeeded = [await start(rig, source) for _run in range(2)]
    runs = await rig.ended(good, 2)
    last = await rig.ended(after, 2)
    assert len(await rig.runs(bad)) == 1
    (first_bad,) = await rig.runs(bad)
    assert first_bad.definition.cause is not None
    assert first_bad.definition.cause.source == failing.id
    causes = [run.definition.cause for run in runs]
    assert {cause.source for cause in causes if cause} == {run.id for run in succeeded}
    assert {json.loads(each.payload)["status"] for each in causes if each} == {"succeeded"}
    assert {run.definition.cause.source for run in last if run.definition.cause} == {
        run.id for run in runs
    }
    # Looking again finds nothing new.
    for engine in rig.engines:
        assert engine._event_triggers is not None
        engine._event_triggers._next_sweep = 0.0
        engine._event_triggers._seen.clear()
        await engine._event_triggers.run_once()
    assert [len(await rig.runs(each)) for each in (good, after, bad)] == [2, 2, 1]


def watch(rig: Rig, node: str, **settings: Any) -> EventTriggers:
    """A watcher of its own, whose looks the test controls."""
    clock = SystemClock()
    return EventTriggers(
        rig.store,
        clock=clock,
        time=StoreClock(rig.store, clock),
        settings=Settings(**settings),
        node_id=lambda: NodeId(node),
    )


async def test_many_ends_are_collected_once_on_two_nodes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """800 runs end within a minute: one node notices each of them at once and reads no other run
    for that, another one finds them later, a third one begins after that."""
    source = await listen(rig, Webhook())
    schedule = await listen(rig, OnRunEnd(source.id, debounce="1h"))
    now = await rig.now()
    runs = [
        end_immediately(
            manual_run(source, now, beside_others=True), RunStatus.CANCELED, Reason.REPLACED, now
        )
        for _run in range(800)
    ]
    nodes = [watch(rig, f"node-{number}") for number in range(3)]
    await nodes[0].run_once()
    nodes[0]._next_sweep = math.inf
    stored = [
        run
        for first in range(0, 800, 100)
        for run in await rig.store.add_runs(runs[first : first + 100])
    ]
    with monkeypatch.context() as patch:
        patch.setattr(nodes[0], "_created_since", None)
        for first in range(0, 800, 200):
            for run in stored[first : first + 200]:
                nodes[0](RunEnded(run=run, seconds=0.0))
            await nodes[0].run_once()
    service = EventService(rig.store)
    assert (await service.state(schedule.id)).count == 800
    for node in (nodes[1], nodes[0], nodes[2], nodes[1]):
        node._next_sweep = 0.0
        node._seen.clear()
        await node.run_once()
    state = await service.state(schedule.id)
    assert (state.count, len(state.ends)) == (800, 800)
    # What is not read again is forgotten.
    later = now + ENDS_REMEMBERED_FOR + timedelta(minutes=1)
    assert len(add_ends(state, schedule.trigger, (), later, listed={runs[0].id}).ends) == 1


async def test_a_cycle_is_ignored_and_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    first = await listen(rig, Webhook())
    await listen(rig, OnRunEnd(first.id))
    node = watch(rig, "node")
    await node.run_once()
    assert list(node._waiting) == [first.id]
    found = (await rig.store.list_schedules(ScheduleQuery())).items
    (second,) = (each for each in found if each.id != first.id)
    await rig.store.change_schedule(
        first.id, lambda known, now: replace(known, trigger=OnRunEnd(second.id))
    )
    with caplog.at_level("WARNING", "chimes.events"):
        for _look in range(3):
            node._next_list, node._listed_at, node._next_sweep = 0.0, None, 0.0
            await node.run_once()
    assert caplog.text.count("would start itself") == 2
    assert node._waiting == {}


@pytest.mark.parametrize("kind", KINDS[1:3], ids=lambda kind: kind.name)
async def test_a_run_that_ends_while_no_node_watches_still_counts(
    kind: StoreKind, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path, SystemClock())
    rig = Rig(await home.open(), kind.name)
    try:
        source = await listen(rig, Webhook())
        other = await listen(rig, OnRunEnd(source.id))
        await start(rig, source)
        worker = await rig.engine(roles=("worker",))
        await rig.ended(source)
        await worker.drain(timedelta(0))
        await rig.engine()
        assert len(await rig.ended(other)) == 1
    finally:
        await rig.close()
        await home.close()


async def test_a_file_counts_once_its_size_is_stable(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "old.csv").write_text("old")
    settings = {
        "file_trigger_dirs": (str(folder),),
        "file_trigger_interval": timedelta(milliseconds=300),
    }
    # File times and the clock of the store may differ by a tick.
    os.utime(folder / "old.csv", (1, 1))
    await asyncio.sleep(0.05)
    schedule = await listen(rig, OnFile(f"{folder}/*.csv"))
    elsewhere = await listen(rig, OnFile("/etc/*"))
    for _node in range(2):
        await rig.engine(**settings)
    document = f"events:{schedule.id}:files"
    await eventually(lambda: rig.store.get_checkpoint(document), lambda found: found is not None)
    growing = folder / "new.csv"
    (folder / "other.txt").write_text("x")
    (folder / "link.csv").symlink_to("/etc/passwd")

    async def grow() -> None:
        with growing.open("a") as file:
            for _line in range(30):
                file.write("line\n")
                file.flush()
                await asyncio.sleep(0.05)

    await grow()
    (run,) = await rig.ended(schedule)
    assert run.definition.cause is not None
    assert run.definition.cause.source == str(growing)
    assert json.loads(run.definition.cause.payload)["size"] == 150
    growing.write_text("changed")
    await rig.ended(schedule, 2)
    growing.unlink()
    stored = await eventually(
        lambda: rig.store.get_checkpoint(document),
        lambda found: found is not None and len(json.loads(found.value)["marks"]) == 1,
    )
    assert stored is not None
    assert len(await rig.runs(schedule)) == 2
    assert await rig.runs(elsewhere) == []


async def test_many_files_and_any_names_are_watched(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The document stays small with long paths, a name that is not UTF-8 counts, and a schedule
    whose document is too large does not stop the others."""
    folder = tmp_path / "in" / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    name = os.fsencode(folder) + b"/caf\xe9.csv"
    for number in range(2500):
        (folder / f"{'f' * 200}{number}.csv").touch()
    node = watch(rig, "node", file_trigger_dirs=(str(tmp_path / "in"),))
    schedule = await listen(rig, OnFile(f"{folder}/*.csv"))
    await node.run_once()
    with open(name, "w") as file:  # noqa: ASYNC230
        file.write("x")

    async def look() -> None:
        node._next_look.clear()
        await node.run_once()

    for _look in range(3):
        await look()
    found = await rig.runs(schedule)
    causes = [run.definition.cause for run in found]
    paths = {json.loads(cause.payload)["path"] for cause in causes if cause}
    assert f"{folder}/caf\ufffd.csv" in paths
    stored = await rig.store.get_checkpoint(f"events:{schedule.id}:files")
    assert stored is not None
    assert len(stored.value) < 300_000
    before = len(await rig.runs(schedule))
    other = await listen(rig, OnFile(f"{tmp_path}/in/*.txt"))
    monkeypatch.setattr(DocumentStore.__init__, "__kwdefaults__", {"write": None, "limit": 1000})
    (folder / "z.csv").touch()
    node._listed_at, node._next_list = None, 0.0
    with caplog.at_level("WARNING", "chimes.events"):
        await look()
    (tmp_path / "in" / "a.txt").write_text("a")
    await look()
    await look()
    assert f"schedule {schedule.id} cannot be watched" in caplog.text
    assert len(await rig.runs(other)) == 1
    assert len(await rig.runs(schedule)) == before


async def test_the_entry_of_a_deleted_schedule_is_removed(rig: Rig) -> None:
    schedule = await listen(rig, Webhook(debounce="1s"))
    await EventService(rig.store).accept(schedule, event(1, await rig.now()))
    await rig.store.change_schedule(
        schedule.id, lambda known, now: delete_schedule(known, now, "eva")
    )
    node = watch(rig, "node")

    async def left() -> bool:
        await node.run_once()
        names = ("events:due", f"events:{schedule.id}")
        return any([await rig.store.get_checkpoint(name) for name in names])

    await eventually(left, lambda found: not found)
    assert await rig.runs(schedule) == []


async def test_a_condition_starts_a_run_when_it_becomes_true(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE orders (id INTEGER, state TEXT)")
    connection = Connection(name="shop", kind="sql", url=f"sqlite:///{path}")
    trigger = OnSql("SELECT id FROM orders WHERE state = 'open'", connection="shop", interval="1h")
    schedule = await listen(rig, trigger)
    engine = await rig.engine(connections=(connection,))
    watch = engine._event_triggers
    assert watch is not None
    await eventually(
        lambda: rig.store.get_checkpoint(f"events:{schedule.id}:sql"),
        lambda found: found is not None and '"holds":false' in found.value,
    )

    async def look() -> None:
        # The node itself looks once in an hour.
        await watch._look_at_condition(schedule, trigger)

    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO orders VALUES (7, 'open'), (8, 'open')")
    await look()
    await look()
    (run,) = await rig.ended(schedule)
    assert run.definition.cause is not None
    assert json.loads(run.definition.cause.payload)["rows"] == [{"id": 7}, {"id": 8}]
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM orders")
    await look()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO orders VALUES (9, 'open')")
    await look()
    assert len(await rig.ended(schedule, 2)) == 2
    # Another query for a while: the first one counts again.
    other = OnSql("SELECT 0", connection="shop", interval="1h")
    await watch._look_at_condition(schedule, other)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM orders")
    await look()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO orders VALUES (10, 'open')")
    await look()
    assert len(await rig.ended(schedule, 3)) == 3
    with pytest.raises(sqlite3.OperationalError):
        await sql_condition.query_rows(
            rig.store, connection, "WITH x AS (SELECT 1) DELETE FROM orders"
        )


async def test_conditions_are_read_only_on_servers(postgres_url: str, mariadb_url: str) -> None:
    from chimes.store.memory import MemoryStore

    server = await asyncpg.connect(postgres_url)
    await server.execute("CREATE TABLE kept (id int)")
    await server.close()
    parts = urlsplit(mariadb_url)
    other = await asyncmy.connect(
        host=parts.hostname, port=parts.port, user=parts.username, db=parts.path.strip("/")
    )
    async with other.cursor() as cursor:
        await cursor.execute("CREATE TABLE kept (id int)")
    other.close()
    for url, ends in ((postgres_url, "read-only"), (mariadb_url, "READ ONLY")):
        connection = Connection(name="db", kind="sql", url=url)
        rows = await sql_condition.query_rows(
            MemoryStore(), connection, "SELECT 1 AS one, 'x' AS t"
        )
        assert rows == [{"one": 1, "t": "x"}]
        assert (
            await sql_condition.query_rows(MemoryStore(), connection, "SELECT 1 WHERE 1 = 0") == []
        )
        with pytest.raises(Exception, match=f"(?i){ends}"):
            await sql_condition.query_rows(MemoryStore(), connection, "DELETE FROM kept")


async def test_the_documents_of_a_deleted_schedule_are_removed(rig: Rig) -> None:
    """Also when the last event schedule goes; one whose trigger changes loses them too, and a
    restored one starts afresh."""
    source = await listen(rig, Webhook(debounce="1h"))
    chained = await listen(rig, OnRunEnd(source.id))
    names = (f"events:{source.id}", f"events:{chained.id}:runs")
    await rig.engine()
    service, now = EventService(rig.store), await rig.now()
    await service.accept(source, event(1, now))

    async def kept() -> list[str]:
        return [name for name in names if await rig.store.get_checkpoint(name) is not None]

    async def due() -> str:
        found = await rig.store.get_checkpoint("events:due")
        return "" if found is None else found.value

    run = await start(rig, source)
    await eventually(lambda: rig.store.get_run(run.id), lambda found: found and found.finished_at)
    await eventually(kept, lambda found: found == [*names])
    assert source.id in await due()
    await rig.store.change_schedule(
        chained.id, lambda each, now: replace(each, trigger=Every("1h"), updated_at=now)
    )
    await eventually(kept, lambda found: found == [names[0]])
    await rig.store.change_schedule(source.id, lambda each, now: delete_schedule(each, now, "me"))
    await eventually(kept, lambda found: found == [])
    await eventually(due, lambda found: source.id not in found)
    # A schedule that is present keeps what it has.
    other = await listen(rig, Webhook(debounce="1h"))
    await service.accept(other, event(2, now))
    await service.forget(other.id)
    assert len((await service.state(other.id)).pending) == 1
    assert other.id in await due()


WRITING = (
    "SELECT 1; COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM victims; COMMIT",
    "SELECT '\\'; COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM victims; COMMIT; -- '",
    "SELECT 1 -- '\n; COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM victims; -- '",
    "SELECT 1 INTO OUTFILE '/tmp/chimes-never'",
    "SELECT 1 into/**/DumpFile '/tmp/chimes-never'",
    "SELECT 1 /*!INTO*/ /*!50000OUTFILE*/ '/tmp/chimes-never'",
)


async def test_a_condition_cannot_leave_its_transaction_on_mariadb(
    mariadb_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several statements and files are refused before the server sees them, and a long query ends
    on the server."""
    from chimes.store.memory import MemoryStore

    parts = urlsplit(mariadb_url)
    server = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        db=parts.path.strip("/"),
        autocommit=True,
    )
    store = MemoryStore()
    connection = Connection(name="db", kind="sql", url=mariadb_url)
    async with server.cursor() as cursor:
        await cursor.execute("CREATE TABLE victims (id int)")
        await cursor.execute("INSERT INTO victims VALUES (1)")
        for query in WRITING:
            with pytest.raises(ValueError, match="single SELECT"):
                await sql_condition.query_rows(store, connection, query)
            with pytest.raises(InvalidTrigger, match="single SELECT"):
                OnSql(query, connection="db")
        await cursor.execute("SELECT count(*) FROM victims")
        assert await cursor.fetchone() == (1,)
    server.close()
    for query in ("SELECT ';', \"it's; a\" AS x, 'it''s;';", "SELECT '; into outfile' AS x"):
        OnSql(query, connection="db")
        assert len(await sql_condition.query_rows(store, connection, query)) == 1
    monkeypatch.setattr(sql_condition, "TIMEOUT", 47.0)
    for url, query in (
        (mariadb_url, "SELECT @@max_statement_time AS x"),
        (postgres_url, "SELECT current_setting('statement_timeout') AS x"),
    ):
        connection = Connection(name="db", kind="sql", url=url)
        (row,) = await sql_condition.query_rows(store, connection, query)
        assert row["x"] in (47.0, "47s")
