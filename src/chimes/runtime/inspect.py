"""Inspects a store on a server for `chimes doctor`, without opening or changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chimes.config import StoreLocation

if TYPE_CHECKING:
    from chimes.store.redis.server import RedisInspection
    from chimes.store.sql.database.inspection import Inspection


async def inspect_redis_store(location: StoreLocation) -> RedisInspection:
    from chimes.clock import SystemClock
    from chimes.store.redis.server import inspect_redis

    return await inspect_redis(
        location.server, SystemClock(), allow_volatile=location.allow_volatile
    )


async def inspect_server_store(location: StoreLocation) -> Inspection:
    from chimes.store.sql.database.inspection import inspect_server
    from chimes.store.sql.database.server import Server

    server: Server
    if location.kind == "mariadb":
        from chimes.store.sql.database.mariadb import MariadbServer

        server = MariadbServer(location.server)
    else:
        from chimes.store.sql.database.postgres import PostgresServer

        server = PostgresServer(location.server)
    return await inspect_server(server)
