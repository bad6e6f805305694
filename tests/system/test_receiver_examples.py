"""The examples of receivers against a real node that is killed in the middle of a call: the run is
called again under the same id, and the effect happens once."""

from __future__ import annotations

import base64
import json
import os
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.test_callbacks import ONCE_IN_A_YEAR
from tests.system.test_crashes import SHORT_LEASE, STEADY

EXAMPLES = Path(__file__).parents[2] / "examples" / "receivers"
SECRET = "whsec_" + base64.b64encode(b"receivers" * 4).decode()
#: Long enough that the node is killed in the middle of the call, also on a busy machine.
WORK_SECONDS = "5"
Serve = Callable[..., "Served"]


class Served:
    """A process that serves on a port; its output is in a file."""

    def __init__(self, command: list[str], port: int, home: Path, **environment: str) -> None:
        self.url = f"http://127.0.0.1:{port}/orders"
        self._log = home / "receiver.log"
        given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        given |= {"CHIMES_SIGNING_SECRET": SECRET, "WORK_SECONDS": WORK_SECONDS} | environment
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=home, env=given, stdout=log, stderr=log)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_until_ready(self) -> Served:
        wait_until(self._answers, f"the receiver:\n{self.output}")
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.output
        try:
            urllib.request.urlopen(urllib.request.Request(self.url, data=b"{}"), timeout=5)
        except urllib.error.HTTPError as error:
            return error.code == 400  # not a webhook
        except OSError:
            return False
        return False

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.output, text)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts receivers: `serve("python", "with_wsgi.py", "{port}")`."""
    found: list[Served] = []

    def start(*command: str, **environment: str) -> Served:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        home = tmp_path / "receiver"
        home.mkdir()
        words = [each.replace("{port}", str(port)) for each in command]
        found.append(Served(words, port, home, **environment))
        return found[-1].wait_until_ready()

    yield start
    for each in found:
        each.close()


def check_one_effect(
    receiver: Served, sqlite: str, start: Start, effects: Callable[[], list[list[str]]]
) -> None:
    first = start(sqlite, **SHORT_LEASE)
    made = first.create(
        name="orders",
        trigger=ONCE_IN_A_YEAR,
        target={
            "kind": "http",
            "url": receiver.url,
            "body": '{"order": 7}',
            "signing_secrets": [SECRET],
        },
        policy={"timeout": "2m", "max_retries": 50, "retry_backoff": "500ms"},
    )
    run = first.call("POST", f"/api/v1/schedules/{made['id']}/run").json
    receiver.wait_for(f"booking for run {run['id']}, attempt 1")
    first.kill()
    second = start(sqlite, **STEADY)
    (ended,) = second.ended(made["id"])
    assert (ended["id"], ended["status"]) == (run["id"], "succeeded")
    assert ended["attempts"][0]["end"] == "lost"
    assert len(ended["attempts"]) >= 2
    assert json.loads(ended["result"]["body"]) == {"booked": 7}
    # The effect of the first attempt, although its node did not live to see the answer.
    assert effects() == [[run["id"], "1"]]
    assert receiver.output.count("booking for run") == 1


def rows(path: Path) -> list[list[str]]:
    connection = sqlite3.connect(path)
    try:
        return [[row[0], str(row[1])] for row in connection.execute("SELECT * FROM orders")]
    finally:
        connection.close()


@pytest.mark.long
def test_wsgi_receiver_performs_the_effect_once(
    serve: Serve, sqlite: str, start: Start, tmp_path: Path
) -> None:
    receiver = serve(sys.executable, str(EXAMPLES / "with_wsgi.py"), "{port}")
    lines = tmp_path / "receiver" / "orders.txt"
    check_one_effect(
        receiver, sqlite, start, lambda: [each.split() for each in lines.read_text().splitlines()]
    )


@pytest.mark.long
def test_fastapi_receiver_performs_the_effect_once(
    serve: Serve, sqlite: str, start: Start, tmp_path: Path
) -> None:
    receiver = serve(
        *(sys.executable, "-m", "uvicorn", "with_fastapi:app", "--port", "{port}"),
        PYTHONPATH=str(EXAMPLES),
    )
    check_one_effect(receiver, sqlite, start, lambda: rows(tmp_path / "receiver" / "orders.db"))


@pytest.mark.long
def test_django_receiver_performs_the_effect_once(
    serve: Serve, sqlite: str, start: Start, tmp_path: Path
) -> None:
    receiver = serve(sys.executable, str(EXAMPLES / "with_django.py"), "{port}")
    check_one_effect(receiver, sqlite, start, lambda: rows(tmp_path / "receiver" / "orders.db"))
