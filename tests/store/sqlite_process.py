"""A separate process that works on a SQLite store.

It prints each step on stdout, a line each, so that a test can wait for it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

from chimes.errors import StoreUnavailable
from chimes.model.planning import plan
from chimes.store.sql import open_sqlite
from tests.builders import a_node, a_schedule, claim_request, due_schedule
from tests.forking import Forked

LONG_LEASE = timedelta(minutes=10)


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def fire(path: str, name: str) -> None:
    """Fires everything that is due when a line comes in, and prints the result."""
    store = open_sqlite(path)
    await store.open()
    await store.join(a_node(name), LONG_LEASE)
    print_line("ready")
    sys.stdin.readline()
    while True:
        fired = await store.fire_due(plan, limit=7, request=claim_request(name, free=3))
        for run in (*fired.claimed, *fired.others):
            print_line(f"fired {run.id}")
        if not fired.more:
            break
    await store.close()
    print_line("done")


async def write(path: str, name: str) -> None:
    """Adds schedules for ever, several at a time; prints which are acknowledged."""
    store = open_sqlite(path)
    await store.open()

    async def add(worker: int) -> None:
        number = 0
        while True:
            number += 1
            schedule = a_schedule(id=f"{name}-{worker}-{number}")
            await store.add_schedule(schedule)
            print_line(f"added {schedule.id}")

    await asyncio.gather(*(add(worker) for worker in range(5)))


async def add_until_file_size_limit(path: str, name: str) -> None:
    """Adds schedules in groups until the file size limit is reached; then raises the limit and
    continues."""
    store = open_sqlite(path)
    await store.open()
    await store.add_schedule(a_schedule(id=f"{name}-first"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for a part of the first ten, however large the schema is.
    room = os.stat(f"{path}-wal").st_size + 100_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))

    async def add(number: int) -> bool:
        schedule = a_schedule(id=f"{name}-{number}", name="x" * 5000)
        try:
            await store.add_schedule(schedule)
        except StoreUnavailable as error:
            print_line(f"refused {schedule.id} {error}")
            return False
        print_line(f"added {schedule.id}")
        return True

    numbers = count()
    while all(await asyncio.gather(*(add(next(numbers)) for _ in range(10)))):
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await add(next(numbers))
    await store.close()


async def add(path: str, name: str) -> None:
    """Adds one due schedule when a line comes in."""
    store = open_sqlite(path)
    await store.open()
    print_line("ready")
    sys.stdin.readline()
    await store.add_schedule(due_schedule(id=name))
    await store.close()
    print_line("done")


async def start(path: str, name: str) -> None:
    """Opens the store when a line comes in."""
    store = open_sqlite(path)
    print_line("ready")
    sys.stdin.readline()
    await store.open()
    print_line(f"schema {(await store.status()).schema}")
    await store.close()


async def lock(path: str, _name: str) -> None:
    """Holds the write lock until a line comes in."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    print_line("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    print_line("done")


class Child:
    def __init__(self, verb: str, path: Path, name: str) -> None:
        theirs, ours = os.pipe()
        heard, said = os.pipe()
        try:
            self.process = Forked(
                [verb, str(path), name],
                env=os.environ,
                cwd=path.parent,
                files=(theirs, said, 2),
                module="tests.store.sqlite_process",
            )
        finally:
            os.close(theirs)
            os.close(said)
        self._input = os.fdopen(ours, "w")
        self._output = os.fdopen(heard)

    def line(self) -> str:
        return self._output.readline().strip()

    def wait_for(self, line: str) -> None:
        found = self.line()
        assert found == line, found

    def go(self) -> None:
        self._input.write("go\n")
        self._input.flush()

    def rest(self) -> list[str]:
        return self._output.read().splitlines()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._input.close()
        self._output.close()


@contextmanager
def child(verb: str, path: Path, name: str = "") -> Iterator[Child]:
    started = Child(verb, path, name)
    try:
        yield started
    finally:
        started.close()


def main() -> None:
    verbs = {
        "fire": fire,
        "write": write,
        "add": add,
        "start": start,
        "limited": add_until_file_size_limit,
        "lock": lock,
    }
    verb, path, name = sys.argv[1:]
    asyncio.run(verbs[verb](path, name))
