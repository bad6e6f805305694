"""Stub HTTP services on the loopback that record requests: model server and Telegram Bot API."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

DEADLINE = 60.0


@dataclass(frozen=True, kw_only=True)
class Request:
    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"null")


@dataclass(frozen=True, kw_only=True)
class Response:
    status: int = 200
    #: Each piece is sent as a chunk.
    pieces: tuple[bytes, ...] | Iterator[bytes] = ()
    headers: dict[str, str] = field(default_factory=dict)


def json_response(value: object, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(status=status, pieces=(body,), headers={"Content-Type": "application/json"})


class Service:
    """Subclasses return the response in `answer`; requests are recorded."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def answer(self, request: Request) -> Response:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def requests(self, ending: str = "") -> list[Request]:
        with self._changed:
            return [each for each in self._requests if each.path.endswith(ending)]

    def wait(self, what: Callable[[], Any], why: str, within: float = DEADLINE) -> Any:
        end = time.monotonic() + within
        with self._changed:
            while not (found := what()):
                left = end - time.monotonic()
                assert left > 0, f"waited {within} s for {why}"
                self._changed.wait(min(left, 0.5))
            return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_call(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                request = Request(
                    at=time.time(),
                    method=self.command,
                    path=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(length),
                )
                with service._changed:
                    service._requests.append(request)
                    service._changed.notify_all()
                answer = service.answer(request)
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in answer.pieces:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True  # the caller has disconnected

            do_GET = do_POST = handle_call

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing."""

        return Handler


class ModelServer(Service):
    """An OpenAI-compatible chat endpoint that streams."""

    def __init__(self, text: str = "ข่าววันนี้: ฝนตกทั้งวัน") -> None:
        super().__init__()
        self.text = text
        self.answers: list[Response] = []
        self.endless = False

    def answer(self, request: Request) -> Response:
        with self._changed:
            if self.answers:
                return self.answers.pop(0)
        headers = {"Content-Type": "text/event-stream"}
        return Response(pieces=self._endless() if self.endless else self._stream(), headers=headers)

    def _stream(self) -> Iterator[bytes]:
        for word in self.text.split(" "):
            yield _event({"choices": [{"index": 0, "delta": {"content": word + " "}}]})
        yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        yield _event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _endless(self) -> Iterator[bytes]:
        while True:
            yield _event({"choices": [{"index": 0, "delta": {"content": "more " * 50}}]})


def _event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


class BotServer(Service):
    TOKEN = "123456:AAtheSecretPartOfTheToken"

    def __init__(self) -> None:
        super().__init__()
        self._updates: list[dict[str, Any]] = []
        self._next = 1000
        #: Responses to the next sendMessage calls, before the default one.
        self.answers: list[Response] = []

    def answer(self, request: Request) -> Response:
        assert request.path.startswith(f"/bot{self.TOKEN}/"), request.path
        method = request.path.rpartition("/")[2]
        if method == "getUpdates":
            return self._pending_updates(request.json)
        with self._changed:
            if method == "sendMessage" and self.answers:
                return self.answers.pop(0)
        return json_response({"ok": True, "result": {"message_id": 5, "username": "chimes_bot"}})

    def _pending_updates(self, wanted: dict[str, Any]) -> Response:
        end = time.monotonic() + min(wanted.get("timeout", 0), 5)
        with self._changed:
            offset = wanted.get("offset", 0)
            self._updates = [each for each in self._updates if each["update_id"] >= offset]
            while not self._updates and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return json_response({"ok": True, "result": list(self._updates)})

    def receive_message(self, text: str, chat: int = 42) -> None:
        with self._changed:
            self._next += 1
            message = {
                "message_id": self._next,
                "date": int(time.time()),
                "chat": {"id": chat, "type": "private"},
                "from": {"id": chat, "is_bot": False},
                "text": text,
            }
            self._updates.append({"update_id": self._next, "message": message})
            self._changed.notify_all()

    def press_button(self, data: str, chat: int = 42) -> None:
        with self._changed:
            self._next += 1
            press = {
                "id": f"press-{self._next}",
                "from": {"id": chat, "is_bot": False},
                "data": data,
                "message": {"message_id": 5, "chat": {"id": chat, "type": "private"}},
            }
            self._updates.append({"update_id": self._next, "callback_query": press})
            self._changed.notify_all()

    def texts(self, chat: int = 42) -> list[str]:
        sent = [each.json for each in self.requests("/sendMessage")]
        return [each["text"] for each in sent if str(each["chat_id"]) == str(chat)]
