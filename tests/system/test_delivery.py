"""A real node notifies about a run on every channel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.notifications.bot_api import TOKEN, bot_api
from tests.notifications.smtp_server import smtp_server
from tests.system.node import Node, wait_until
from tests.targets.sinks import OK, Sink, answer, serving

CHAT = "4242"


def deliveries(node: Node, run_id: str, count: int) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]]:
        found = node.get(f"/api/v1/deliveries?run_id={run_id}")["items"]
        return found if sum(each["state"] != "pending" for each in found) >= count else []

    return wait_until(look, f"{count} deliveries that have ended")


async def test_run_is_delivered_on_every_channel(tmp_path: Path) -> None:
    sink = Sink([answer("200 OK", b'{"all": "is well"}'), OK])
    async with bot_api() as api, smtp_server() as smtp, serving(sink.handle) as sink.port:
        api.blocked.add("7")
        node = Node(
            f"sqlite:///{tmp_path / 'chimes.db'}",
            tmp_path,
            CHIMES_TELEGRAM_TOKEN=TOKEN,
            CHIMES_TELEGRAM_ALLOWED_CHATS=f"7,{CHAT}",
            CHIMES_TELEGRAM_API_URL=api.url,
            CHIMES_SMTP_URL=f"smtp://127.0.0.1:{smtp.port}",
            CHIMES_SMTP_FROM="chimes@example.org",
        )
        try:
            await asyncio.to_thread(node.start)
            made = await asyncio.to_thread(
                node.create,
                name="Morning report",
                trigger={"kind": "cron", "expression": "0 9 * * *"},
                target={"kind": "http", "url": f"{sink.url}/work"},
                delivery=[
                    {"channel": "inbox"},
                    {"channel": "telegram", "to": "7"},
                    {"channel": "telegram", "to": CHAT, "language": "th"},
                    {"channel": "webhook", "to": f"{sink.url}/told"},
                    {"channel": "email", "to": "ada@example.com"},
                ],
            )
            path = f"/api/v1/schedules/{made['id']}/run"
            run = (await asyncio.to_thread(node.call, "POST", path, {})).json
            found = await asyncio.to_thread(deliveries, node, run["id"], 5)
            inbox = await asyncio.to_thread(node.get, "/api/v1/inbox")
            ended = await asyncio.to_thread(node.get, f"/api/v1/runs/{run['id']}")
            metrics = (await asyncio.to_thread(node.call, "GET", "/metrics")).text
        finally:
            code = await asyncio.to_thread(node.stop)
    assert code == 0
    assert ended["status"] == "succeeded"
    states = sorted((each["channel"], each["state"]) for each in found)
    assert states == [
        ("email", "delivered"),
        ("inbox", "delivered"),
        ("telegram", "dead"),
        ("telegram", "delivered"),
        ("webhook", "delivered"),
    ]
    (dead,) = [each for each in found if each["dead_letter"]]
    assert (dead["code"], dead["attempts"]) == ("blocked", 1)
    (text,) = api.texts
    assert text.startswith(f"Run {run['id']}: succeeded\nMorning report: สำเร็จ")
    assert text.endswith('{"all": "is well"}')
    sent = json.loads(sink.last.body)
    assert (sent["type"], sent["data"]["run"]["id"]) == ("run.succeeded", run["id"])
    assert smtp.mails[0].message["Subject"] == "Morning report: succeeded"
    titles = {item["title"] for item in inbox["items"]}
    assert titles == {
        "Morning report: succeeded",
        "Not delivered (Telegram): Morning report: succeeded",
    }
    assert inbox["unread"] == 2
    labels = 'channel="telegram",outcome='
    assert f'chimes_deliveries_total{{{labels}"dead"}} 1.0' in metrics
    assert "chimes_dead_letters_total 1.0" in metrics
    assert TOKEN not in node.output
