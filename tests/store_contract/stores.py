"""All stores that the contract tests cover. A new store is one entry in KINDS.

A store whose module is missing or broken fails the suite instead of being skipped.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from chimes.clock import Clock
from chimes.envelope import Keyring, new_key
from chimes.store.port import Store
from tests.servers import MARIADB, POSTGRES
from tests.servers.prepared import Prepared
from tests.servers.redis_places import empty_redis_url

#: Of the stores on servers; embedded ones have a file.
KEYRING = Keyring([new_key()])


@dataclass(frozen=True, kw_only=True)
class StoreKind:
    name: str
    #: Makes an unopened store on the data in a directory.
    make: Callable[[Path, Clock], Store]
    #: Data survives close and open.
    durable: bool
    #: Several store objects, like those of several processes, can open the same data.
    shared: bool


def _memory(directory: Path, clock: Clock) -> Store:
    store: Store = import_module("chimes.store.memory").MemoryStore(clock=clock)
    return store


@cache
def empty_sqlite() -> bytes:
    """A migrated empty file, copied for each test."""

    async def set_up(path: Path) -> None:
        store: Store = import_module("chimes.store.sql").open_sqlite(path)
        await store.open()
        await store.close()

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as thread:
        path = Path(directory) / "chimes.db"
        thread.submit(asyncio.run, set_up(path)).result()
        return path.read_bytes()


def _sqlite(directory: Path, clock: Clock) -> Store:
    path = directory / "chimes.db"
    if not path.exists():
        path.write_bytes(empty_sqlite())
    store: Store = import_module("chimes.store.sql").open_sqlite(path, clock=clock)
    return store


def _json(directory: Path, clock: Clock) -> Store:
    store: Store = import_module("chimes.store.jsonfile").JsonFileStore(directory, clock=clock)
    return store


@cache
def _prepared(opener: str) -> Prepared:
    async def set_up(url: str) -> None:
        store: Store = getattr(import_module("chimes.store.sql"), opener)(url)
        await store.open()
        await store.close()

    return Prepared(POSTGRES if opener == "open_postgres" else MARIADB, set_up)


def _on_server(opener: str) -> Callable[[Path, Clock], Store]:
    """Stores the database URL in the directory."""

    def make(directory: Path, clock: Clock) -> Store:
        known = directory / opener
        if not known.exists():
            known.write_text(_prepared(opener).take())
        open_it = getattr(import_module("chimes.store.sql"), opener)
        store: Store = open_it(known.read_text(), clock=clock, keyring=KEYRING)
        return store

    return make


def _redis(directory: Path, clock: Clock) -> Store:
    known = directory / "redis"
    if not known.exists():
        known.write_text(empty_redis_url())
    open_redis = import_module("chimes.store.redis").open_redis
    store: Store = open_redis(known.read_text(), clock=clock, keyring=KEYRING)
    return store


KINDS = (
    StoreKind(name="memory", make=_memory, durable=False, shared=False),
    StoreKind(name="sqlite", make=_sqlite, durable=True, shared=True),
    StoreKind(name="json", make=_json, durable=True, shared=False),
    StoreKind(name="postgresql", make=_on_server("open_postgres"), durable=True, shared=True),
    StoreKind(name="mariadb", make=_on_server("open_mariadb"), durable=True, shared=True),
    StoreKind(name="redis", make=_redis, durable=True, shared=True),
)
DURABLE = tuple(kind for kind in KINDS if kind.durable)
SHARED = tuple(kind for kind in KINDS if kind.shared)


class Home:
    """The data of one test and the stores that are open on it."""

    def __init__(self, kind: StoreKind, directory: Path, clock: Clock) -> None:
        self.kind = kind
        self._directory = directory
        self._clock = clock
        self._open: list[Store] = []

    async def open(self) -> Store:
        """One more store object on the same data."""
        store = self.kind.make(self._directory, self._clock)
        await store.open()
        self._open.append(store)
        return store

    async def reopen(self) -> Store:
        """Closes all stores and opens one, as after a restart."""
        await self.close()
        return await self.open()

    async def close(self) -> None:
        while self._open:
            await self._open.pop().close()
