"""New databases on the session's PostgreSQL in which Chimes has set up its tables already: a copy
of one costs a tenth of what the migrations do. For nodes, which start on what they find."""

from __future__ import annotations

import secrets
from functools import cache

from chimes.store.sql import open_postgres
from tests.servers.kinds import POSTGRES, USER
from tests.servers.server import wait_for
from tests.servers.session import shared


def ready_database() -> str:
    """Its URL; `drop_database` in the end, as with any."""
    server, name = shared(POSTGRES), f"chimes_{secrets.token_hex(6)}"
    server.admin(f"CREATE DATABASE {name} OWNER {USER} TEMPLATE {_original()} STRATEGY file_copy")
    return server.kind.url(server.port, name)


@cache
def _original() -> str:
    """One for each worker. Nobody is connected to it, or it could not be copied."""
    url = shared(POSTGRES).new_database()
    wait_for(_set_up(url))
    return url.rpartition("/")[2]


async def _set_up(url: str) -> None:
    store = open_postgres(url)
    await store.open()
    await store.close()
