"""The schema on a shared server: an empty database is set up by whoever comes first; an older
schema waits for `chimes store migrate`, which nodes at work do not notice (F70, F71)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.util import greenlet_spawn

from chimes.errors import SchemaMismatch, StoreUnavailable
from chimes.failpoints import hit
from chimes.store.sql.message_tables import metadata
from chimes.store.sql.migrations import HEAD, OLDEST, REVISIONS, SERVER_VERSIONS
from chimes.store.sql.server import Server, Trouble
from chimes.wording import say

_log = logging.getLogger(__name__)

_STORED = text(f"SELECT version_num FROM {SERVER_VERSIONS}")  # noqa: S608 our own name
_MIN_REVISION = text("SELECT value FROM store_facts WHERE name = 'min_revision'")
_NEEDED = HEAD if OLDEST == HEAD else say("{oldest} to {newest}", oldest=OLDEST, newest=HEAD)
#: A step that cannot get its lock is tried again for this long.
PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.5


def check_or_set_up(connection: Connection, server: Server) -> str:
    """Raises SchemaMismatch. The answer is a warning, or empty."""
    stored = stored_revision(connection)
    if stored is None:
        server.lock_set_up(connection)
        stored = stored_revision(connection)
        if stored is None:
            server.upgrade(connection, online=False)
            hit("migrate.before_commit")
            stored = HEAD
    warning = _judged(connection, stored)
    connection.commit()
    return warning


def stored_revision(connection: Connection) -> str | None:
    """None: there is nothing of ours yet."""
    names = set(inspect(connection).get_table_names())
    if SERVER_VERSIONS in names:
        found = connection.execute(_STORED).scalar()
        if isinstance(found, str):
            return found
    ours = names & set(metadata.tables)
    if ours and SERVER_VERSIONS not in names:
        raise SchemaMismatch(
            say(
                "the database has tables {tables} that are not of Chimes; give Chimes"
                " a database or schema of its own",
                tables=", ".join(sorted(ours)),
            )
        )
    return None


def _judged(connection: Connection, stored: str) -> str:
    if stored in REVISIONS:
        if REVISIONS.index(stored) < REVISIONS.index(OLDEST):
            raise SchemaMismatch(
                say(
                    "the store has schema {stored}, this version of Chimes needs {needed}:"
                    " run `chimes store migrate`",
                    stored=stored,
                    needed=_NEEDED,
                )
            )
        return ""
    oldest = connection.execute(_MIN_REVISION).scalar()
    if isinstance(oldest, int) and int(HEAD) >= oldest:
        return say(
            "the store has schema {stored}, which is newer than this version of Chimes ({head})"
            " and still works with it; update this node soon",
            stored=stored,
            head=HEAD,
        )
    raise SchemaMismatch(
        say(
            "the store has schema {stored}, which this version of Chimes (schema {head}) is too old"
            " for: update Chimes on this node",
            stored=stored,
            head=HEAD,
        )
    )


async def migrate(engine: Engine, server: Server) -> tuple[str | None, str]:
    """Each step is a transaction of its own that can be repeated, so that no lock is held for
    long and a migrator that was killed is simply started again."""
    async with _autocommitting(engine) as connection:
        await greenlet_spawn(server.prepare_migration, connection)
        before = await greenlet_spawn(stored_revision, connection)
        if before is not None and before not in REVISIONS:
            raise SchemaMismatch(
                say(
                    "the store has schema {before}, which this version of Chimes (schema {head})"
                    " does not know: migrate with the newer one",
                    before=before,
                    head=HEAD,
                )
            )
        if before == HEAD:
            return before, HEAD
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        await _locked(connection, server, deadline)
        while True:
            try:
                await greenlet_spawn(server.upgrade, connection, online=True)
            except Exception as error:
                late = loop.time() > deadline
                if server.trouble(error) is not Trouble.CONFLICT or _repeats(error) or late:
                    raise
                _log.info("a step of the migration waits for a lock: %s", error)
                await asyncio.sleep(random.uniform(_PAUSE_SECONDS / 2, _PAUSE_SECONDS))  # noqa: S311
            else:
                return before, HEAD


@asynccontextmanager
async def _autocommitting(engine: Engine) -> AsyncIterator[Connection]:
    connection = await greenlet_spawn(engine.connect)
    try:
        await greenlet_spawn(connection.execution_options, isolation_level="AUTOCOMMIT")
        yield connection
    finally:
        await greenlet_spawn(connection.close)


def _repeats(error: Exception) -> bool:
    """A unique key that stands in the way now will do so the next time."""
    return isinstance(error, IntegrityError)


async def _locked(connection: Connection, server: Server, deadline: float) -> None:
    while not await greenlet_spawn(server.lock_migration, connection):
        if asyncio.get_running_loop().time() > deadline:
            raise StoreUnavailable(say("somebody else has been migrating this store for long"))
        await asyncio.sleep(_PAUSE_SECONDS)
