"""The payload of an event in tasks, flows, prompts and messages; http and command have their own
tests."""

from __future__ import annotations

from typing import Any

from chimes.model.run import Cause, Run
from chimes.model.target import FlowTarget, MessageTarget
from chimes.targets.base import Call
from chimes.targets.flow.advance import input_of
from chimes.targets.message import MessageRunner
from tests.builders import NOW, a_run, with_definition
from tests.targets.agent_servers import a_prompt, agent_runner, pipeline_server
from tests.targets.task_calls import a_call, a_registry, running

HOSTILE = 'a "quoted" {{event_id}} {{secret}}'


def caused(run: Run, payload: str) -> Run:
    cause = Cause(kind="webhook", source="push", delivery_id="d-1", at=NOW, payload=payload)
    return with_definition(run, cause=cause)


def with_payload(call: Call, payload: str) -> Call:
    return Call(run=caused(call.run, payload), triggered_at=NOW, log=call.log, state=call.state)


async def test_a_task_gets_the_payload_as_the_argument_event() -> None:
    """The JSON value, or the text; only if it has such a parameter and no argument for it."""

    async def takes(event: Any, n: int = 0) -> Any:
        return [event, n]

    async def plain(n: int = 0) -> Any:
        return n

    async with running(a_registry(takes, plain)) as runner:
        for payload, value in (
            ('{"n": [1, null]}', {"n": [1, None]}),
            ("not json", "not json"),
            ("", ""),
            (HOSTILE, HOSTILE),
        ):
            outcome = await runner.execute(with_payload(a_call("takes", n=2), payload))
            assert outcome.result == {"value": [value, 2]}, payload
        given = await runner.execute(with_payload(a_call("takes", event="mine"), "1"))
        assert given.result == {"value": ["mine", 0]}
        other = await runner.execute(with_payload(a_call("plain", n=3), "1"))
        assert other.result == {"value": 3}


def test_a_flow_gets_the_payload_in_its_input() -> None:
    run = a_run(target=FlowTarget(name="f", input={"a": 1}))
    assert input_of(run) == {"a": 1}
    assert input_of(caused(run, '{"n": 1}')) == {"a": 1, "event": {"n": 1}}
    assert input_of(caused(run, HOSTILE)) == {"a": 1, "event": HOSTILE}
    own = a_run(target=FlowTarget(name="f", input={"event": "mine"}))
    assert input_of(caused(own, "1")) == {"event": "mine"}


async def test_the_payload_is_filled_into_prompts_and_messages_once() -> None:
    text = "{{event_source}} {{event_id}}: {{event}}"
    filled = f"push d-1: {HOSTILE}"
    done: list[dict[str, Any] | int] = [{"status": "completed", "output": "ok"}]
    async with (
        pipeline_server(statuses=done) as there,
        agent_runner(there.url, pipeline="runs", model="") as runner,
    ):
        await runner.execute(with_payload(a_prompt(text), HOSTILE))
    assert [each["prompt"] for each in there.posts] == [filled]
    message = a_run(target=MessageTarget(text=text))
    for run, shown in ((caused(message, HOSTILE), filled), (message, text)):
        call = Call(run=run, triggered_at=NOW, log=lambda level, line: None)
        assert (await MessageRunner().execute(call)).result == {"text": shown}
