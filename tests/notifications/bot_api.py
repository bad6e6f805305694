"""A stand-in for the Bot API on the loopback: records requests and answers by script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "4711:AA-the-token_of-the-bot"
#: A scripted answer, or an action before the normal answer.
Step = tuple[int, dict[str, Any]] | Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Sent:
    method: str
    fields: dict[str, Any]
    #: Of a document: name, type and content.
    file: tuple[str, str, bytes] | None = None

    @property
    def text(self) -> str:
        return str(self.fields["text"])

    @property
    def buttons(self) -> list[dict[str, str]]:
        rows = self.fields.get("reply_markup", {}).get("inline_keyboard", [])
        return [button for row in rows for button in row]


@dataclass
class BotApi:
    #: All requests, whatever was answered.
    requests: list[Sent] = field(default_factory=list)
    #: Messages that a user would see.
    shown: list[Sent] = field(default_factory=list)
    script: deque[Step] = field(default_factory=deque)
    #: Chats that block the bot.
    blocked: set[str] = field(default_factory=set)
    url: str = ""
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def texts(self) -> list[str]:
        return [sent.text for sent in self.shown if sent.method == "sendMessage"]

    @property
    def files(self) -> list[tuple[str, str, bytes]]:
        return [sent.file for sent in self.shown if sent.file is not None]

    async def wait_for(self, count: int, within: float = 60.0) -> None:
        """Waits for this many requests."""
        async with asyncio.timeout(within):
            while len(self.requests) < count:
                self.came.clear()
                await self.came.wait()

    async def handle(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != TOKEN:
            return error_response(401, "Unauthorized")
        if request.match_info["method"] not in ("sendMessage", "sendDocument"):
            return await _bot_method(request.match_info["method"])
        sent = await _read(request)
        self.requests.append(sent)
        self.came.set()
        if str(sent.fields["chat_id"]) in self.blocked:
            return error_response(403, "Forbidden: bot was blocked by the user")
        step = self.script.popleft() if self.script else None
        if isinstance(step, tuple):
            status, body = step
            return web.json_response(body, status=status)
        if step is not None:
            await step()
        self.shown.append(sent)
        number = len(self.shown)
        return web.json_response({"ok": True, "result": {"message_id": number}})


async def _bot_method(method: str) -> web.Response:
    """Methods of the polling bot; there are no updates."""
    if method == "getUpdates":
        await asyncio.sleep(0.5)  # long polling
        return web.json_response({"ok": True, "result": []})
    result = {"id": 1, "is_bot": True, "username": "chimes_bot"} if method == "getMe" else True
    return web.json_response({"ok": True, "result": result})


def error_answer(status: int, text: str, **parameters: int) -> Step:
    body: dict[str, Any] = {"ok": False, "error_code": status, "description": text}
    return status, body | ({"parameters": parameters} if parameters else {})


def error_response(status: int, text: str) -> web.Response:
    body = {"ok": False, "error_code": status, "description": text}
    return web.json_response(body, status=status)


async def _read(request: web.Request) -> Sent:
    method = request.match_info["method"]
    if request.content_type != "multipart/form-data":
        return Sent(method, await request.json())
    form = await request.post()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    file = form["document"]
    assert isinstance(file, web.FileField)
    return Sent(method, fields, (file.filename, file.content_type, file.file.read()))


@asynccontextmanager
async def bot_api() -> AsyncIterator[BotApi]:
    api = BotApi()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/bot{token}/{method}", api.handle)
    async with serve_app(app) as api.url:
        yield api


@asynccontextmanager
async def serve_app(app: web.Application) -> AsyncIterator[str]:
    """Serves the application and yields its URL."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
