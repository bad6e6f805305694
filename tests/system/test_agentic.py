"""Agent schedules from a sentence to a delivered message, on real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.servers import KINDS, shared
from tests.servers.redis_places import empty_redis_url
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.services import BotServer, ModelServer, json_response

pytestmark = pytest.mark.timeout(180)
CHAT = 42
BANGKOK = ZoneInfo("Asia/Bangkok")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def bot() -> Iterator[BotServer]:
    with BotServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "json", "postgres", "mariadb", "redis"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'chimes.db'}"
    elif request.param == "json":
        yield f"json:///{tmp_path / 'data'}"
    elif request.param == "redis":
        yield empty_redis_url()
    else:
        server = shared(KINDS[request.param])
        url = server.new_database()
        yield url
        server.drop_database(url)


def agent_settings(model: ModelServer, bot: BotServer, **more: str) -> dict[str, str]:
    return {
        "CHIMES_AGENT_PIPELINE": "openai",
        "CHIMES_AGENT_URL": model.url,
        "CHIMES_AGENT_MODEL": "stub-1",
        "CHIMES_AGENT_API_KEY": "sk-the-key-of-the-model",
        "CHIMES_TELEGRAM_TOKEN": bot.TOKEN,
        "CHIMES_TELEGRAM_API_URL": bot.url,
        "CHIMES_TELEGRAM_ALLOWED_CHATS": str(CHAT),
    } | more


def id_in(texts: list[str]) -> str:
    (created,) = [text for text in texts if "Schedule created: " in text]
    return created.partition("Schedule created: ")[2].splitlines()[0]


def ended(node: Node, schedule_id: str) -> Any:
    rows = node.get(f"/api/v1/runs?schedule_id={schedule_id}")["items"]
    return rows if rows and all(row["finished_at"] for row in rows) else None


def test_schedule_from_a_chat_is_delivered_to_that_chat(
    any_store: str, start: Start, model: ModelServer, bot: BotServer
) -> None:
    node = start(any_store, **agent_settings(model, bot))
    bot.receive_message("/schedule อีก 5 วินาที สรุปข่าววันนี้", CHAT)
    bot.wait(lambda: any("ฝนตก" in text for text in bot.texts(CHAT)), "the result in the chat")
    schedule = id_in(bot.texts(CHAT))
    (run,) = wait_until(lambda: ended(node, schedule), "the end of the run")
    assert run["status"] == "succeeded"
    (request,) = model.requests("/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer sk-the-key-of-the-model"
    assert request.json["messages"][-1]["content"] == "สรุปข่าววันนี้"
    assert request.json["model"] == "stub-1"
    (delivery,) = wait_until(
        lambda: [
            each
            for each in node.get(f"/api/v1/deliveries?run_id={run['id']}")["items"]
            if each["state"] == "delivered"
        ],
        "the delivery to be written down",
    )
    assert (delivery["channel"], delivery["to"], delivery["attempts"]) == ("telegram", "42", 1)
    # The same schedule through the Softnix API and the native API.
    assert node.get(f"/schedules/{schedule}")["item"]["owner_id"] == str(CHAT)
    assert node.get(f"/api/v1/schedules/{schedule}")["target"]["prompt"] == "สรุปข่าววันนี้"
    for secret in ("AAtheSecretPart", "sk-the-key-of-the-model"):
        assert secret not in node.output


def test_thai_sentences_create_schedules_over_http(
    sqlite: str, start: Start, model: ModelServer, bot: BotServer
) -> None:
    node = start(sqlite, **agent_settings(model, bot))
    soon = datetime.now(BANGKOK) + timedelta(minutes=2)
    today = node.call(
        "POST",
        "/schedules/from-text",
        {"text": f"วันนี้ {soon:%H:%M} สรุปเว็บ", "delivery_channel": "web_ui"},
    )
    if soon.date() == datetime.now(BANGKOK).date():
        item = today.json["item"]
        assert item["schedule_type"] == "one_time"
        assert datetime.fromisoformat(item["next_run_at"]) == soon.replace(
            second=0, microsecond=0
        ).astimezone(UTC)
    daily = node.call("POST", "/schedules/from-text", {"text": "ทุกวัน 09:00 สรุปข่าว"}).json
    assert daily["item"]["cron_expr"] == "0 9 * * *"
    assert daily["parsed"]["source_pattern"] == "thai_daily_time"
    started = node.call("POST", f"/schedules/{daily['item']['id']}/run-now").json
    wait_until(lambda: ended(node, daily["item"]["id"]), "the manual run")
    inbox = wait_until(
        lambda: node.get(f"/api/v1/inbox?run_id={started['run_id']}")["items"], "the inbox"
    )
    assert "ฝนตก" in inbox[0]["text"]


@pytest.mark.parametrize(
    ("answers", "state", "attempts"),
    [
        # A 429 does not count as an attempt.
        ([(429, 1), (200, 0)], "delivered", 1),
        ([(500, 0), (200, 0)], "delivered", 2),
        ([(403, 0)], "dead", 1),
    ],
    ids=["429", "500", "403"],
)
def test_telegram_errors_do_not_change_the_run(
    sqlite: str,
    start: Start,
    model: ModelServer,
    bot: BotServer,
    answers: list[tuple[int, int]],
    state: str,
    attempts: int,
) -> None:
    node = start(sqlite, **agent_settings(model, bot))
    for status, wait in answers:
        body: dict[str, Any] = {"ok": status == 200, "error_code": status, "description": "no"}
        if wait:
            body["parameters"] = {"retry_after": wait}
        if status == 200:
            body = {"ok": True, "result": {"message_id": 1}}
        bot.answers.append(json_response(body, status))
    made = node.call(
        "POST",
        "/api/v1/schedules",
        {
            "name": "brief",
            "trigger": {"kind": "once", "at": "2099-01-01T00:00:00Z"},
            "target": {"kind": "agent", "prompt": "brief me"},
            "delivery": [{"channel": "telegram", "to": str(CHAT)}],
        },
    ).json
    node.call("POST", f"/api/v1/schedules/{made['id']}/run")
    (run,) = wait_until(lambda: ended(node, made["id"]), "the end of the run")
    assert run["status"] == "succeeded"
    (found,) = wait_until(
        lambda: [
            each
            for each in node.get(f"/api/v1/deliveries?run_id={run['id']}")["items"]
            if each["state"] == state
        ],
        state,
        within=60,
    )
    assert found["attempts"] == attempts
    if state == "dead":
        assert found["dead_letter"]
        assert node.get(f"/api/v1/inbox?run_id={run['id']}")["items"], "the owner is notified"


def test_endless_answer_is_cut_off_and_the_node_stays_responsive(
    sqlite: str, start: Start, model: ModelServer, bot: BotServer
) -> None:
    node = start(sqlite, **agent_settings(model, bot))
    model.endless = True
    made = node.call(
        "POST",
        "/api/v1/schedules",
        {
            "name": "endless",
            "trigger": {"kind": "once", "at": "2099-01-01T00:00:00Z"},
            "target": {"kind": "agent", "prompt": "tell me everything"},
            "policy": {"timeout": "60s", "max_retries": 0},
        },
    ).json
    node.call("POST", f"/api/v1/schedules/{made['id']}/run")

    def over() -> Any:
        assert node.get("/health")["status"] == "ok"
        return ended(node, made["id"])

    (run,) = wait_until(over, "the end of the run")
    shown = node.get(f"/api/v1/runs/{run['id']}")
    assert (shown["status"], shown["reason"]) == ("failed", "answer_too_long"), shown
    assert len(str(shown["result"])) < 100_000


def create_one_time(node: Node) -> dict[str, Any]:
    """A schedule that is due soon."""
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    body = {"task": "once", "schedule_type": "one_time", "run_at": soon}
    found: dict[str, Any] = node.call("POST", "/schedules", body).json["item"]
    return found


# Killed after inserting the run and before moving the cursor.
def test_slot_runs_once_after_a_crash_while_firing(
    sqlite: str, start: Start, model: ModelServer, bot: BotServer
) -> None:
    failing = {"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": "fire.before_commit:kill"}
    dying = start(sqlite, **agent_settings(model, bot, **failing))
    made = create_one_time(dying)
    dying.wait()
    node = start(sqlite, **agent_settings(model, bot))
    wait_until(lambda: ended(node, made["id"]), "the run")
    # A second run of the slot would start before the run of a later slot ends.
    later = create_one_time(node)
    wait_until(lambda: ended(node, later["id"]), "the later run")
    assert len(ended(node, made["id"])) == 1
    assert len(model.requests("/v1/chat/completions")) == 2
    assert node.get(f"/schedules/{made['id']}")["item"]["enabled"] is False
