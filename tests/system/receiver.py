"""An HTTP server on a free loopback port that receives callbacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

DEADLINE = 60.0


@dataclass(frozen=True, kw_only=True)
class Received:
    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: str

    @property
    def run_id(self) -> str:
        return self.headers["x-ksana-run-id"]

    @property
    def attempt(self) -> int:
        return int(self.headers["x-chimes-attempt"])


#: Maps a request and the number of earlier calls of its path to (status, headers, seconds to wait
#: before the response).
Behaviour = Callable[[Received, int], tuple[int, dict[str, str], float]]


class Receiver:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[Received] = []
        self._behaviours: dict[str, Behaviour] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def answer(self, path: str, *statuses: int, headers: dict[str, str] | None = None) -> str:
        """Answers with the statuses in turn, then with the last; returns the URL."""

        def behave(_: Received, before: int) -> tuple[int, dict[str, str], float]:
            return statuses[min(before, len(statuses) - 1)], headers or {}, 0.0

        self._behaviours[path] = behave
        return self.url(path)

    def slow(self, path: str, seconds: float, *, first: int | None = None) -> str:
        """Delays each response, or only those to the first calls; returns the URL."""

        def behave(_: Received, before: int) -> tuple[int, dict[str, str], float]:
            return 200, {}, seconds if first is None or before < first else 0.0

        self._behaviours[path] = behave
        return self.url(path)

    def calls(self, path: str | None = None) -> list[Received]:
        with self._changed:
            return [call for call in self._calls if path in (None, call.path)]

    def wait_for(self, path: str, count: int, within: float = DEADLINE) -> list[Received]:
        end = time.monotonic() + within
        with self._changed:
            while True:
                found = [call for call in self._calls if call.path == path]
                left = end - time.monotonic()
                if len(found) >= count:
                    return found
                assert left > 0, f"{len(found)} of {count} calls of {path} within {within} s"
                self._changed.wait(left)

    def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_call(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                call = Received(
                    at=time.time(),
                    method=self.command,
                    path=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(length).decode(),
                )
                with receiver._changed:
                    before = sum(each.path == call.path for each in receiver._calls)
                    receiver._calls.append(call)
                    receiver._changed.notify_all()
                behave = receiver._behaviours.get(call.path)
                status, headers, seconds = behave(call, before) if behave else (200, {}, 0.0)
                if seconds:
                    time.sleep(seconds)  # the slow receiver under test
                body = b"ok"
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(body)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the caller has disconnected

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_call

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing."""

        return Handler
