"""Message target: delivers its text through the outbox."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model.run import AttemptEnd
from chimes.model.target import (
    HttpTarget,
    MessageTarget,
    payload_name,
    payload_of,
    same_but_payload,
)
from chimes.model.validation import MAX_MESSAGE_BYTES, check_target
from chimes.store.codec.values import target_from_plain, target_to_plain
from chimes.store.jsonfile.jobs import target_keys
from chimes.targets.base import Call
from chimes.targets.message import MessageRunner
from tests.builders import NOW, a_run
from tests.web.rig import serving

REMINDER = {
    "name": "Stand-up",
    "trigger": {"kind": "cron", "expression": "50 9 * * 1-5", "timezone": "Asia/Bangkok"},
    "target": {"kind": "message", "text": "ประชุมใน **10** นาที"},
}


async def test_result_of_a_message_is_its_text() -> None:
    runner = MessageRunner()
    run = a_run(target=MessageTarget(text="Hello"))
    lines: list[str] = []
    call = Call(run=run, triggered_at=NOW, log=lambda level, text: lines.append(text))
    await runner.open()
    outcome = await runner.execute(call)
    await runner.close()
    assert (outcome.end, outcome.result) == (AttemptEnd.SUCCEEDED, {"text": "Hello"})
    assert lines == ["Message: Hello"]
    assert run.target.requirement in runner.capabilities


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b", "x" * (MAX_MESSAGE_BYTES + 1)])
def test_invalid_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        check_target(MessageTarget(text=text))
    assert error.value.field == "text"


def test_message_target_survives_storage() -> None:
    target = MessageTarget(text="ประชุม\n")
    assert target_from_plain(target_to_plain(target)) == target
    assert target_keys(target) == {"text": "ประชุม\n"}


def test_text_is_the_payload_of_a_message() -> None:
    one, other = MessageTarget(text="a"), MessageTarget(text="b")
    assert (payload_of(one), payload_name(one)) == ("a", "text")
    assert same_but_payload(one, other)
    assert not same_but_payload(one, HttpTarget(url="http://localhost/"))


async def test_message_created_by_the_api_is_delivered_to_the_inbox_by_default() -> None:
    async with serving() as rig:
        answer = await rig.client.post("/api/v1/schedules", json=REMINDER)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        assert made["target"] == REMINDER["target"]
        assert [each["channel"] for each in made["delivery"]] == ["inbox"]
        path = f"/api/v1/schedules/{made['id']}"
        changed = await rig.client.patch(path, json={"target": {"text": "Later"}})
        assert changed.json()["target"] == {"kind": "message", "text": "Later"}
        other = await rig.client.patch(path, json={"target": {"kind": "message", "url": "x"}})
        assert other.status_code == 422
        empty = await rig.client.patch(path, json={"target": {"text": " "}})
        assert (empty.status_code, empty.json()["errors"][0]["pointer"]) == (422, "/target/text")
        run = await rig.client.post(f"{path}/run", json={"params": {"a": 1}})
        assert run.status_code == 422, "a message has no placeholders"
        assert (await rig.client.post(f"{path}/run")).status_code == 202


async def test_cli_options_and_client_build_a_message_target() -> None:
    from chimes.cli.schedules import target_from_options
    from chimes.client.requests import target_json

    options = dict.fromkeys(
        (
            *("http", "task", "flow", "sync", "agent", "action", "message", "prompt", "model"),
            *("method", "header", "body", "arg", "args", "input", "kn", "branch", "identity"),
            *("param", "account", "command", "shell", "cwd", "env", "stdin", "user", "umask"),
            *("success_code", "memory_limit", "cpu_limit", "output_limit", "kill_after", "require"),
            "target",
        )
    )
    found = target_from_options(options | {"message": "Stand-up\nnow"})
    assert found == ({"kind": "message", "text": "Stand-up\nnow"}, "Stand-up")
    assert target_json(MessageTarget(text="x")) == {"kind": "message", "text": "x"}
