"""Empty places on the session's Redis: a database by number for each worker, emptied in turn, and
a prefix of its own for each test, so that nothing a test left behind is heard by the next."""

from __future__ import annotations

import os
import secrets
import socket
from itertools import cycle

from tests.servers.kinds import HOST, REDIS
from tests.servers.session import shared

#: A test that moves from one store to another of the same kind has two at once.
IN_TURN = 3
#: As many as the servers of the tests have.
DATABASES = 64

_turn = cycle(range(IN_TURN))


def empty_place() -> str:
    """The URL of a part of the server that holds nothing."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    number = (worker * IN_TURN + next(_turn)) % DATABASES
    port = shared(REDIS).port
    redis_command(port, f"SELECT {number}", "FLUSHDB")
    return f"{REDIS.url(port, str(number))}?prefix={secrets.token_hex(4)}:"


def redis_command(port: int, *lines: str) -> str:
    """Plain commands over a plain socket; the answer to the last."""
    answer = b""
    with socket.create_connection((HOST, port), 10) as connection:
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            answer = connection.recv(65536)
            assert not answer.startswith(b"-"), answer
    return answer.decode()
