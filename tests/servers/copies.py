"""Databases on the session's PostgreSQL with the schema already created.

A copy costs a third of what the migrations cost. Unlike the databases of `prepared.py`, a copy
belongs to one test, which may leave it in any state: with other tables, with nodes that still run.
"""

from __future__ import annotations

import secrets
from functools import cache

from chimes.store.sql import open_postgres
from tests.servers.kinds import POSTGRES, USER
from tests.servers.server import wait_for
from tests.servers.session import shared


def copied_database() -> str:
    """Returns the URL of a new database; drop it with `drop_database`."""
    server, name = shared(POSTGRES), f"chimes_{secrets.token_hex(6)}"
    server.admin(f"CREATE DATABASE {name} OWNER {USER} TEMPLATE {_template()} STRATEGY file_copy")
    return POSTGRES.url(server.port, name)


@cache
def _template() -> str:
    """One for each worker. PostgreSQL copies a database only while it has no connections."""
    url = shared(POSTGRES).new_database()
    wait_for(_set_up(url))
    return url.rpartition("/")[2]


async def _set_up(url: str) -> None:
    store = open_postgres(url)
    await store.open()
    await store.close()
