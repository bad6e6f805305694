"""Agent target on an OpenAI-compatible endpoint: request, streamed answer, limits, errors."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import ConfigError
from chimes.model.run import AttemptEnd
from chimes.targets.agent import AgentConfig, chat
from chimes.targets.agent.service import KEEP_LIMIT, checked_config
from tests.targets.agent_servers import (
    API_KEY,
    STREAM,
    USAGE,
    a_prompt,
    agent_runner,
    bytewise,
    delta,
    ending,
    event,
    events,
    logged,
    model_server,
    sending,
)
from tests.targets.sinks import a_sink, answer
from tests.targets.waiting import pass_time, until

GOOD = events(delta("Hello"), delta(" world"), ending(), {"choices": [], "usage": USAGE}, "[DONE]")


async def test_answer_tokens_and_cost_of_a_streamed_prompt_are_the_result() -> None:
    async with (
        model_server(GOOD) as model,
        agent_runner(model.url + "/", input_price=2.0, output_price=10.0, max_tokens=500) as runner,
    ):
        call = a_prompt("สรุปข่าว", run={"id": "run-7"})
        outcome = await runner.execute(call)
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result == {
        "text": "Hello world",
        "model": "stub-1",
        "pipeline": "openai",
        "pipeline_run_id": None,
        "artifacts": [],
        "usage": USAGE,
        "cost": 0.0004,
        "finish_reason": "stop",
        "truncated": False,
    }
    sent = model.last
    assert (sent.method, sent.target) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {API_KEY}"
    assert sent.headers["idempotency-key"] == "run-7"
    assert json.loads(sent.body) == {
        "model": "wanted-1",
        "messages": [{"role": "user", "content": "สรุปข่าว"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 500,
    }
    lines = [line for _, line in logged(call)]
    assert any(line.startswith("first token after") for line in lines)
    assert "Hello world" in lines
    assert lines[-1].startswith("answer: 11 bytes, model stub-1, 120 tokens (100 in, 20 out), ")


async def test_model_and_max_tokens_of_the_target_override_the_settings() -> None:
    async with model_server(GOOD) as model, agent_runner(model.url + "/v1", api_key="") as runner:
        await runner.execute(a_prompt(model="other-2", max_tokens=9))
    body = json.loads(model.last.body)
    assert (body["model"], body["max_tokens"]) == ("other-2", 9)
    assert model.last.target == "/v1/chat/completions"
    assert "authorization" not in model.last.headers


@pytest.mark.parametrize("eol", ["\n", "\r\n", "\r"])
async def test_stream_is_read_when_split_at_any_byte(eol: str) -> None:
    stream = b"\xef\xbb\xbf: a comment" + eol.encode() * 2
    stream += event(delta("สวัสดี 🙂 "), eol) + b"id: 7" + eol.encode() + b"event: x" + eol.encode()
    half, other = json.dumps(delta("世界")).split(', "choices"')
    stream += f'data: {half},{eol}data: "choices"{other}{eol}{eol}'.encode()
    stream += event(ending(), eol) + event("[DONE]", eol)
    async with (
        model_server(then=sending(*bytewise(stream))) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == "สวัสดี 🙂 世界"


async def test_chunked_stream_without_final_empty_line_is_complete() -> None:
    stream = GOOD.removesuffix(b"\n\n")
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (stream[:50], stream[50:])]
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    async with (
        model_server(then=sending(*chunks, b"0\r\n\r\n", head=head)) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == "Hello world"
    assert outcome.result["usage"] == USAGE


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_answer_that_is_not_streamed_is_read(content_type: str) -> None:
    whole = {
        "model": "stub-1",
        "choices": [{"message": {"content": "all at once"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    reply = answer("200 OK", json.dumps(whole).encode(), Content_Type=content_type)
    async with a_sink(reply) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == "all at once"
    assert outcome.result["finish_reason"] == "length"
    assert outcome.result["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }
    assert outcome.result["cost"] is None


async def test_text_parts_are_joined_and_other_choices_ignored() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "image"}, "x", {"text": "two"}]
    stream = events(
        {"choices": None},
        {"choices": ["x", {"index": 1, "delta": {"content": "another choice"}}, {"index": 0}]},
        {"choices": [{"index": 0, "delta": {"content": parts, "role": "assistant"}}]},
        {"choices": [{"index": 0, "delta": {"content": 5, "function_call": {"name": "f"}}}]},
        ending(),
        "[DONE]",
    )
    async with model_server(stream) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    assert outcome.result["text"] == "one two"
    assert outcome.result["refused_tools"] == ["f"]


async def test_stream_cut_after_its_finish_reason_succeeds() -> None:
    piece = events(delta("all"), ending())
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    async with (
        model_server(then=sending(chunk, head=head)) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
        model.then = sending(chunk[:-20], head=head)
        broken = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert (broken.code, broken.retryable) == ("reset", True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>500</html>", ""),
        (b"plain\n words", ": plain words"),
        (b'{"message": "m"}', ": m"),
        (b'{"detail": [1]}', ""),
        (b'{"error": {"code": 7}}', ""),
        (b"\xff\x00", ": \ufffd\ufffd"),
    ],
)
async def test_error_text_is_found_in_every_common_response_shape(body: bytes, said: str) -> None:
    async with a_sink(answer("500 No", body)) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.error == f"the model server answered HTTP 500{said}"


async def test_closed_connection_is_retryable() -> None:
    async with model_server(then=sending(head=b"")) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("reset", True)


async def test_refused_stream_options_are_left_out_on_repeat() -> None:
    refusal = answer("400 Bad Request", b'{"error": {"message": "unknown: stream_options"}}')
    whole = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}
    reply = answer("200 OK", json.dumps(whole).encode(), Content_Type="application/json")
    async with a_sink(refusal, reply) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert ["stream_options" in json.loads(each.body) for each in model.requests] == [True, False]


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        *((status, False) for status in ("400", "401", "403", "404", "422")),
        *((status, True) for status in ("408", "429", "500", "502", "503")),
    ],
)
async def test_retryable_error_statuses(status: str, retryable: bool) -> None:
    said = json.dumps({"error": {"message": f"no, with {API_KEY}\nand more"}}).encode()
    async with (
        a_sink(answer(f"{status} No", said, Retry_After="7")) as model,
        agent_runner(model.url) as runner,
    ):
        call = a_prompt()
        outcome = await runner.execute(call)
    assert outcome.end is AttemptEnd.FAILED
    assert outcome.retryable is retryable
    assert outcome.code == f"http_{status}"
    assert outcome.retry_after == (timedelta(seconds=7) if retryable else None)
    assert "no, with *** and more" in outcome.error
    assert API_KEY not in f"{outcome} {logged(call)}"
    assert len(model.requests) == 1


async def test_a_redirect_is_not_followed() -> None:
    async with (
        a_sink() as canary,
        a_sink(answer("307 Go", Location=canary.url)) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("redirect", False)
    assert canary.connections == 0


async def test_refused_connection_is_retryable() -> None:
    async with a_sink() as model:
        url = model.url
    async with agent_runner(url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.end, outcome.retryable) == (AttemptEnd.FAILED, True)
    assert outcome.code == "connect_failed"


@pytest.mark.parametrize(
    ("pieces", "code", "retryable"),
    [
        ([event("{not json")], "bad_answer", True),
        ([event("[1, 2]")], "bad_answer", True),
        ([event(delta("half"))], "stream_broken", True),
        ([], "stream_broken", True),
        ([event({"error": {"message": "busy", "type": "server_error"}})], "model_error", True),
        ([event({"error": {"message": "no", "type": "invalid_request"}})], "model_error", False),
        ([event("[" * 100_000)], "bad_answer", True),
    ],
)
async def test_invalid_or_broken_stream_fails(
    pieces: list[bytes], code: str, retryable: bool
) -> None:
    async with model_server(*pieces) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, code)
    assert outcome.retryable is retryable


async def test_json_array_as_answer_fails() -> None:
    async with (
        a_sink(answer("200 OK", b"[]", Content_Type="application/json")) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert outcome.code == "bad_answer"


@pytest.mark.parametrize("begun", [False, True])
async def test_hanging_server_times_out(begun: bool) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if begun:
            writer.write(STREAM + event(delta("I think")))
        await reader.read()

    async with model_server(then=hang) as model, agent_runner(model.url) as runner:
        call = a_prompt()
        attempt = asyncio.create_task(runner.execute(call))
        await until(lambda: bool(logged(call) if begun else model.requests))
        pass_time(60)
        outcome = await attempt
        await until(lambda: model.open_now == 0)
    assert (outcome.end, outcome.code) == (AttemptEnd.TIMEOUT, "timeout")
    # A retry would pay for the answer twice.
    assert outcome.retryable is not begun
    assert outcome.result is not None
    assert outcome.result["text"] == ("I think" if begun else "")


async def test_dripping_server_times_out() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with model_server(then=drip) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt(timeout=0.3))
        await until(lambda: model.open_now == 0)
    assert outcome.end is AttemptEnd.TIMEOUT


# Memory stays bounded and the event loop stays responsive.
async def test_endless_answer_is_cut_off_in_bounded_memory() -> None:
    piece = events(*(delta("word " * 40) for _ in range(200)))

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(piece)
            await writer.drain()

    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async with model_server(then=flood) as model, agent_runner(model.url) as runner:
        beating = asyncio.create_task(beat())
        tracemalloc.start()
        try:
            outcome = await runner.execute(a_prompt())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            beating.cancel()
        await until(lambda: model.open_now == 0)
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "answer_too_long")
    assert not outcome.retryable
    assert outcome.result is not None
    text = str(outcome.result["text"])
    assert KEEP_LIMIT - 4 <= len(text.encode()) <= KEEP_LIMIT
    assert outcome.result["truncated"] is True
    assert peak < 8 * 1024 * 1024
    assert turns > 5


@pytest.mark.parametrize("streamed", [True, False])
async def test_answer_of_ten_megabytes_fails_as_too_long(streamed: bool) -> None:
    text = "x" * 10_000_000
    if streamed:
        then = sending(event(delta(text)), event("[DONE]"))
    else:
        whole = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        then = sending(answer("200 OK", whole, Content_Type="application/json"), head=b"")
    async with model_server(then=then) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("answer_too_long", False)


async def test_endless_stream_of_comments_fails_as_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat, "STREAM_LIMIT", 100_000)

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(b": nothing\n\n" * 1000)
            await writer.drain()

    async with model_server(then=flood) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.code == "answer_too_long"


async def test_long_answer_is_truncated_but_read_to_its_end() -> None:
    pieces = [event(delta("ไ" * 1000)) for _ in range(60)]
    end = events(ending(), {"choices": [], "usage": USAGE}, "[DONE]")
    async with model_server(*pieces, end) as model, agent_runner(model.url) as runner:
        outcome = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["truncated"] is True
    assert outcome.result["text"] == "ไ" * (KEEP_LIMIT // 3)
    assert outcome.result["usage"] == USAGE


async def test_tool_call_of_the_model_is_refused() -> None:
    asked: dict[str, Any] = {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {"function": {"name": "create_schedule", "arguments": "{"}},
                        {"function": {"arguments": "}"}},
                    ]
                },
            }
        ]
    }
    stream = events(asked, asked, ending("tool_calls"), "[DONE]")
    async with model_server(stream) as model, agent_runner(model.url) as runner:
        call = a_prompt()
        outcome = await runner.execute(call)
        assert "tools" not in json.loads(model.last.body)
        with_text = events(delta("I cannot."), asked, ending("tool_calls"), "[DONE]")
        model.then = sending(with_text)
        answered = await runner.execute(a_prompt())
    assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, "tool_call_refused")
    assert not outcome.retryable
    assert ("warning", "the model asked for the tool create_schedule: refused") in logged(call)
    assert answered.end is AttemptEnd.SUCCEEDED
    assert answered.result is not None
    assert answered.result["refused_tools"] == ["create_schedule"]
    assert answered.result["text"] == "I cannot."


# Also where the model repeats the key in several events.
async def test_api_key_is_redacted_in_result_error_and_log() -> None:
    stream = events(
        delta(f"my key is {API_KEY[:9]}"), delta(f"{API_KEY[9:]}!\nmore\n"), ending(), "[DONE]"
    )
    async with model_server(*bytewise(stream)) as model, agent_runner(model.url) as runner:
        call = a_prompt()
        outcome = await runner.execute(call)
    assert outcome.result is not None
    assert outcome.result["text"] == "my key is ***!\nmore\n"
    assert API_KEY not in f"{outcome} {logged(call)}"
    assert API_KEY[9:] not in f"{logged(call)}"


# Markup and links in the output stay as they are.
async def test_nul_and_lone_surrogates_are_replaced_in_the_answer() -> None:
    wild = "![x](https://evil.example/?q=1) tg://resolve <b>bold</b> \x00"
    stream = event(delta(wild)) + b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n'
    stream += b'data: {"choices": [{"delta": {"content": "\\ude42 \\ud800."}}]}\n\n'
    async with (
        model_server(stream + events(ending(), "[DONE]")) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert outcome.result is not None
    text = str(outcome.result["text"])
    assert text == wild.replace("\x00", "\ufffd") + "🙂 \ufffd."
    text.encode()


async def test_content_filter_fails_the_attempt() -> None:
    async with (
        model_server(events(ending("content_filter"), "[DONE]")) as model,
        agent_runner(model.url) as runner,
    ):
        outcome = await runner.execute(a_prompt())
    assert (outcome.code, outcome.retryable) == ("content_filter", False)


async def test_cancel_closes_the_request() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with model_server(then=hang) as model, agent_runner(model.url) as runner:
        task = asyncio.create_task(runner.execute(a_prompt(canceled=True)))
        await until(lambda: model.requests != [])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: model.open_now == 0)


async def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_sink() as proxy, model_server(GOOD) as model, agent_runner(model.url) as runner:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        outcome = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert proxy.connections == 0


@pytest.mark.parametrize(
    "url", ["", "localhost:11434", "ftp://x", "http://", "http://h/?a=1", "http://[bad"]
)
def test_invalid_agent_url_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="agent_url"):
        checked_config(AgentConfig(pipeline="openai", url=url))


async def test_credentials_in_the_url_are_sent_but_not_logged() -> None:
    async with model_server(GOOD) as model:
        url = model.url.replace("//", "//me:very-secret@")
        async with agent_runner(url, api_key="") as runner:
            outcome = await runner.execute(a_prompt())
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert model.last.headers["authorization"].startswith("Basic ")
