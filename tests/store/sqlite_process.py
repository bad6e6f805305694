"""A process of its own that works on a SQLite store, for tests that need a second one.

It says on stdout what it has done, a line each, so that a test can wait for it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

from chimes.errors import StoreUnavailable
from chimes.model.planning import plan
from chimes.store.sql import open_sqlite
from tests.builders import a_node, a_schedule, due_schedule, places

LONG_LEASE = timedelta(minutes=10)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def fire(path: str, name: str) -> None:
    """Fire everything that is due as soon as a line comes in, and say what became of it."""
    store = open_sqlite(path)
    await store.open()
    await store.join(a_node(name), LONG_LEASE)
    say("ready")
    sys.stdin.readline()
    while True:
        fired = await store.fire_due(plan, limit=7, places=places(name, free=3))
        for run in (*fired.claimed, *fired.others):
            say(f"fired {run.id}")
        if not fired.more:
            break
    await store.close()
    say("done")


async def write(path: str, name: str) -> None:
    """Add schedules for ever, several at a time; say which are acknowledged."""
    store = open_sqlite(path)
    await store.open()

    async def add(worker: int) -> None:
        number = 0
        while True:
            number += 1
            schedule = a_schedule(id=f"{name}-{worker}-{number}")
            await store.add_schedule(schedule)
            say(f"added {schedule.id}")

    await asyncio.gather(*(add(worker) for worker in range(5)))


async def limited(path: str, name: str) -> None:
    """Add schedules in groups until the files may grow no further; then make room and go on."""
    store = open_sqlite(path)
    await store.open()
    await store.add_schedule(a_schedule(id=f"{name}-first"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for a part of the first ten, however large the schema has become.
    room = os.stat(f"{path}-wal").st_size + 100_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))

    async def add(number: int) -> bool:
        schedule = a_schedule(id=f"{name}-{number}", name="x" * 5000)
        try:
            await store.add_schedule(schedule)
        except StoreUnavailable as error:
            say(f"refused {schedule.id} {error}")
            return False
        say(f"added {schedule.id}")
        return True

    numbers = count()
    while all(await asyncio.gather(*(add(next(numbers)) for _ in range(10)))):
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await add(next(numbers))
    await store.close()


async def add(path: str, name: str) -> None:
    """One due schedule, as soon as a line comes in."""
    store = open_sqlite(path)
    await store.open()
    say("ready")
    sys.stdin.readline()
    await store.add_schedule(due_schedule(id=name))
    await store.close()
    say("done")


async def start(path: str, name: str) -> None:
    """Open the store as soon as a line comes in."""
    store = open_sqlite(path)
    say("ready")
    sys.stdin.readline()
    await store.open()
    say(f"schema {(await store.status()).schema}")
    await store.close()


async def lock(path: str, _name: str) -> None:
    """Hold the write lock until a line comes in."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    say("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    say("done")


class Child:
    def __init__(self, verb: str, path: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.sqlite_process", verb, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait_for(self, line: str) -> None:
        found = self.line()
        assert found == line, found

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.read().splitlines()


@contextmanager
def child(verb: str, path: Path, name: str = "") -> Iterator[Child]:
    started = Child(verb, path, name)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe is not None
            pipe.close()


if __name__ == "__main__":
    verbs = {
        "fire": fire,
        "write": write,
        "add": add,
        "start": start,
        "limited": limited,
        "lock": lock,
    }
    asyncio.run(verbs[sys.argv[1]](sys.argv[2], sys.argv[3]))
