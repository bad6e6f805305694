"""Enqueue inside a transaction of the caller."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import asyncpg
import psycopg
import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from chimes import Chimes
from chimes.errors import InvalidInput, NotFound
from chimes.model.run import RunStatus
from chimes.sdk.tasks import AppTask
from tests.sdk.inspection import QUICK, runs_of


def an_app(url: str) -> Chimes:
    app = Chimes(url, settings=QUICK)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.task(concurrency=1)
    async def one_at_a_time(number: int) -> int:
        return number

    return app


def async_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    driver = "asyncpg" if scheme.startswith("postgres") else "asyncmy"
    name = "postgresql" if scheme.startswith("postgres") else "mysql"
    return f"{name}+{driver}://{rest}"


@pytest.fixture(params=["postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    name = "postgres_url" if request.param == "postgresql" else "mariadb_url"
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
async def engine(server_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(async_url(server_url))
    yield engine
    await engine.dispose()


@pytest.fixture
async def read_committed(server_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(async_url(server_url), isolation_level="READ COMMITTED")
    yield engine
    await engine.dispose()


async def create_orders_table(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE orders (number INTEGER)"))


async def insert_order(connection: AsyncConnection | AsyncSession) -> None:
    await connection.execute(text("INSERT INTO orders VALUES (1)"))


async def count_orders(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM orders"))).scalar_one())


async def test_commit_creates_the_run(server_url: str, engine: AsyncEngine) -> None:
    app = an_app(server_url)
    await app.start()
    try:
        await create_orders_table(engine)
        async with engine.begin() as connection:
            await insert_order(connection)
            greet = app.registry.get("greet")
            handle = await app.enqueue(greet.name, {"name": "Ann"}, connection=connection)
            with pytest.raises(NotFound):  # not visible outside yet
                await handle.status()
        assert await handle.result("60s") == "hello Ann"
        assert await count_orders(engine) == 1
    finally:
        await app.stop()


async def test_rollback_discards_the_run(server_url: str, engine: AsyncEngine) -> None:
    app = an_app(server_url)
    async with app:
        await create_orders_table(engine)
        async with engine.connect() as connection:
            await connection.begin()
            await insert_order(connection)
            handle = await app.enqueue("greet", {"name": "Ann"}, connection=connection)
            await connection.rollback()
        with pytest.raises(NotFound):
            await handle.status()
        assert await runs_of(app) == []
        assert await count_orders(engine) == 0


async def test_enqueue_in_an_async_session(server_url: str, engine: AsyncEngine) -> None:
    app = an_app(server_url)
    async with app:
        async with AsyncSession(engine) as session:
            handle = await app.enqueue("greet", {"name": "Ann"}, connection=session)
            await session.commit()
        assert await handle.status() is RunStatus.QUEUED
        async with AsyncSession(engine) as session:
            lost = await app.enqueue("greet", {"name": "Bob"}, connection=session)
        with pytest.raises(NotFound):
            await lost.status()


async def test_key_deduplicates_runs_across_transactions(
    server_url: str, engine: AsyncEngine
) -> None:
    app = an_app(server_url)
    async with app:

        async def enqueue(number: int) -> str:
            async with engine.begin() as connection:
                handle = await app.enqueue(
                    "greet", {"name": f"{number}"}, key="once", connection=connection
                )
                return handle.id

        ids = await asyncio.gather(*(enqueue(number) for number in range(5)))
        assert len(set(ids)) == 1
        assert len(await runs_of(app)) == 1
        assert (await app.enqueue("greet", {"name": "x"}, key="once")).id == ids[0]


async def test_concurrency_of_a_task_is_respected(
    server_url: str, read_committed: AsyncEngine
) -> None:
    app = an_app(server_url)
    async with app:
        async with read_committed.begin() as connection:
            for number in range(3):
                await app.enqueue("one_at_a_time", {"number": number}, connection=connection)
        assert sorted(run.blocked for run in await runs_of(app)) == [False, True, True]
        await app.start()
        try:
            for run in await runs_of(app):
                await app.run_handle(run.id).result("60s")
        finally:
            await app.stop()


async def test_limit_needs_read_committed(server_url: str) -> None:
    """Otherwise it would count runs by an older snapshot and could block one forever."""
    app = an_app(server_url)
    engine = create_async_engine(async_url(server_url), isolation_level="REPEATABLE READ")
    async with app:
        async with engine.connect() as connection:
            await connection.begin()
            await app.enqueue("greet", {"name": "Ann"}, connection=connection)
            with pytest.raises(InvalidInput, match="READ COMMITTED; this one is at REPEATABLE"):
                await app.enqueue("one_at_a_time", {"number": 1}, connection=connection)
            await connection.commit()
        assert [run.schedule_name for run in await runs_of(app)] == ["greet"]
    await engine.dispose()


async def test_enqueue_in_a_plain_asyncpg_connection(postgres_url: str) -> None:
    app = an_app(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    await app.start()
    try:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES (1)")
            handle = await app.enqueue("greet", {"name": "Ann"}, connection=connection)
            limited = await app.enqueue("one_at_a_time", {"number": 7}, connection=connection)
            again = await app.enqueue("greet", {"name": "x"}, key="k", connection=connection)
            twice = await app.enqueue("greet", {"name": "x"}, key="k", connection=connection)
            assert again == twice
        assert await handle.result("60s") == "hello Ann"
        assert await limited.result("60s") == 7
        transaction = connection.transaction()
        await transaction.start()
        lost = await app.enqueue("greet", {"name": "Bob"}, connection=connection)
        await transaction.rollback()
        with pytest.raises(NotFound):
            await lost.status()
    finally:
        await app.stop()
        await connection.close()


async def test_codecs_of_an_asyncpg_connection_are_kept(postgres_url: str) -> None:
    app = an_app(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.set_type_codec(
            "json", schema="pg_catalog", encoder=str, decoder=lambda _: "mine"
        )
        async with app:
            async with connection.transaction():
                await app.enqueue("greet", {"name": "Ann"}, connection=connection)
            assert await connection.fetchval("""SELECT '{"a": 1}'::json""") == "mine"
    finally:
        await connection.close()


async def test_enqueue_in_a_pooled_asyncpg_connection(postgres_url: str) -> None:
    app = an_app(postgres_url)
    async with app, asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            handle = await app.enqueue("greet", {"name": "Ann"}, connection=connection)
        assert await handle.status() is RunStatus.QUEUED


async def test_enqueue_in_sqlalchemy_on_sqlite(sqlite_url: str, tmp_path: Path) -> None:
    app = an_app(sqlite_url)
    engine = create_engine(f"sqlite:///{tmp_path / 'chimes.db'}")
    async with app:
        with engine.begin() as connection:
            handle = await app.enqueue("greet", {"name": "Ann"}, connection=connection)
        assert await handle.status() is RunStatus.QUEUED
        with Session(engine) as session:
            lost = await app.enqueue("greet", {"name": "Bob"}, connection=session)
            session.rollback()
        with pytest.raises(NotFound):
            await lost.status()
    engine.dispose()


async def test_unsuitable_connections_are_rejected(sqlite_url: str, tmp_path: Path) -> None:
    app = an_app(sqlite_url)
    engine = create_engine(f"sqlite:///{tmp_path / 'chimes.db'}")
    elsewhere = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    async with app:
        with engine.connect() as connection:
            await assert_refused(app, connection, "no open transaction")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SELECT 1"))
            await assert_refused(app, connection, "AUTOCOMMIT")
        with elsewhere.begin() as connection:
            await assert_refused(app, connection, "not connected to the database")
        await assert_refused(app, 42, "SQLAlchemy")
    engine.dispose()
    elsewhere.dispose()
    async with an_app("memory://") as other:
        with create_engine("sqlite://").begin() as connection:
            await assert_refused(other, connection, "not a SQL database")


async def assert_refused(app: Chimes, connection: Connection | int, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as error:
        await app.enqueue("greet", {"name": "Ann"}, connection=connection)
    assert error.value.field == "connection"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_connections_of_synchronous_drivers(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """sqlite3 and psycopg, whose connections Django has."""
    url: str = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    app = an_app(url)
    async with app:
        if kind == "sqlite":
            raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            begin = partial(raw.execute, "BEGIN")
        else:
            raw = psycopg.connect(url)
            begin = partial(setattr, raw, "autocommit", False)
            raw.autocommit = True
        with closing(raw):
            with pytest.raises(InvalidInput, match="no open transaction"):
                await greet_of(app).options(connection=raw).enqueue("early")
            begin()
            handle = await greet_of(app).options(connection=raw, key="ann").enqueue("ann")
            with pytest.raises(NotFound):
                await handle.run()
            raw.commit()
            assert (await handle.run()).status is RunStatus.QUEUED
            begin()
            again = await greet_of(app).options(connection=raw, key="ann").enqueue("ann")
            assert again == handle
            limited = AppTask.options(task_of(app, "one_at_a_time"), connection=raw)
            lost = await limited.enqueue(1)
            raw.rollback()
            with pytest.raises(NotFound):
                await lost.run()
        assert len(await runs_of(app)) == 1
        if kind == "postgresql":
            engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
            with engine.begin() as connection:
                await greet_of(app).options(connection=connection).enqueue("bob")
            engine.dispose()
            assert len(await runs_of(app)) == 2
        other = sqlite3.connect(":memory:", isolation_level=None)
        with closing(other):
            other.execute("BEGIN")
            with pytest.raises(InvalidInput, match=r"database of the store|but the store is on"):
                await greet_of(app).options(connection=other).enqueue("x")


def task_of(app: Chimes, name: str) -> AppTask[..., object]:
    task = app.registry.get(name)
    return AppTask(task, task.function, app._submit)


def greet_of(app: Chimes) -> AppTask[..., object]:
    return task_of(app, "greet")
