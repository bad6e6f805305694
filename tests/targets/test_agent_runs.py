"""Agent target on a run pipeline: created once, polled until its end, or ended by a callback."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.model.access import Owner, OwnerType
from chimes.model.checkpoint import AgentCheckpoint, decode_agent_checkpoint
from chimes.model.run import AttemptEnd
from chimes.targets.agent import AgentPrompt, pipeline
from chimes.targets.agent.service import KEEP_LIMIT, MOST_ARTIFACTS
from tests.targets.agent_servers import (
    API_KEY,
    StoredCheckpoint,
    a_prompt,
    agent_runner,
    logged,
    pipeline_server,
)
from tests.targets.sinks import a_sink, answer
from tests.targets.waiting import pass_time, until

DONE = {"status": "completed", "output": "the summary"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(pipeline, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(pipeline, "CALLBACK_POLL_SECONDS", 0.01)


def pipeline_runner(url: str, **given: Any) -> Any:
    return agent_runner(url, **({"pipeline": "runs", "model": ""} | given))


async def test_prompt_creates_one_pipeline_run_and_returns_its_output() -> None:
    ended = {
        "status": "completed",
        "output": "the summary",
        "artifacts": [
            {"name": "report.pdf", "url": "/files/report.pdf"},
            {"url": "files/a%20b.txt"},
            {"name": "page", "url": "https://elsewhere.example/page"},
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        "cost": 0.25,
        "error": None,
    }
    states: list[dict[str, Any] | int] = [{"status": "queued"}, {"status": "running"}, ended]
    async with pipeline_server(statuses=states) as there, pipeline_runner(there.url) as runner:
        call = a_prompt(
            "สรุปข่าว",
            state=(state := StoredCheckpoint()),
            model="big",
            run={
                "id": "run-1",
                "schedule_id": "sch-1",
                "schedule_name": "News",
                "owner": Owner(type=OwnerType.CHAT, id="42"),
                "slot": datetime(2030, 1, 2, 2, 0, tzinfo=UTC),
            },
        )
        outcome = await runner.execute(call)
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result == {
        "text": "the summary",
        "model": "big",
        "pipeline": "runs",
        "pipeline_run_id": "pipe/1",
        "artifacts": [
            {"name": "report.pdf", "url": f"{there.url}/files/report.pdf"},
            {"name": "a%20b.txt", "url": f"{there.url}/files/a%20b.txt"},
            {"name": "page", "url": "https://elsewhere.example/page"},
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        "cost": 0.25,
        "finish_reason": "completed",
        "truncated": False,
    }
    post, *gets = there.requests
    assert post.headers["idempotency-key"] == "run-1"
    assert post.headers["authorization"] == f"Bearer {API_KEY}"
    assert json.loads(post.body) == {
        "prompt": "สรุปข่าว",
        "schedule_id": "sch-1",
        "run_id": "run-1",
        "owner": "chat:42",
        "model": "big",
        "metadata": {
            "schedule_name": "News",
            "namespace": "default",
            "origin": "manual",
            "slot": "2030-01-02T02:00:00Z",
        },
    }
    assert {each.target for each in gets} == {"/runs/pipe%2F1"}
    assert decode_agent_checkpoint(state.value) == AgentCheckpoint(pipeline_run_id="pipe/1")


async def test_next_attempt_resumes_the_same_pipeline_run() -> None:
    async with pipeline_server() as there, pipeline_runner(there.url) as runner:
        state = StoredCheckpoint()
        first = await runner.execute(a_prompt(state=state, run={"id": "run-1"}))
        again = await runner.execute(a_prompt(state=state, run={"id": "run-1", "attempt": 2}))
        # Without the checkpoint the idempotency key still finds the same run.
        lost = await runner.execute(a_prompt(run={"id": "run-1", "attempt": 3}))
    assert first.result == again.result == lost.result
    assert len(there.posts) == 2
    assert there.posts[0] == there.posts[1]
    assert there.runs == {"run-1": "pipe/1"}


# The node that claimed the run polls the same pipeline run.
@pytest.mark.parametrize("callback_url", ["", "https://chimes.example"])
async def test_fenced_attempt_stops_without_canceling_the_pipeline_run(callback_url: str) -> None:
    class Fenced(StoredCheckpoint):
        async def save(self, value: str) -> bool:
            return False

    async with (
        pipeline_server() as there,
        pipeline_runner(there.url, callback_url=callback_url) as runner,
    ):
        outcome = await runner.execute(a_prompt(state=Fenced()))
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "lost")
    # Without a callback token the first checkpoint is written after the POST.
    assert (len(there.posts), there.gets) == (0 if callback_url else 1, 0)
    assert there.canceled == []


@pytest.mark.parametrize(("status", "retryable"), [(503, True), (429, True), (400, False)])
async def test_error_status_on_creation_fails_the_attempt(status: int, retryable: bool) -> None:
    async with pipeline_server(refusals=[status]) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, f"http_{status}")
    assert outcome.retryable is retryable
    assert outcome.error == f"the run pipeline answered HTTP {status}: not now"


async def test_transient_errors_do_not_stop_the_polling() -> None:
    states: list[dict[str, Any] | int] = [500, 503, {"status": "running"}, 429, 502, DONE]
    async with pipeline_server(statuses=states) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(call := a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert there.gets == 6
    assert sum(level == "warning" for level, _ in logged(call)) == 4


@pytest.mark.parametrize(
    ("found", "code", "error"),
    [
        (404, "run_not_found", "the run pipeline no longer knows run pipe/1"),
        (403, "http_403", "the run pipeline answered HTTP 403"),
        ({"status": "failed", "error": "no\ntokens left"}, "pipeline_failed", "no tokens left"),
        ({"status": "FAILED", "error": {"message": API_KEY}}, "pipeline_failed", "***"),
        ({"status": "error"}, "pipeline_failed", "the pipeline says: error"),
        ({"status": "cancelled"}, "pipeline_canceled", "canceled in the pipeline"),
    ],
)
async def test_final_failures_of_a_pipeline_run(found: Any, code: str, error: str) -> None:
    async with pipeline_server(statuses=[found]) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.end, outcome.retryable) == (AttemptEnd.FAILED, False)
    assert outcome.code == code
    assert outcome.error.startswith(error)
    assert API_KEY not in str(outcome)
    assert outcome.result is not None
    assert outcome.result["pipeline_run_id"] == "pipe/1"


@pytest.mark.parametrize(
    "reply", [b"{}", b'{"run_id": null}', b'{"run_id": true}', b"[]", b"nothing", b'{"id": {}}']
)
async def test_response_without_run_id_is_retryable(reply: bytes) -> None:
    async with a_sink(answer("202 Accepted", reply)) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("bad_answer", True)


async def test_run_id_that_is_too_long_fails() -> None:
    reply = answer("202 Accepted", json.dumps({"run_id": "x" * 201}).encode())
    async with a_sink(reply) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("bad_answer", False)


async def test_unknown_pipeline_fails() -> None:
    async with pipeline_runner("http://127.0.0.1:9", pipeline="other") as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("unknown_pipeline", False)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"text": "inside"}, "inside"),
        ({"rows": [1, "ก"]}, '{"rows": [1, "ก"]}'),
        (None, ""),
        ("a\x00b", "a\ufffdb"),
    ],
)
async def test_output_of_any_json_type_becomes_text(output: object, text: str) -> None:
    found = {"status": "succeeded", "output": output}
    async with pipeline_server(statuses=[found]) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == text


async def test_output_and_artifacts_are_limited() -> None:
    found = {
        "status": "completed",
        "output": "x" * 100_000,
        "artifacts": [
            {"name": "a", "url": "tg://resolve?domain=x"},
            {"name": "b", "url": "javascript:alert(1)"},
            {"name": "c", "url": "file:///etc/passwd"},
            {"name": "d", "url": "x" * 3000},
            {"name": "e"},
            "f",
            *({"name": f"n\n{n}" * 200, "url": f"/files/{n}"} for n in range(100)),
        ],
    }
    async with pipeline_server(statuses=[found]) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(call := a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == "x" * KEEP_LIMIT
    assert outcome.result["truncated"] is True
    artifacts: Any = outcome.result["artifacts"]
    assert [each["url"] for each in artifacts] == [
        f"{there.url}/files/{n}" for n in range(MOST_ARTIFACTS - 6)
    ]
    assert all(len(each["name"]) <= 200 and "\n" not in each["name"] for each in artifacts)
    assert ("warning", "62 artifacts are left out") in logged(call)


async def test_status_of_ten_megabytes_fails_as_too_long() -> None:
    found = {"status": "completed", "output": "x" * 10_000_000}
    async with pipeline_server(statuses=[found]) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("answer_too_long", False)


async def test_timeout_cancels_the_pipeline_run() -> None:
    async with pipeline_server(statuses=[{"status": "running"}]) as there:
        async with pipeline_runner(there.url) as runner:
            attempt = asyncio.create_task(runner.execute(a_prompt()))
            await until(lambda: there.gets > 0)
            pass_time(60)
            outcome = await attempt
        assert there.canceled == ["/runs/pipe%2F1/cancel"]
    assert (outcome.end, outcome.retryable) == (AttemptEnd.TIMEOUT, False)
    assert outcome.result is not None
    assert outcome.result["pipeline_run_id"] == "pipe/1"


async def test_timeout_before_creation_is_retryable() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with a_sink(then=hang) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt(timeout=0.1))
    assert (outcome.end, outcome.retryable) == (AttemptEnd.TIMEOUT, True)


# After a lost lease another node continues the pipeline run.
@pytest.mark.parametrize("canceled", [True, False])
async def test_only_a_user_cancel_cancels_the_pipeline_run(canceled: bool) -> None:
    async with pipeline_server(statuses=[{"status": "running"}]) as there:
        async with pipeline_runner(there.url) as runner:
            task = asyncio.create_task(runner.execute(a_prompt(canceled=canceled)))
            await until(lambda: there.gets > 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(there.canceled) == canceled


async def interrupt_after_first_poll(
    runner: AgentPrompt, state: StoredCheckpoint, there: Any
) -> None:
    """An attempt that is interrupted after the first poll."""
    task = asyncio.create_task(runner.execute(a_prompt(state=state, run={"id": "run-1"})))
    await until(lambda: there.gets > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_callback_ends_the_polling_and_its_url_is_stable_across_attempts() -> None:
    async with (
        pipeline_server(statuses=[{"status": "running"}]) as there,
        pipeline_runner(there.url, callback_url="https://chimes.example/") as runner,
    ):
        state = StoredCheckpoint()
        await interrupt_after_first_poll(runner, state, there)
        state.said = json.dumps({"status": "completed", "output": "told"})
        outcome = await runner.execute(a_prompt(state=state, run={"id": "run-1"}))
        # Without the pipeline's run id the same request is sent again.
        kept = decode_agent_checkpoint(state.value)
        state.value = AgentCheckpoint(token=kept.token).to_text()
        again = await runner.execute(a_prompt(state=state, run={"id": "run-1"}))
    assert outcome.result is not None
    assert outcome.result["text"] == "told"
    assert again.result == outcome.result
    assert there.posts[0] == there.posts[1]
    assert len(kept.token) >= 43
    assert there.posts[0]["callback_url"] == (
        f"https://chimes.example/api/v1/agent/callbacks/run-1?token={kept.token}"
    )


async def test_callback_token_is_checkpointed_before_it_is_sent() -> None:
    async with (
        pipeline_server(refusals=[503]) as there,
        pipeline_runner(there.url, callback_url="https://chimes.example") as runner,
    ):
        state = StoredCheckpoint()
        await runner.execute(a_prompt(state=state))
        await runner.execute(a_prompt(state=state))
    tokens = {decode_agent_checkpoint(each).token for each in state.writes}
    assert len(tokens) == 1
    assert {each["callback_url"].rpartition("=")[2] for each in there.posts} == tokens


async def test_unknown_status_counts_as_running() -> None:
    states: list[dict[str, Any] | int] = [{"status": "pondering"}, {}, DONE]
    async with pipeline_server(statuses=states) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(call := a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert ("warning", "the pipeline says: pondering") in logged(call)


async def test_poll_interval_grows_to_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pauses: list[float] = []

    async def wait_for_callback(_: object, __: object, pause: float) -> None:
        pauses.append(pause)

    monkeypatch.setattr(pipeline, "_wait_for_callback", wait_for_callback)
    states: list[dict[str, Any] | int] = [*({"status": "running"} for _ in range(9)), DONE]
    async with pipeline_server(statuses=states) as there, pipeline_runner(there.url) as runner:
        await runner.execute(a_prompt())
    assert pauses[0] == 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0


async def test_retry_after_is_capped_by_the_longest_poll_interval() -> None:
    refusal = answer("503 Busy", Retry_After="3600")
    made = answer("202 OK", b'{"run_id": 7, "status": "queued"}')
    ended = answer("200 OK", json.dumps(DONE).encode())
    async with a_sink(made, refusal, ended) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["pipeline_run_id"] == "7"


async def test_retry_after_on_creation_delays_the_retry() -> None:
    refusal = answer("429 Busy", b"busy", Retry_After="120")
    async with a_sink(refusal) as there, pipeline_runner(there.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.retry_after == timedelta(seconds=120)
