"""What a `ServerDatabase` asks of the database server behind it: one class for each product."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from sqlalchemy import Connection, Engine

from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.migrations import SERVER_VERSIONS, upgrade

#: F24, F31: how long to wait for a connection to be made, and for one to be free.
CONNECT_SECONDS = 3.0
POOL_SECONDS = 5.0
#: F17: what a session may hold on to, even if its client has stopped.
IDLE_SECONDS = 10
STATEMENT_SECONDS = 15
LOCK_SECONDS = 5
#: F24: an answer that does not come ends the connection.
SILENCE_SECONDS = 10


class Trouble(Enum):
    """Why a transaction did not go through. Nothing of it has happened, unless the connection was
    lost while it was committing."""

    #: Somebody else was in the way (deadlock, serialization, lock wait, unique key): try again.
    CONFLICT = auto()
    #: The connection is gone: try again on another.
    LOST = auto()
    #: The server takes no writes (F27).
    READ_ONLY = auto()
    #: The server cannot help now: full, starting, shutting down, too slow, not to be reached.
    REFUSED = auto()


class Notices(Protocol):
    """A connection over which processes wake each other."""

    lost: asyncio.Event

    async def tell(self) -> None:
        """Wake the others."""

    async def close(self) -> None: ...


class Server(ABC):
    dialect: Dialect
    #: Where it is, without any password.
    location: str

    @abstractmethod
    def engine(self, *, size: int, overflow: int) -> Engine:
        """A pool of connections for one event loop: `size` are kept, `overflow` more are made when
        they are all in use, and beyond that callers wait for POOL_SECONDS. Sessions are set up
        with the limits above. What it does, it does inside `greenlet_spawn` only."""

    def reading(self, engine: Engine) -> Engine:
        """The same pool, in transactions that see one state of the database and change nothing."""
        return engine.execution_options(isolation_level="REPEATABLE READ")

    def looking(self, engine: Engine) -> Engine:
        """The same pool without transactions, where that saves a trip to the server."""
        return self.reading(engine)

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble | None:
        """None: the error is not of the database's making."""

    def unsent(self, error: BaseException) -> bool:
        """Whether the connection was known to be closed before anything was sent through it."""
        return False

    def upgrade(self, connection: Connection, *, online: bool) -> None:
        """Bring the schema to HEAD, remembered in SERVER_VERSIONS. `online`: nodes may be at work,
        there is no transaction around it, and each step can be repeated."""
        upgrade(connection, online=online, versions=SERVER_VERSIONS)

    @abstractmethod
    def lock_set_up(self, connection: Connection) -> None:
        """Wait until nobody else sets up this database; held at least until the end of the
        transaction."""

    @abstractmethod
    def lock_migration(self, connection: Connection) -> bool:
        """The lock of the one migrator, for as long as the connection lives; False: another has
        it."""

    @abstractmethod
    def prepare_migration(self, connection: Connection) -> None:
        """Session settings under which a migration harms no node: no statement limit, but only a
        short wait for locks."""

    @abstractmethod
    def identity(self, connection: Connection) -> str:
        """Which server and which of its histories this is (F28); changes at a fail-over."""

    async def notices(self, heard: Callable[[], None]) -> Notices | None:
        """None: this server cannot wake anybody, and polling has to do."""
        return None
