"""Parts of the harness: oracle, wire protocols, proxy, plan, command line."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.system.torture import nemesis
from tests.system.torture.__main__ import CANNOT_RUN, main
from tests.system.torture.nemesis import QUIET, WINDOW, Fault, make_plan
from tests.system.torture.oracle import SECOND, Cron, Interval, Moment, micros, spec_of, text_of
from tests.system.torture.profiles import PROFILES, below_minimum
from tests.system.torture.proxy import Proxy
from tests.system.torture.wire import MysqlWatch, PostgresWatch, RedisWatch

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
def _plan(seed: int, *, server: bool = True) -> list[Fault]:
    return make_plan(seed, seconds=120, nodes=4, rate=2.6, server=server)


def test_plan_depends_on_the_seed_only() -> None:
    assert _plan(1) == _plan(1) != _plan(2)


def test_plan_round_trips_through_its_file(tmp_path: Path) -> None:
    nemesis.save(_plan(3), tmp_path / "plan.json")
    assert nemesis.read(tmp_path / "plan.json") == _plan(3)


@pytest.mark.parametrize("seed", range(5))
def test_plan_keeps_a_healthy_node_and_ends_faults_in_their_window(seed: int) -> None:
    plan = _plan(seed)
    assert len(plan) >= 100
    assert len({fault.kind for fault in plan}) >= 8
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


def test_plan_without_a_server_has_no_server_faults() -> None:
    kinds = {fault.kind for fault in _plan(1, server=False)}
    assert kinds <= {"kill9", "stop_long", "stop_short", "failpoint", "sigterm", "lock"}


# --- result and command ---------------------------------------------------------------------------
def test_counts_below_the_minimum_are_reported() -> None:
    enough = {
        "slots": 10_000,
        "faults": 100,
        "fault_classes": 8,
        "fenced_writes": 5,
        "takeovers": 20,
        "ambiguous_commits": 2,
    }
    assert below_minimum(PROFILES["pr"], "pg", 2, enough) == []
    fewer = enough | {"fenced_writes": 4}
    assert below_minimum(PROFILES["pr"], "pg", 2, fewer) == ["fenced_writes: 4 of 5"]
    assert below_minimum(PROFILES["pr"], "pg", 1, fewer) == []
    assert below_minimum(PROFILES["pr"], "sqlite", 2, enough | {"ambiguous_commits": 0}) == []


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == CANNOT_RUN
    return capsys.readouterr().err


def test_invalid_arguments_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "here").write_text("")
    assert "is not empty" in _refused(capsys, "--store", "sqlite", "--out", str(tmp_path))
    assert "one node" in _refused(capsys, "--store", "json", "--nodes", "2")
    assert "invalid choice" in _refused(capsys, "--store", "paper")
