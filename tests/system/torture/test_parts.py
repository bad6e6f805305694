"""Parts of the harness: oracle, wire protocols, proxy, plan, command line."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.torture import faults
from chimes.torture.database import Database
from chimes.torture.faults import QUIET, WINDOW, Fault, kinds_for, make_plan, store_kinds_for
from chimes.torture.oracle import SECOND, Cron, Interval, Moment, micros, spec_of, text_of
from chimes.torture.proxy import MysqlWatch, PostgresWatch, Proxy, RedisWatch
from chimes.torture.report import missing_counts

NOON = micros("2026-05-04T12:00:00Z")


# --- oracle ---------------------------------------------------------------------------------------
def test_times_round_trip_as_text() -> None:
    assert text_of(NOON) == "2026-05-04T12:00:00Z"
    assert micros("2026-05-04T12:00:00.000001Z") == NOON + 1


@pytest.mark.parametrize(
    ("every", "step"),
    [("PT2S", 2_000_000), ("1500ms", 1_500_000), ("PT1.5S", 1_500_000), ("PT1M", 60_000_000)],
)
def test_interval_slots_start_at_the_anchor(every: str, step: int) -> None:
    spec = spec_of({"kind": "every", "every": every, "anchor": text_of(NOON + 7)})
    assert spec == Interval(step, NOON + 7)
    # The anchor is the first slot; the range excludes its start and includes its end.
    assert list(spec.slots(NOON, NOON + 7 + step)) == [NOON + 7, NOON + 7 + step]
    assert list(spec.slots(NOON + 7, NOON + 7 + 2 * step)) == [NOON + 7 + step, NOON + 7 + 2 * step]


def test_cron_slots() -> None:
    def seconds(expression: str, until: int) -> list[int]:
        spec = spec_of({"kind": "cron", "expression": expression, "timezone": "UTC"})
        assert isinstance(spec, Cron)
        return [(slot - NOON) // SECOND for slot in spec.slots(NOON, NOON + until * SECOND)]

    assert seconds("*/20 * * * * *", 60) == [20, 40, 60]
    assert seconds("1-59/25 * * * * *", 70) == [1, 26, 51, 61]
    assert seconds("0,7 1 12 * * *", 3600) == [60, 67]
    assert seconds("0 0 0 * * 2", 24 * 3600) == [12 * 3600]  # 4 May 2026 is a Monday
    assert seconds("0 0 0 6 5 *", 3 * 24 * 3600) == [36 * 3600]


def test_once_has_one_slot() -> None:
    spec = spec_of({"kind": "once", "at": text_of(NOON), "timezone": "UTC"})
    assert spec == Moment(NOON)
    assert list(spec.slots(NOON - 1, NOON)) == [NOON]
    assert list(spec.slots(NOON, NOON + 1)) == []


@pytest.mark.parametrize(
    "trigger",
    [
        {"kind": "every", "every": "1s", "anchor": text_of(NOON), "jitter": "1s"},
        {"kind": "cron", "expression": "* * * * *", "timezone": "UTC"},
        {"kind": "cron", "expression": "0 0 0 1 * 1", "timezone": "UTC"},
        {"kind": "cron", "expression": "* * * * * *", "timezone": "Asia/Bangkok"},
        {"kind": "sunrise"},
    ],
    ids=str,
)
def test_unsupported_triggers_are_rejected(trigger: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not know|not a"):
        spec_of(trigger)


# --- wire -----------------------------------------------------------------------------------------
def _pg(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


STARTUP = (8).to_bytes(4) + b"\x04\xd2\x16\x2f" + (8).to_bytes(4) + b"\0\x03\0\0"
READY = _pg(b"Z", b"I")
IN_TRANSACTION = _pg(b"Z", b"T")


def _pg_watch() -> PostgresWatch:
    watch = PostgresWatch()
    assert not watch.feed(STARTUP[:8])
    watch.heard(b"N")
    assert not watch.feed(STARTUP[8:])
    watch.heard(READY)
    return watch


def test_postgres_commits_are_detected() -> None:
    watch = _pg_watch()
    assert not watch.feed(_pg(b"Q", b"BEGIN;\0"))
    watch.heard(IN_TRANSACTION)
    assert not watch.feed(_pg(b"Q", b"UPDATE runs SET x = 1\0"))
    assert watch.feed(_pg(b"Q", b"COMMIT;\0"))
    watch.heard(READY)
    assert watch.feed(_pg(b"Q", b"insert into t values (1)\0"))
    assert not watch.feed(_pg(b"Q", b"SELECT 1 FOR UPDATE\0"))


def test_postgres_writes_outside_of_a_transaction_count_as_commits() -> None:
    watch = _pg_watch()
    parse = _pg(b"P", b"s1\0WITH a AS (SELECT 1) UPDATE t SET x = 1\0\0\0")
    assert not watch.feed(parse + _pg(b"S", b""))
    execute = _pg(b"B", b"\0s1\0" + b"\0" * 6) + _pg(b"E", b"\0\0\0\0\0")
    assert not watch.feed(execute)
    assert watch.feed(_pg(b"S", b""))
    watch.heard(IN_TRANSACTION)
    assert not watch.feed(execute + _pg(b"S", b""))


def test_postgres_messages_may_be_split() -> None:
    watch = _pg_watch()
    commit = _pg(b"Q", b"COMMIT\0")
    assert [watch.feed(commit[at : at + 1]) for at in range(len(commit))] == [
        *([False] * (len(commit) - 1)),
        True,
    ]


def test_mysql_commits_are_detected() -> None:
    def packet(body: bytes, number: int = 0) -> bytes:
        return len(body).to_bytes(3, "little") + bytes([number]) + body

    watch = MysqlWatch()
    assert not watch.feed(packet(b"\x85\xa6log-in commit", 1))
    assert watch.feed(packet(b"\x03insert into t values (1)"))
    assert not watch.feed(packet(b"\x03SET AUTOCOMMIT = 0"))
    assert not watch.feed(packet(b"\x03insert into t values (1)"))
    commit = packet(b"\x03COMMIT")
    assert not watch.feed(commit[:5])
    assert watch.feed(commit[5:])
    assert not watch.feed(packet(b"\x03SELECT 1"))


def test_redis_commits_are_detected() -> None:
    def command(*words: bytes) -> bytes:
        sized = (b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        return b"*%d\r\n%s" % (len(words), b"".join(sized))

    watch = RedisWatch()
    assert not watch.feed(command(b"AUTH", b"commit"))
    assert not watch.feed(command(b"EVALSHA", b"x", b"0", b"runs", b'["commit"]'))
    assert watch.feed(command(b"EVALSHA", b"x", b"0", b"claim", b"[]\r\n"))
    split = command(b"EVALSHA", b"x", b"0", b"commit", b"[]")
    assert [watch.feed(split[at : at + 1]) for at in range(len(split))] == [
        *([False] * (len(split) - 1)),
        True,
    ]
    assert not watch.feed(command(b"PING"))


# --- proxy ----------------------------------------------------------------------------------------
class Echo:
    """A server that answers every message like PostgreSQL."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1024):
                self.heard.append(data)
                writer.write(READY)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    found = Echo()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    found = Proxy(echo.port, _pg_watch, random.Random(1))
    await found.start()
    yield found
    await found.stop()


