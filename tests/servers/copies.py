"""Databases of PostgreSQL that are set up already, each for one test alone.

To set one up costs more than most tests. A copy costs next to nothing, and unlike those of
`prepared.py` it may be left in any state: with other tables, with nodes that still run.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from chimes.store.sql import open_postgres
from tests.servers.kinds import POSTGRES, USER
from tests.servers.session import shared


def copied_database() -> str:
    """The URL of a database on the session's server that is set up and empty."""
    server, name = shared(POSTGRES), f"chimes_{secrets.token_hex(6)}"
    server.admin(f"CREATE DATABASE {name} OWNER {USER} TEMPLATE {_template()} STRATEGY file_copy")
    return POSTGRES.url(server.port, name)


@cache
def _template() -> str:
    """Nobody is connected to it, or it could not be copied."""
    url = shared(POSTGRES).new_database()

    async def set_up() -> None:
        store = open_postgres(url)
        await store.open()
        await store.close()

    # In a thread, since whoever asks may have an event loop.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, set_up()).result(60)
    return url.rsplit("/", 1)[1]
