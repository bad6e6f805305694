"""A real `chimes serve --app` for tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chimes.client import Client
from tests.cli.conftest import Server

APP = """
import time
from chimes import Chimes, Context

app = Chimes()


@app.task(name="greet")
def greet(name: str, times: int = 1) -> str:
    print("greeting")
    return ", ".join([f"hello {name}"] * times)


@app.task(name="speaks")
def speaks(context: Context, times: int, pause: float = 0.0) -> None:
    for number in range(times):
        context.logger.info("line %s", number)
        time.sleep(pause)


@app.task(name="broken")
def broken() -> None:
    raise RuntimeError("it broke")


@app.task(name="slow")
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


flow = app.flow("pipeline")


@flow.step()
def load(source: str) -> list[int]:
    return [1, 2, 3]


@flow.step(after=[load])
def total(load: list[int]) -> int:
    return sum(load)
"""
#: Nothing listens there: a node connects with the first run.
CONNECTIONS = """
connections:
  events: {kind: redis, url: "redis://u:pa55word@127.0.0.1:1", roles: [member], allow: ["e.*"]}
"""
KEY = "chm_for-the-tests-of-the-client"


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("client")
    (directory / "client_app.py").write_text(APP)
    file = directory / "connections.yaml"
    file.write_text(CONNECTIONS)
    file.chmod(0o600)
    started = Server(
        directory,
        "--app",
        "client_app:app",
        env={
            "CHIMES_ADMIN_TOKEN": KEY,
            "CHIMES_CONFIG": str(file),
            "CHIMES_REQUESTS_PER_SECOND": "1000",
            "CHIMES_ALLOW_PRIVATE_TARGETS": "1",
        },
    )
    yield started
    assert started.stop() == 0


@pytest.fixture
def client(keyed_server: Server) -> Iterator[Client]:
    with Client(keyed_server.url, KEY) as client:
        yield client