async def _ask(proxy: Proxy, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(100), 60)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


SELECT = _pg(b"Q", b"SELECT 1\0")


async def test_proxy_passes_and_cuts(proxy: Proxy) -> None:
    assert await _ask(proxy, SELECT) == READY
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(SELECT)
    assert await reader.read(100) == READY
    proxy.set("cut")
    with contextlib.suppress(ConnectionError):
        assert await reader.read(100) == b""
    assert await _ask(proxy, SELECT) == b""
    proxy.set("pass")
    assert await _ask(proxy, SELECT) == READY
    writer.transport.abort()


async def test_blackhole_holds_data_and_keeps_connections_open(proxy: Proxy) -> None:
    proxy.set("blackhole")
    asking = asyncio.create_task(_ask(proxy, SELECT))
    answered, _ = await asyncio.wait((asking,), timeout=0.3)
    assert not answered
    proxy.set("pass")
    assert await asking == READY


async def test_ambiguous_loses_the_answer_to_one_commit(proxy: Proxy, echo: Echo) -> None:
    proxy.set("ambiguous")
    assert await _ask(proxy, SELECT) == READY
    assert await _ask(proxy, _pg(b"Q", b"COMMIT\0")) == b""
    assert proxy.ambiguous == 1
    assert echo.heard[-1].endswith(b"COMMIT\0")
    assert await _ask(proxy, _pg(b"Q", b"COMMIT\0")) == READY


