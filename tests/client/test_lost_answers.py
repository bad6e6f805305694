"""Requests take effect once despite restarts and lost responses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chimes.client import AsyncClient, Client
from chimes.errors import Unreachable
from tests.cli.conftest import Server
from tests.client.conftest import KEY


class LossyProxy:
    """A proxy that drops the first `losses` responses to a POST."""

    def __init__(self, url: str, losses: int) -> None:
        parts = urlsplit(url)
        self._to = (str(parts.hostname), int(parts.port or 80))
        self.left = losses
        self.posts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        near.settimeout(20)
        with near, socket.create_connection(self._to, timeout=20) as far:
            while request := _message(near):
                host = f"Host: {self._to[0]}:{self._to[1]}".encode()
                lines = [
                    host if line.lower().startswith(b"host:") else line
                    for line in request.split(b"\r\n")
                ]
                far.sendall(b"\r\n".join(lines))
                answer = _message(far)
                if request.startswith(b"POST"):
                    self.posts += 1
                    if self.left:
                        self.left -= 1
                        return
                near.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


def _message(peer: socket.socket) -> bytes:
    """One HTTP message with its whole body; empty at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = peer.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += peer.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def lossy(keyed_server: Server) -> Iterator[LossyProxy]:
    proxy = LossyProxy(keyed_server.url, losses=2)
    yield proxy
    proxy.close()


def test_lost_response_creates_no_second_run(lossy: LossyProxy, client: Client) -> None:
    namespace = "lossy-run"
    with Client(lossy.url, KEY, namespace=namespace) as through:
        handle = through.enqueue("greet", {"name": "once"})
        assert handle.result(30) == "hello once"
    assert lossy.posts == 3
    made = [run for run in client.runs(limit=None) if run.namespace == namespace]
    assert [run.id for run in made] == [handle.id]


async def test_lost_response_creates_no_second_schedule(lossy: LossyProxy) -> None:
    async with AsyncClient(lossy.url, KEY, namespace="lossy-schedule") as through:
        made = await through.schedule("once", "@yearly", "greet", args={"name": "x"})
        assert await through.list_schedules() == [made]
    assert lossy.posts == 3


def test_client_gives_up_after_its_patience(lossy: LossyProxy) -> None:
    lossy.left = 1000
    with (
        Client(lossy.url, KEY, patience=0.5) as through,
        pytest.raises(Unreachable, match="cannot be reached"),
    ):
        through.enqueue("greet", {"name": "x"})


def test_client_waits_for_a_restarting_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    port = int(urlsplit(server.url).port or 0)
    with Client(server.url, patience=40) as client:
        made = client.schedule("n", "@yearly", "http://127.0.0.1:8080/")
        assert server.stop() == 0
        restarted: list[Server] = []
        again = threading.Thread(target=lambda: restarted.append(Server(tmp_path, port=port)))
        again.start()
        try:
            assert client.get_schedule("n") == made
        finally:
            again.join(60)
            for each in restarted:
                assert each.stop() == 0
