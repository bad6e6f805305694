"""The limit of stored results, with a real server and a real receiver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Server

BODY = b"x" * 30_000


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


def _run(client: httpx2.Client, url: str) -> dict[str, Any]:
    answer = client.post("/api/v1/runs", json={"target": {"kind": "http", "url": url}})
    assert answer.status_code == 202, answer.text
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        run: dict[str, Any] = client.get(answer.headers["location"]).json()
        if run["status"] not in ("queued", "running"):
            return run
        time.sleep(0.05)
    raise AssertionError("the run did not end")


def test_results_of_an_owner_are_limited(tmp_path: Path, receiver: str) -> None:
    server = Server(tmp_path, env={"CHIMES_MAX_RESULT_BYTES_PER_OWNER": "200000"})
    try:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            runs = [_run(client, receiver) for _ in range(5)]
            assert {run["status"] for run in runs} == {"succeeded"}
            sizes = [len(run["result"]["body"]) for run in runs]
            assert sizes == [30_000] * 3 + [1024] * 2
            assert [run["result"]["truncated"] for run in runs] == [False] * 3 + [True] * 2
            logs = client.get(f"/api/v1/runs/{runs[-1]['id']}/logs").json()["items"]
            assert "max_result_bytes_per_owner" in logs[-1]["message"]
    finally:
        assert server.stop() == 0
