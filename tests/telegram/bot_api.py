"""A stub of the Bot API on the loopback that records requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "123456:AAtheSecretPartOfTheToken"


@dataclass
class BotApiStub:
    updates: list[dict[str, Any]] = field(default_factory=list)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: Answers before the default ones: (status, body).
    answers: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque)
    url: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None
    _next: int = 1

    async def start(self) -> BotApiStub:
        app = web.Application()
        app.router.add_post("/bot{token}/{method}", self._call)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def stop(self) -> None:
        async with self._changed:
            self._changed.notify_all()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _call(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != TOKEN:
            return _refusal(401, "Unauthorized")
        method = request.match_info["method"]
        body = json.loads(await request.read() or b"{}")
        if method == "getUpdates":
            return await self._updates(body)
        async with self._changed:
            if self.answers:
                status, answer = self.answers.popleft()
                self._changed.notify_all()
                return web.json_response(answer, status=status)
            self.sent.append((method, body))
            self._changed.notify_all()
        if method == "getMe":
            return web.json_response({"ok": True, "result": {"id": 1, "username": "chimes_bot"}})
        return web.json_response({"ok": True, "result": {"message_id": len(self.sent)}})

    async def _updates(self, body: dict[str, Any]) -> web.Response:
        offset = body.get("offset", 0)
        async with self._changed:
            self.updates = [each for each in self.updates if each["update_id"] >= offset]
            if not self.updates and body.get("timeout"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(body["timeout"], 2))
            found = self.updates[: body.get("limit", 100)]
        return web.json_response({"ok": True, "result": found})

    async def say(self, text: str, chat: int = 7, **more: Any) -> int:
        """Queues a message of a user; returns the update id."""
        update = message(self._next, text, chat, **more)
        self._next += 1
        async with self._changed:
            self.updates.append(update)
            self._changed.notify_all()
        return int(update["update_id"])

    async def wait_until(self, what: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(what)

    def texts(self, chat: int = 7) -> list[str]:
        return [
            body["text"]
            for method, body in self.sent
            if method == "sendMessage" and str(body["chat_id"]) == str(chat)
        ]


def message(
    update_id: int, text: str, chat: int = 7, sender: int | None = None, **more: Any
) -> dict[str, Any]:
    language = more.pop("language_code", None)
    kind = more.pop("chat_type", "private")
    author: dict[str, Any] = {"id": sender or chat, "is_bot": False, "first_name": "A"}
    if language:
        author["language_code"] = language
    fields = {
        "message_id": update_id,
        "chat": {"id": chat, "type": kind},
        "from": author,
        "text": text,
    }
    return {"update_id": update_id, "message": fields | more}


def _refusal(status: int, text: str) -> web.Response:
    return web.json_response(
        {"ok": False, "error_code": status, "description": text}, status=status
    )
