"""The database servers of the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import KINDS, MARIADB, POSTGRES, shared, start, start_redis
from tests.servers import kinds as kinds_module
from tests.servers.kinds import Kind, MissingServer
from tests.servers.server import wait_for, wait_for_exit

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("kind", [POSTGRES, MARIADB], ids=lambda kind: kind.name)


async def test_every_test_has_its_own_database(postgres_url: str, mariadb_url: str) -> None:
    import asyncmy
    import asyncpg

    postgres = await asyncpg.connect(postgres_url, ssl=False)
    assert await postgres.fetchval("SELECT count(*) FROM pg_class WHERE relname = 't'") == 0
    await postgres.execute("CREATE TABLE t (x int)")
    await postgres.close()

    address, name = mariadb_url.removeprefix("mariadb://chimes@").split("/")
    host, port = address.split(":")
    mariadb = await asyncmy.connect(host=host, port=int(port), user="chimes", db=name)
    async with mariadb.cursor() as cursor:
        await cursor.execute("SHOW TABLES")
        assert not await cursor.fetchall()
        await cursor.execute("CREATE TABLE t (x int)")
    await mariadb.ensure_closed()


@BOTH
def test_tests_share_one_server(kind: Kind) -> None:
    assert shared(kind) is shared(kind)
    _, _, directory = os.environ["CHIMES_TEST_SERVERS"].partition(":")
    known = json.loads((Path(directory) / f"{kind.name}.json").read_text())
    assert known["pid"] == shared(kind).pid


@BOTH
def test_data_survive_kill_and_restart(kind: Kind) -> None:
    with start(kind, durable=True) as server:
        name = server.new_database().rsplit("/", 1)[1]
        postgres = "SELECT datname FROM pg_database"
        list_them = postgres if kind is POSTGRES else "SHOW DATABASES"
        for end in (server.kill9, server.shut_down):
            pid = server.pid
            end()
            with pytest.raises(Exception, match=r"."):
                server.admin("SELECT 1")
            server.restart()
            assert server.pid != pid
            assert (name,) in server.admin(list_them)
    assert wait_for_exit(server.pid, 0)


@BOTH
def test_paused_server_answers_after_resume(kind: Kind) -> None:
    with start(kind) as server:
        server.pause()
        code = (
            "from tests.servers import KINDS; from tests.servers.server import wait_for\n"
            f"print(wait_for(KINDS[{kind.name!r}].admin({server.port}, ('SELECT 7',))))"
        )
        asking = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            asking.communicate(timeout=2)
        server.resume()
        answer, _ = asking.communicate(timeout=60)
        assert answer.strip() == b"[(7,)]"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_server_exits_with_its_parent_process(kind: Kind) -> None:
    code = (
        "import sys; from tests.servers import *\n"
        f"server = start(KINDS[{kind.name!r}]); print(server.pid, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    pid = int(process.stdout.readline())
    assert not wait_for_exit(pid, 0)
    process.kill()
    process.wait(10)
    assert wait_for_exit(pid, 60)
    process.stdout.close()
    process.stdin.close()


def test_shared_servers_exit_with_a_killed_session() -> None:
    code = (
        "import os, sys; from tests.servers import *; from tests.servers import session\n"
        "session.begin(); print(shared(POSTGRES).pid, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert wait_for_exit(pid, 60)
    process.stdout.close()
    process.stdin.close()


def test_redis_answers() -> None:
    with start_redis() as server:
        assert server.admin("PING") == [("+PONG",)]


def test_missing_server_binary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds_module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(MissingServer, match=r"tools/packages\.sh"):
        start(MARIADB)


def test_a_private_server_takes_settings() -> None:
    with start(POSTGRES, settings={"statement_timeout": "123ms"}) as server:
        assert wait_for(POSTGRES.admin(server.port, ("SHOW statement_timeout",))) == [("123ms",)]
