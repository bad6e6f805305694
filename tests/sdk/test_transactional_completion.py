"""`context.complete_in`: the effect of a task and its completion are one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from chimes import Chimes, Context, RunFailed
from chimes.errors import Conflict
from chimes.model.run import AttemptEnd, RunStatus
from tests.sdk.inspection import QUICK, eventually
from tests.sdk.process import Start
from tests.sdk.test_transactional_enqueue import async_url


@pytest.fixture(params=["postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    name = "postgres_url" if request.param == "postgresql" else "mariadb_url"
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
async def engine(server_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(async_url(server_url), isolation_level="READ COMMITTED")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effects (attempt INTEGER)"))
    yield engine
    await engine.dispose()


async def effects(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return [row[0] for row in await connection.execute(text("SELECT attempt FROM effects"))]


INSERT = text("INSERT INTO effects VALUES (:attempt)")


async def test_run_is_complete_after_the_commit(server_url: str, engine: AsyncEngine) -> None:
    app = Chimes(server_url, settings=QUICK)
    seen: list[object] = []

    async def looked() -> list[object]:
        return seen

    @app.task(concurrency=1)
    async def book(context: Context) -> str:
        async with engine.begin() as connection:
            await connection.execute(INSERT, {"attempt": context.attempt})
            context.logger.info("about to commit")
            await context.complete_in(connection, result={"booked": 7})
        seen.append((await app.run_handle(context.run_id).run()).status)
        return "what it returns does not count any more"

    app.schedule("booking", "@daily", book)
    await app.start()
    try:
        handle = await book.enqueue()
        other = await book.enqueue()  # waits for capacity
        assert await handle.result("60s") == {"booked": 7}
        assert await other.result("60s") == {"booked": 7}
        # The run ended before the attempt returned.
        assert await eventually(looked, lambda statuses: len(statuses) == 2) == [
            RunStatus.SUCCEEDED,
            RunStatus.SUCCEEDED,
        ]
        assert [line.message for line in await handle.logs()] == ["about to commit"]
        run = await handle.run()
        assert len(run.attempts) == 1
        await (await app.trigger_schedule("booking")).result("60s")
        assert (await app.get_schedule("booking")).last_status == "succeeded"
    finally:
        await app.stop()
    assert await effects(engine) == [1, 1, 1]


async def test_code_after_the_commit_continues(server_url: str, engine: AsyncEngine) -> None:
    """The run has ended in the store while the task continues; the node must not stop it."""
    app = Chimes(server_url, settings=QUICK)
    reconciled = asyncio.Event()
    looked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @app.task
    async def book(context: Context) -> None:
        async with engine.begin() as connection:
            await context.complete_in(connection)
        await reconciled.wait()
        looked.set_result(context.canceled)

    @app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    await app.start()
    try:
        other = await waits.enqueue()
        handle = await book.enqueue()
        await handle.result("60s")
        # The pass of the reconciler that stops this run also sees the ended one.
        await other.cancel()
        await eventually(other.run, lambda run: run.status is RunStatus.CANCELED)
        reconciled.set()
        assert await asyncio.wait_for(looked, 30) is False
    finally:
        await app.stop()


async def test_rollback_undoes_effect_and_completion(server_url: str, engine: AsyncEngine) -> None:
    app = Chimes(server_url, settings=QUICK)

    @app.task(retries=1, retry_backoff=0.01)
    async def book(context: Context) -> None:
        async with engine.begin() as connection:
            await connection.execute(INSERT, {"attempt": context.attempt})
            await context.complete_in(connection, result=context.attempt)
            if context.attempt == 1:
                raise ValueError("no")

    await app.start()
    try:
        handle = await book.enqueue()
        assert await handle.result("60s") == 2
        assert [attempt.end.value for attempt in (await handle.run()).attempts] == [
            "failed",
            "succeeded",
        ]
    finally:
        await app.stop()
    assert await effects(engine) == [2]


async def test_fenced_attempt_commits_nothing(server_url: str, engine: AsyncEngine) -> None:
    app = Chimes(server_url, settings=QUICK)
    refused: list[str] = []

    @app.task
    async def book(context: Context) -> str:
        async with engine.connect() as connection:
            await connection.begin()
            await connection.execute(INSERT, {"attempt": context.attempt})
            # As if another node had claimed it; only visible here, otherwise the worker would
            # stop the task first.
            await connection.execute(text("UPDATE claims SET fence = fence + 1"))
            try:
                await context.complete_in(connection)
            except Conflict as error:
                refused.append(error.message)
            await connection.rollback()
        return "rolled back"

    await app.start()
    try:
        assert await (await book.enqueue()).result("60s") == "rolled back"
    finally:
        await app.stop()
    assert len(refused) == 1
    assert "no longer owns" in refused[0]
    assert await effects(engine) == []


async def test_complete_in_a_plain_asyncpg_connection(postgres_url: str) -> None:
    app = Chimes(postgres_url, settings=QUICK)

    @app.task(concurrency=1)
    async def book(context: Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO effects VALUES ($1)", context.attempt)
                context.logger.info("a line")
                await context.complete_in(connection, "done")
        finally:
            await connection.close()

    app.schedule("booking", "@daily", book)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE effects (attempt INTEGER)")
    await app.start()
    try:
        handles = [await book.enqueue(), await book.enqueue()]
        handles.append(await app.trigger_schedule("booking"))
        for handle in handles:
            assert await handle.result("60s") == "done"
            assert [line.message for line in await handle.logs()] == ["a line"]
        assert await connection.fetchval("SELECT count(*) FROM effects") == 3
    finally:
        await app.stop()
        await connection.close()


async def test_complete_in_sync_code_on_sqlite(sqlite_url: str, tmp_path: Path) -> None:
    app = Chimes(sqlite_url, settings=QUICK)
    engine = create_engine(f"sqlite:///{tmp_path / 'chimes.db'}", connect_args={"timeout": 10})

    async def counted() -> dict[str, float | None]:
        assert app.node is not None
        value = app.node.metrics.registry.get_sample_value
        return {name: value(f"chimes_{name}_total") for name in ("success", "fenced")}

    @app.task
    def book(context: Context) -> None:
        with Session(engine) as session:
            session.execute(INSERT, {"attempt": context.attempt})
            context.complete_in(session, "done")
            session.commit()

    await app.start()
    try:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE effects (attempt INTEGER)"))
        assert await (await book.enqueue()).result("60s") == "done"
        await eventually(counted, lambda counts: counts["success"] == 1)
        # The completion of the worker repeats the stored one and is accepted.
        assert (await counted())["fenced"] == 0
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM effects")).scalar() == 1
    finally:
        await app.stop()
        engine.dispose()


async def test_unsupported_connection_raises_in_the_task() -> None:
    app = Chimes("memory://", settings=QUICK)

    @app.task
    async def book(context: Context) -> None:
        await context.complete_in(object())

    await app.start()
    try:
        with pytest.raises(
            RunFailed, match="only inline and thread tasks of an application on a SQL store"
        ):
            await (await book.enqueue()).result("60s")
    finally:
        await app.stop()


CRASHING = """
import os
import asyncpg
from chimes import Chimes, Context

