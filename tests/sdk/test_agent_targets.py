"""Agent targets from the declaration to the answer, on a real node with stub servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from chimes import AgentTarget, Chimes, Recipient
from chimes.config import Settings
from chimes.errors import ConfigError, InvalidInput, InvalidTrigger
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.checkpoint import (
    agent_callback_name,
    agent_checkpoint_name,
    decode_agent_checkpoint,
)
from chimes.model.policy import Backoff, Policy
from chimes.model.recipient import Channel, NotifyOn
from chimes.model.run import Run, RunStatus
from chimes.model.target import HttpTarget
from chimes.services.runs import RunRequest
from chimes.targets.agent import pipeline
from tests.sdk.inspection import QUICK, eventually, runs_of, stored
from tests.targets.agent_servers import (
    API_KEY,
    USAGE,
    delta,
    ending,
    events,
    model_server,
    pipeline_server,
    sending,
)
from tests.targets.sinks import a_sink, answer
from tests.targets.waiting import until

GOOD = events(delta("It rains."), ending(), {"choices": [], "usage": USAGE}, "[DONE]")
PROMPT = AgentTarget(prompt="What is the weather?")


def configured(url: str, which: str = "openai", **given: Any) -> Settings:
    values: dict[str, Any] = {
        "agent_pipeline": which,
        "agent_url": url,
        "agent_model": "stub",
        "agent_api_key": API_KEY,
        "dispatch_backoff": timedelta(milliseconds=20),
    }
    return replace(QUICK, **(values | given))


@asynccontextmanager
async def an_app(settings: Settings, url: str = "memory://") -> AsyncIterator[Chimes]:
    app = Chimes(url, settings=settings)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def start_run(app: Chimes, target: AgentTarget = PROMPT, **policy: Any) -> Run:
    order = RunRequest(
        target=target,
        policy=replace(Policy(), **policy),
        explicit_fields=frozenset(policy),
    )
    return await app.runtime().services.manual_runs.start(Actor(), order)


async def ended(app: Chimes, run: Run) -> Run:
    store = app.runtime().services.store

    async def look() -> Run:
        found = await store.get_run(run.id)
        assert found is not None
        return found

    return await eventually(look, lambda found: found.status.terminal)


async def checkpoints_deleted(app: Chimes, run: Run) -> None:
    store = app.runtime().services.store
    for name in (agent_checkpoint_name(run.id), agent_callback_name(run.id)):
        await eventually(lambda name=name: store.get_checkpoint(name), lambda found: found is None)  # type: ignore[misc]


async def test_declared_prompt_returns_the_answer() -> None:
    async with model_server(GOOD) as model:
        settings = configured(model.url, dispatch_attempts=5, agent_timeout=timedelta(minutes=2))
        app = Chimes("memory://", settings=settings)
        app.schedule(
            "weather",
            "ทุกวัน 09:00 สรุปข่าว",
            AgentTarget(prompt=""),
            timezone="Asia/Bangkok",
            delivery=[
                Recipient(channel=Channel.INBOX, on=(NotifyOn.FAILURE,)),
                {"channel": "telegram", "to": 42},
            ],
        )
        app.schedule("plain", "every day at 18:30", PROMPT, retries=0)
        await app.start()
        try:
            schedule = await stored(app, "weather")
            plain = await stored(app, "plain")
            result = await (await app.trigger_schedule("weather")).result(10)
            (run,) = await runs_of(app, "weather")
        finally:
            await app.stop()
    assert schedule.target == AgentTarget(prompt="สรุปข่าว")
    assert schedule.trigger.zone == "Asia/Bangkok"
    policy = schedule.policy
    # dispatch_attempts counts the first attempt too.
    assert (policy.max_retries, policy.backoff) == (4, Backoff.EXPONENTIAL)
    assert policy.timeout == timedelta(minutes=2)
    assert [each.channel for each in policy.delivery] == [Channel.INBOX, Channel.TELEGRAM]
    assert plain.policy.max_retries == 0
    assert plain.policy.delivery == (Recipient(channel=Channel.INBOX),)
    assert plain.trigger.zone == "UTC"
    assert run.status is RunStatus.SUCCEEDED
    assert run.schedule_id == schedule.id
    assert result == run.result
    assert run.result is not None
    assert run.result["text"] == "It rains."
    sent = json.loads(model.last.body)
    assert sent["messages"] == [{"role": "user", "content": "สรุปข่าว"}]


@pytest.mark.parametrize(
    ("trigger", "target", "error"),
    [
        ("พรุ่งนี้ 09:00", PROMPT, "is relative"),
        ("ทุกวัน", PROMPT, "does not say exactly when"),
        ("every day at 9am call mum", PROMPT, "so does the target"),
        ("every day at 9am call mum", "http://127.0.0.1:9/x", "so does the target"),
        ("0 9 * * *", AgentTarget(prompt=" "), "prompt is required"),
    ],
)
def test_invalid_agent_declarations(trigger: str, target: object, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        Chimes("memory://").schedule("x", trigger, target)


@pytest.mark.parametrize("recipient", [{"channel": "pigeon"}, {"channel": "email", "to": "x"}])
def test_recipients_are_validated_on_declaration(recipient: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=r"delivery|address"):
        Chimes("memory://").schedule("x", "@daily", PROMPT, delivery=[recipient])


@pytest.mark.parametrize(
    ("target", "delivery"),
    [
        ({"kind": "carrier"}, []),
        ({"kind": "http"}, []),
        ({"kind": "message", "text": "x", "when": "now"}, []),
        (PROMPT, [{"channel": "pigeon"}]),
        (PROMPT, [{"channel": "inbox", "on": ["never"]}]),
        (PROMPT, [{"channel": "inbox", "late_after": "soon"}]),
    ],
)
def test_malformed_objects_have_one_code(target: object, delivery: list[dict[str, object]]) -> None:
    with pytest.raises(InvalidInput) as error:
        Chimes("memory://").schedule("x", "@daily", target, delivery=delivery)
    assert error.value.code == "invalid"


def test_invalid_expression_is_not_parsed_as_words() -> None:
    with pytest.raises(InvalidTrigger, match="fields"):
        Chimes("memory://").schedule("x", "0 9 * *", PROMPT)


async def test_run_without_a_pipeline_names_the_missing_settings() -> None:
    async with an_app(QUICK) as app:
        failed = await ended(app, await start_run(app))
    assert (failed.status, failed.reason, failed.attempt) == (RunStatus.FAILED, "no_pipeline", 1)
    assert "set CHIMES_AGENT_PIPELINE" in failed.error
    with pytest.raises(ConfigError, match="agent_url"):
        await Chimes("memory://", settings=configured("")).start()


async def test_node_without_a_pipeline_does_not_claim_prompts(
    sqlite_url: str,
) -> None:
    async with (
        model_server(GOOD) as model,
        an_app(QUICK, sqlite_url) as without,
        an_app(configured(model.url), sqlite_url),
    ):
        runs = [await ended(without, await start_run(without)) for _ in range(4)]
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert {run.attempt for run in runs} == {1}


async def test_failed_dispatch_is_retried_up_to_the_limit(url: str) -> None:
    busy = answer("503 Busy", b"not now")
    async with (
        model_server(then=sending(busy, head=b"")) as model,
        an_app(configured(model.url, dispatch_attempts=3), url) as app,
    ):
        failed = await ended(app, await start_run(app))
        assert len(model.requests) == 3
        # The second attempt succeeds.
        run = await start_run(app)
        await until(lambda: len(model.requests) == 4)
        model.then = sending(GOOD)
        done = await ended(app, run)
    assert (failed.status, failed.attempt) == (RunStatus.FAILED, 3)
    assert failed.error == "the model server answered HTTP 503: not now"
    assert done.status is RunStatus.SUCCEEDED
    assert 2 <= done.attempt <= 3


async def test_permanent_error_is_not_retried() -> None:
    async with (
        model_server(then=sending(answer("401 No", b"no"), head=b"")) as model,
        an_app(configured(model.url)) as app,
    ):
        failed = await ended(app, await start_run(app))
    assert (failed.status, failed.attempt) == (RunStatus.FAILED, 1)
    assert "CHIMES_AGENT_API_KEY" in failed.error
    assert len(model.requests) == 1


async def test_endless_stream_does_not_block_others() -> None:
    piece = events(*(delta("word " * 20) for _ in range(100)))

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(piece)
            await writer.drain()

    async with (
        model_server(then=flood) as endless,
        model_server(GOOD) as model,
        an_app(configured(model.url)) as app,
        an_app(configured(endless.url)) as other,
    ):
        floods = [await start_run(other) for _ in range(3)]
        await until(lambda: len(endless.requests) == 3)
        done = await ended(app, await start_run(app))
        left = [await ended(other, each) for each in floods]
        assert app.node is not None
        assert app.node.engine.trusted
    assert done.status is RunStatus.SUCCEEDED
    assert {each.status for each in left} == {RunStatus.FAILED}
    assert {each.reason for each in left} == {"answer_too_long"}
    assert all(len(str((each.result or {})["text"])) <= 64 * 1024 for each in left)


async def test_hanging_prompts_do_not_block_other_runs() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        model_server(then=hang) as model,
        a_sink() as sink,
        an_app(configured(model.url, workers=1)) as app,
    ):
        hanging = [await start_run(app) for _ in range(3)]
        await until(lambda: len(model.requests) == 3)
        order = RunRequest(target=HttpTarget(url=sink.url), policy=Policy())
        manual_runs = app.runtime().services.manual_runs
        done = await ended(app, await manual_runs.start(Actor(), order))
        for run in hanging:
            await app.runtime().services.runs.cancel(Actor(), run.id)
            await ended(app, run)
    assert done.status is RunStatus.SUCCEEDED


# --- the pipeline `runs` --------------------------------------------------------------------------
@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(pipeline, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(pipeline, "CALLBACK_POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("short_pauses")
async def test_checkpoint_is_deleted_at_the_end(url: str) -> None:
    there_first = [{"status": "running"}, {"status": "completed", "output": "made"}]
    async with (
        pipeline_server(statuses=there_first, refusals=[503]) as there,
        an_app(configured(there.url, "runs"), url) as app,
    ):
        run = await ended(app, await start_run(app))
        await checkpoints_deleted(app, run)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
    assert run.result is not None
    assert (run.result["text"], run.result["pipeline_run_id"]) == ("made", "pipe/1")
    assert there.runs == {run.id: "pipe/1"}


@pytest.mark.usefixtures("short_pauses")
async def test_callback_to_another_node_ends_the_run(url: str) -> None:
    settings = {"agent_callback_url": "https://chimes.example"}
    async with (
        pipeline_server(statuses=[{"status": "running"}]) as there,
        an_app(configured(there.url, "runs", **settings), url) as app,
    ):
        run = await start_run(app)
        await until(lambda: there.gets > 1)
        store = app.runtime().services.store
        kept = await store.get_checkpoint(agent_checkpoint_name(run.id))
        assert kept is not None
        assert decode_agent_checkpoint(kept.value).token in there.posts[0]["callback_url"]
        said = json.dumps({"status": "succeeded", "output": {"text": "told"}})
        await store.set_checkpoint(agent_callback_name(run.id), said)
        done = await ended(app, run)
        await checkpoints_deleted(app, done)
    assert done.status is RunStatus.SUCCEEDED
    assert done.result is not None
    assert done.result["text"] == "told"


@pytest.mark.usefixtures("short_pauses")
async def test_cancel_is_forwarded_to_the_pipeline() -> None:
    async with (
        pipeline_server(statuses=[{"status": "running"}]) as there,
        an_app(configured(there.url, "runs")) as app,
    ):
        run = await start_run(app)
        await until(lambda: there.gets > 0)
        await app.runtime().services.runs.cancel(Actor(), run.id)
        done = await ended(app, run)
        await until(lambda: there.canceled == ["/runs/pipe%2F1/cancel"])
        await checkpoints_deleted(app, done)
    assert done.status is RunStatus.CANCELED


@pytest.mark.usefixtures("short_pauses")
async def test_another_node_continues_after_shutdown(sqlite_url: str) -> None:
    states: list[Any] = [{"status": "running"}]
    async with pipeline_server(statuses=states) as there:
        settings = configured(there.url, "runs", shutdown_grace=timedelta(milliseconds=50))
        async with an_app(settings, sqlite_url) as app:
            run = await start_run(app)
            await until(lambda: there.gets > 0)
        assert there.canceled == []
        states.append({"status": "completed", "output": "in the end"})
        async with an_app(settings, sqlite_url) as app:
            done = await ended(app, run)
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 2)
    assert len(there.posts) == 1
