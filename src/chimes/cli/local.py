"""The native API on the local store, in this process: no server, the same answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from chimes.cli.backend import Answer
from chimes.cli.language import spoken
from chimes.config import LoadedSettings, load_settings, masked_store_url, store_location

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope


def local_backend(*, create: bool) -> LocalBackend | None:
    """For the store that is configured here, or that lies where it would be by default."""
    loaded = load_settings()
    location = store_location(loaded.settings)
    if location.server:
        return LocalBackend(loaded, masked_store_url(location.server))
    if location.path is None:
        return None
    there = location.path / "jobs.json" if location.kind == "json" else location.path
    told = loaded.origins["store"] != "default"
    return LocalBackend(loaded, location.url) if there.exists() or told or create else None


class LocalBackend:
    """Whoever can write the store's files may do everything: an admin with a key of the moment."""

    live = False

    def __init__(self, loaded: LoadedSettings, location: str) -> None:
        self.location = location
        self._settings = loaded.settings
        self._token = secrets.token_urlsafe(32)
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self._app: ASGIApp | None = None

    def request(self, method: str, path: str, body: object = None) -> Answer:
        return self._runner.run(self._request(method, path, body))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _request(self, method: str, path: str, body: object) -> Answer:
        if self._app is None:
            self._app = await self._open()
        data = b"" if body is None else json.dumps(body).encode()
        raw, _, query = path.partition("?")
        host = f"127.0.0.1:{self._settings.port}"
        headers = [
            ("host", host),
            ("x-api-key", self._token),
            ("accept", "application/json"),
            ("x-language", spoken()),
            ("accept-language", spoken()),
        ]
        if body is not None:
            headers += [("content-type", "application/json"), ("content-length", str(len(data)))]
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", self._settings.port),
        }
        return await _call(self._app, scope, data)

    async def _open(self) -> ASGIApp:
        from prometheus_client import CollectorRegistry

        from chimes import __version__
        from chimes.app import open_local
        from chimes.clock import SystemClock
        from chimes.doors.context import Doorway
        from chimes.doors.server import build_app
        from chimes.service.access import AccessService

        clock = SystemClock()
        services = await self._stack.enter_async_context(open_local(self._settings, clock))
        return build_app(
            Doorway(
                schedules=services.schedules,
                runs=services.runs,
                access=AccessService(services.store, clock, fixed=[self._token]),
                store=services.store,
                settings=replace(self._settings, allowed_hosts=(), requests_per_second=math.inf),
                clock=clock,
                metrics=CollectorRegistry(),
                version=__version__,
                port=self._settings.port,
                not_ready=lambda: "",
            )
        )


async def _call(app: ASGIApp, scope: Scope, data: bytes) -> Answer:
    sent: list[Message] = []
    waiting: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError("never set")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status = next(each["status"] for each in sent if each["type"] == "http.response.start")
    parts = [each.get("body", b"") for each in sent if each["type"] == "http.response.body"]
    return Answer(status, b"".join(parts))