app = Chimes({url!r})

@app.task
async def book(context: Context) -> None:
    connection = await asyncpg.connect({url!r})
    async with connection.transaction():
        await connection.execute("INSERT INTO effects VALUES ($1)", context.attempt)
        await context.complete_in(connection, "done")
    os._exit(1)  # between the commit and the completion of the worker
"""


async def test_crash_after_the_commit_repeats_nothing(
    start: Start, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING.format(url=postgres_url))
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE effects (attempt INTEGER)")
    lease = {"CHIMES_LEASE": "3s", "CHIMES_POLL_INTERVAL": "100ms"}
    app = Chimes(postgres_url)

    @app.task
    async def book(context: Context) -> None: ...

    try:
        async with app:
            first = start("worker", "--app", "crashing:app", **lease).ready()
            handle = await book.enqueue()
            assert first.wait() == 1
            assert await handle.result("60s") == "done"
            second = start("worker", "--app", "crashing:app", **lease).ready()
            nodes = app.runtime().services.store.nodes
            # The dead node was detected: its runs would have been rescued by now.
            await eventually(nodes, lambda found: len(found) == 1)
            assert second.stop() == 0
            run = await handle.run()
            # On a slow machine a first attempt may have been lost before it started.
            assert run.attempts[-1].end is AttemptEnd.SUCCEEDED
            assert await connection.fetch("SELECT attempt FROM effects") == [(run.attempt,)]
    finally:
        await connection.close()


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
async def test_log_lines_written_before_are_not_duplicated(server_url: str, level: str) -> None:
    """Even if the snapshot of the transaction is older than the lines."""
    app = Chimes(server_url, settings=QUICK)
    engine = create_async_engine(async_url(server_url), isolation_level=level)

    @app.task(retries=1, retry_backoff=0)
    async def book(context: Context) -> None:
        async with engine.begin() as connection:
            # Takes the snapshot.
            await connection.execute(text("SELECT count(*) FROM runs"))
            context.logger.info("one of attempt %s", context.attempt)

            async def lines() -> list[str]:
                return [line.message for line in await app.run_handle(context.run_id).logs()]

            await eventually(lines, lambda found: f"one of attempt {context.attempt}" in found)
            context.logger.info("two of attempt %s", context.attempt)
            if context.attempt == 1:
                raise RuntimeError("once more")
            await context.complete_in(connection)

    await app.start()
    try:
        handle = await book.enqueue()
        await handle.result("60s")
        lines = [line.message for line in await handle.logs()]
        said = [line for line in lines if "of attempt" in line]
        assert said == [f"{n} of attempt {attempt}" for attempt in (1, 2) for n in ("one", "two")]
        assert [line.number for line in await handle.logs()] == list(range(1, len(lines) + 1))
    finally:
        await app.stop()
        await engine.dispose()
