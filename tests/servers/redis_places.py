"""Empty databases on the session's Redis. Each worker has a few numbered databases and empties them
in turn; each test has its own key prefix, so that no notification of an earlier test reaches it."""

from __future__ import annotations

import os
import secrets
import socket
from itertools import cycle

from tests.servers.kinds import HOST, REDIS
from tests.servers.session import shared

#: A test that copies a store to another of the same kind uses two at once.
IN_TURN = 3
#: The number of databases that the test servers are configured with.
DATABASES = 64

_turn = cycle(range(IN_TURN))


def empty_redis_url() -> str:
    """Returns the URL of an empty database with a new key prefix."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    number = (worker * IN_TURN + next(_turn)) % DATABASES
    port = shared(REDIS).port
    redis_command(port, f"SELECT {number}", "FLUSHDB")
    return f"{REDIS.url(port, str(number))}?prefix={secrets.token_hex(4)}:"


def redis_command(port: int, *lines: str) -> str:
    """Sends inline commands over a socket and returns the answer to the last."""
    answer = b""
    with socket.create_connection((HOST, port), 10) as connection:
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            answer = connection.recv(65536)
            assert not answer.startswith(b"-"), answer
    return answer.decode()
