"""A server whose database is unavailable or read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from chimes.store.sql.database.server import RETRY_SECONDS
from tests.cli.conftest import Server
from tests.servers import start_mariadb, start_postgres
from tests.servers.server import PrivateServer
from tests.web.rig import definition

PATH = "/api/v1/schedules"
BODY = definition(target={"url": "http://127.0.0.1:8080/"})


@pytest.fixture(params=[start_postgres, start_mariadb], ids=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[PrivateServer]:
    with request.param(durable=True) as server:
        yield server


@contextmanager
def serving(directory: Path, url: str) -> Iterator[httpx2.Client]:
    server = Server(directory, "--store", url, env={"CHIMES_POLL_INTERVAL": "200ms"})
    try:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            yield client
    finally:
        server.stop()


def until(client: httpx2.Client, path: str, status: int, within: float = 60) -> httpx2.Response:
    deadline = time.monotonic() + within
    while True:
        answer = client.get(path)
        if answer.status_code == status:
            return answer
        assert time.monotonic() < deadline, f"{path}: {answer.status_code} {answer.text}"
        time.sleep(0.1)  # no signal announces that a node has noticed


def without_waiting(ask: Callable[[], httpx2.Response]) -> httpx2.Response:
    """The request does not wait for the database to return."""
    began = time.monotonic()
    answer = ask()
    assert time.monotonic() - began < RETRY_SECONDS
    return answer


def test_read_only_and_unavailable_database(tmp_path: Path, database: PrivateServer) -> None:
    with serving(tmp_path, database.new_database()) as client:
        made = client.post(PATH, json=BODY)
        assert made.status_code == 201, made.text
        _check_read_only(client, database)
        _check_unavailable(client, database)
        assert made.json()["id"] in [each["id"] for each in client.get(PATH).json()["items"]]


def _check_read_only(client: httpx2.Client, database: PrivateServer) -> None:
    on, off = _read_only(database)
    database.admin(*on)
    until(client, "/ready", 503)
    answer = without_waiting(lambda: client.post(PATH, json=BODY))
    assert (answer.status_code, answer.json()["code"]) == (503, "store_read_only")
    assert int(answer.headers["retry-after"]) >= 1
    listed = client.get(PATH)
    assert (listed.status_code, len(listed.json()["items"])) == (200, 1)
    assert client.get("/health").status_code == 200
    database.admin(*off)
    until(client, "/ready", 200)
    assert client.post(PATH, json=BODY).status_code == 201


def _check_unavailable(client: httpx2.Client, database: PrivateServer) -> None:
    database.kill9()
    for ask in (lambda: client.post(PATH, json=BODY), lambda: client.get(PATH)):
        answer = without_waiting(ask)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["code"] == "store_unavailable"
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    until(client, "/ready", 503)
    database.restart()
    until(client, "/ready", 200)
    assert len(client.get(PATH).json()["items"]) == 2
    assert client.post(PATH, json=BODY).status_code == 201


def _read_only(database: PrivateServer) -> tuple[list[str], list[str]]:
    if database.kind.name.startswith("postgres"):
        setting = "ALTER SYSTEM SET default_transaction_read_only = {}"
        return (
            [setting.format("on"), "SELECT pg_reload_conf()"],
            [
                "SET default_transaction_read_only = off",
                setting.format("off"),
                "SELECT pg_reload_conf()",
            ],
        )
    return ["SET GLOBAL read_only = 1"], ["SET GLOBAL read_only = 0"]