async def test_truncate_closes_the_connection(proxy: Proxy) -> None:
    proxy.set("truncate", 2)
    assert await _ask(proxy, SELECT) == b""


async def test_delay_applies_in_both_directions(proxy: Proxy) -> None:
    proxy.set("delay", 0.1)
    began = asyncio.get_running_loop().time()
    assert await _ask(proxy, SELECT) == READY
    assert asyncio.get_running_loop().time() - began >= 0.2


# --- plan -----------------------------------------------------------------------------------------
SERVER = Database("postgresql://u:p@127.0.0.1:1/d", restart_command="true")


def _plan(seed: int, database: Database = SERVER) -> list[Fault]:
    return make_plan(
        seed,
        seconds=120,
        nodes=4,
        rate=2.6,
        weights=kinds_for(database),
        store_kinds=store_kinds_for(database),
    )


def test_plan_depends_on_the_seed_only() -> None:
    assert _plan(1) == _plan(1) != _plan(2)


def test_plan_round_trips_through_its_file(tmp_path: Path) -> None:
    faults.save(_plan(3), tmp_path / "plan.json")
    assert faults.read(tmp_path / "plan.json") == _plan(3)


def test_plan_keeps_a_healthy_node_and_ends_faults_in_their_window() -> None:
    for seed in range(5):
        plan = _plan(seed)
        assert len(plan) >= 150
        assert {fault.kind for fault in plan} >= {"ambiguous", "cut", "kill9", "restart"}
        for fault in plan:
            others = {
                other.node
                for other in plan
                if other.at <= fault.at < other.at + other.seconds and other.node >= 0
            }
            assert len(others) < 4
            # Inside its window or at the beginning of the quiet period.
            into = fault.at % (WINDOW + QUIET)
            assert into <= WINDOW
            assert into + fault.seconds <= WINDOW + QUIET / 2 + 0.001 or fault.node < 0


def test_plan_has_only_faults_that_can_be_injected(tmp_path: Path) -> None:
    everywhere = set(faults.ANYWHERE)
    for url, more in {
        f"sqlite:///{tmp_path / 'x.db'}": {"lock"},
        f"json:///{tmp_path / 'x'}": set[str](),
        "postgresql://db.example.org/d?sslmode=verify-full": set(),
        "rediss://cache.example.org/1": set(),
        "redis://cache.example.org/1": {*faults.WITH_PROXY, "ambiguous", *faults.OF_THE_STORE},
    }.items():
        found = {fault.kind for fault in _plan(1, Database(url))}
        assert found <= everywhere | more, url


def test_url_through_a_proxy_keeps_user_password_and_options() -> None:
    database = Database("mariadb://u:p%40@db.example.org/d?charset=utf8mb4")
    assert database.through(7) == "mariadb://u:p%40@127.0.0.1:7/d?charset=utf8mb4"
    assert (database.host, database.port) == ("db.example.org", 3306)
    assert SERVER.through(7) == "postgresql://u:p@127.0.0.1:7/d?sslmode=disable"


# --- result ---------------------------------------------------------------------------------------
def test_counts_below_the_minimum_are_reported() -> None:
    enough = {
        "slots": 1200,
        "faults": 30,
        "fault_classes": 5,
        "fenced_writes": 1,
        "takeovers": 4,
        "ambiguous_commits": 1,
    }

    def missing(minutes: float, *, nodes: int = 3, readable: bool = True, **less: int) -> list[str]:
        counts = enough | less
        return missing_counts(minutes, counts, nodes=nodes, readable=readable, classes=12)

    assert missing(2) == []
    assert missing(2, fenced_writes=0) == ["fenced_writes: 0 of 1"]
    assert missing(2, slots=1199) == ["slots: 1199 of 1200"]
    assert missing(1, slots=1199) == []
    assert missing(2, ambiguous_commits=0) == ["ambiguous_commits: 0 of 1"]
    assert missing(2, ambiguous_commits=0, readable=False) == []
    assert missing(2, takeovers=0, fenced_writes=0, nodes=1) == []


def test_encrypted_postgres_connection_is_not_read() -> None:
    watch = PostgresWatch()
    assert not watch.feed((8).to_bytes(4) + b"\x04\xd2\x16\x2f")
    assert not watch.feed(b"\x16\x03\x01\x02\x00\x01\x00\x01")
    assert not watch.feed(_pg(b"Q", b"COMMIT;\0"))
