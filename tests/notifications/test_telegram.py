"""The Telegram channel against a stand-in for the Bot API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import web

from chimes.egress import EgressRules
from chimes.notifications.attachments import AttachmentFetcher
from chimes.notifications.base import Refused, Retry, Sent
from chimes.notifications.message import utf16_length
from chimes.notifications.telegram import MAX_MESSAGE, MAX_PARTS, Telegram
from chimes.notifications.telegram_api import Action, decode
from tests.notifications.attempts import CHAT, a_recipient, an_attempt, an_ended_run
from tests.notifications.bot_api import TOKEN, BotApi, bot_api, error_answer, serve_app

CLOSED = EgressRules(open_mode=False)


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with bot_api() as api:
        yield api


@asynccontextmanager
async def channel(
    url: str, *, token: str = TOKEN, agent_url: str = "", seconds: float = 5.0
) -> AsyncIterator[Telegram]:
    fetcher = AttachmentFetcher(
        egress=CLOSED, user_agent="test", agent_url=agent_url, agent_key="key-of-the-agent"
    )
    telegram = Telegram(token=token, api_url=url, fetcher=fetcher, seconds=seconds)
    await telegram.open()
    try:
        yield telegram
    finally:
        await telegram.close()


@asynccontextmanager
async def pipeline(files: dict[str, bytes]) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """Serves artifacts."""
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        name = request.match_info["name"]
        if name == "moved":
            raise web.HTTPFound("/files/a.txt")
        if name not in files:
            raise web.HTTPNotFound()
        return web.Response(body=files[name], content_type="text/plain")

    app = web.Application()
    app.router.add_get("/files/{name}", answer)
    async with serve_app(app) as url:
        yield url, asked


async def test_message_is_plain_text_without_link_preview(api: BotApi) -> None:
    run = an_ended_run("_*[]()~`>#+-=|{}.! <b>x</b> https://example.com")
    async with channel(api.url) as telegram:
        result = await telegram.send(an_attempt(run))
    assert result == Sent(receipt="1")
    (sent,) = api.requests
    assert sent.fields["chat_id"] == int(CHAT)
    assert "parse_mode" not in sent.fields
    assert sent.fields["link_preview_options"] == {"is_disabled": True}
    assert sent.text.startswith(f"Run {run.id}: succeeded\n")
    assert "<b>x</b> https://example.com" in sent.text


async def test_buttons_are_signed_and_in_the_language_of_the_chat(api: BotApi) -> None:
    attempt = an_attempt(language="th")
    async with channel(api.url) as telegram:
        await telegram.send(attempt)
    buttons = api.requests[0].buttons
    assert [each["text"] for each in buttons[:3]] == ["รันอีกครั้ง", "หยุดชั่วคราว", "เลื่อน 1 ชม."]
    pressed = [decode(each["callback_data"], chat=CHAT, token=TOKEN) for each in buttons]
    actions = [each.action for each in pressed if each]
    assert actions == [Action.RUN, Action.PAUSE, Action.SNOOZE, Action.DONE]
    assert {each.object_id for each in pressed[:3] if each} == {attempt.message.schedule_id}
    assert pressed[3] is not None
    assert pressed[3].object_id == attempt.message.run_id


# Telegram accepts no link to localhost.
@pytest.mark.parametrize(
    ("url", "shown"), [("https://chimes.example", True), ("http://127.0.0.1:8080", False)]
)
async def test_open_button_needs_a_public_https_url(api: BotApi, url: str, shown: bool) -> None:
    attempt = an_attempt(public_url=url)
    async with channel(api.url) as telegram:
        await telegram.send(attempt)
    links = [each["url"] for each in api.requests[0].buttons if "url" in each]
    assert links == [f"{url}/ui/runs/{attempt.message.run_id}"] * shown


async def test_retry_button_of_a_run_without_a_schedule(api: BotApi) -> None:
    run = an_ended_run(schedule_id=None)
    async with channel(api.url) as telegram:
        await telegram.send(an_attempt(run))
    button = api.requests[0].buttons[0]
    pressed = decode(button["callback_data"], chat=CHAT, token=TOKEN)
    assert pressed is not None
    assert (pressed.action, pressed.object_id) == (Action.RETRY, run.id)


# Split at 4,096 UTF-16 units; parts that were sent are not sent again.
async def test_a_long_text_resumes_after_the_parts_sent(api: BotApi) -> None:
    text = "\n\n".join(f"paragraph {n} " + "ก😀" * 500 for n in range(8))
    attempt = an_attempt(an_ended_run(text))
    api.script.extend([lambda: asyncio.sleep(0), error_answer(500, "Internal Server Error")])
    async with channel(api.url) as telegram:
        first = await telegram.send(attempt)
        assert isinstance(first, Retry)
        assert attempt.progress.parts == 1
        second = await telegram.send(attempt)
    assert isinstance(second, Sent)
    assert all(utf16_length(each) <= MAX_MESSAGE for each in api.texts)
    assert "\n\n".join(api.texts) == attempt.message.text
    assert [bool(sent.buttons) for sent in api.shown] == [False] * (len(api.shown) - 1) + [True]
    assert attempt.progress.parts == len(api.shown)


async def test_number_of_messages_is_limited(api: BotApi) -> None:
    attempt = an_attempt(an_ended_run("x" * 59_999))
    async with channel(api.url) as telegram:
        assert isinstance(await telegram.send(attempt), Sent)
    assert len(api.texts) == MAX_PARTS
    assert api.texts[-1] == "… see the run for the rest"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            error_answer(429, "Too Many Requests: retry after 17", retry_after=17),
            Retry(
                error="Telegram answered 429: Too Many Requests: retry after 17",
                code="rate_limited",
                after=timedelta(seconds=17),
                rate_limited=True,
            ),
        ),
        (
            error_answer(403, "Forbidden: bot was blocked by the user"),
            Refused(
                error="Telegram answered 403: Forbidden: bot was blocked by the user",
                code="blocked",
            ),
        ),
        (
            error_answer(400, "Bad Request: chat not found"),
            Refused(
                error="Telegram answered 400: Bad Request: chat not found", code="chat_not_found"
            ),
        ),
        (
            error_answer(502, "Bad Gateway"),
            Retry(error="Telegram answered 502: Bad Gateway", code="http_502"),
        ),
        (
            (200, {"ok": False, "error_code": 420, "description": "FLOOD"}),
            Refused(error="Telegram answered 420: FLOOD", code="http_420"),
        ),
    ],
)
async def test_bot_api_answers_map_to_results(api: BotApi, step: object, expected: object) -> None:
    api.script.append(step)  # type: ignore[arg-type]
    async with channel(api.url) as telegram:
        assert await telegram.send(an_attempt()) == expected
    assert len(api.requests) == 1


# A 400 is retried once as plain text.
async def test_a_rejected_message_is_sent_again_as_plain_text(api: BotApi) -> None:
    api.script.append(error_answer(400, "Bad Request: can't parse entities: byte offset 7"))
    async with channel(api.url) as telegram:
        assert await telegram.send(an_attempt()) == Sent(receipt="1")
    first, second = api.requests
    assert first.text == second.text
    assert set(second.fields) == {"chat_id", "text"}


async def test_a_message_rejected_twice_is_a_permanent_failure(api: BotApi) -> None:
    api.script.extend([error_answer(400, "Bad Request: no"), error_answer(400, "Bad Request: no")])
    async with channel(api.url) as telegram:
        result = await telegram.send(an_attempt())
    assert isinstance(result, Refused)
    assert (result.code, len(api.requests)) == ("http_400", 2)


async def test_a_migrated_group_is_followed(api: BotApi) -> None:
    api.script.append(
        error_answer(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=-1009)
    )
    async with channel(api.url) as telegram:
        assert isinstance(await telegram.send(an_attempt()), Sent)
    assert [sent.fields["chat_id"] for sent in api.requests] == [int(CHAT), -1009]


async def test_timeout_is_retried(api: BotApi) -> None:
    gate = asyncio.Event()

    async def hang() -> None:
        await gate.wait()

    api.script.append(hang)
    async with channel(api.url, seconds=0.2) as telegram:
        result = await telegram.send(an_attempt())
        gate.set()
    assert result == Retry(
        error="Telegram cannot be reached: no response in time", code="unreachable"
    )


async def test_a_rejected_token_is_logged_once_without_the_token(
    api: BotApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = "99:the-wrong-token"
    async with channel(api.url, token=token) as telegram:
        for _ in range(3):
            result = await telegram.send(an_attempt())
            assert isinstance(result, Retry)
            assert result.code == "bad_token"
            assert "CHIMES_TELEGRAM_TOKEN" in result.error
    assert [record.levelname for record in caplog.records if record.name.startswith("chimes")] == [
        "ERROR"
    ]
    assert token not in caplog.text


# The URL contains the token, and aiohttp errors contain the URL.
@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no-such-host.invalid", "nonsense"])
async def test_no_error_contains_the_token(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with channel(url) as telegram:
        result = await telegram.send(an_attempt())
    assert isinstance(result, Retry)
    assert result.code == "unreachable"
    assert TOKEN not in result.error
    assert TOKEN not in caplog.text


async def test_token_in_an_answer_is_masked(api: BotApi) -> None:
    api.script.append(error_answer(403, f"Forbidden for {TOKEN}"))
    async with channel(api.url) as telegram:
        result = await telegram.send(an_attempt())
    assert isinstance(result, Refused)
    assert TOKEN not in result.error


async def test_artifacts_are_sent_as_documents(api: BotApi) -> None:
    files = {"a.txt": b"first", "b.csv": "ข้อมูล".encode(), "c.bin": bytes(range(256))}
    async with pipeline(files) as (url, asked):
        made = [{"name": f"dir/{name}", "url": f"{url}/files/{name}"} for name in files]
        async with channel(api.url, agent_url=url) as telegram:
            result = await telegram.send(an_attempt(an_ended_run(artifacts=made)))
    assert isinstance(result, Sent)
    assert [(name, content) for name, _, content in api.files] == list(files.items())
    assert [sent.method for sent in api.requests] == ["sendMessage", *["sendDocument"] * 3]
    assert all(sent.fields["chat_id"] == CHAT for sent in api.requests[1:])
    assert {each.headers["Authorization"] for each in asked} == {"Bearer key-of-the-agent"}


# Other hosts are called under the egress rules and without the key of the pipeline.
@pytest.mark.parametrize("name", ["missing.txt", "moved", "huge.bin", "empty.txt"])
async def test_an_unavailable_file_becomes_a_link(api: BotApi, name: str) -> None:
    async with pipeline({"huge.bin": b"x" * 11_000_000, "empty.txt": b""}) as (url, _):
        link = f"{url}/files/{name}"
        run = an_ended_run(artifacts=[{"name": name, "url": link}])
        async with channel(api.url, agent_url=url) as telegram:
            assert isinstance(await telegram.send(an_attempt(run)), Sent)
    assert api.texts[1:] == [f"{name}: {link}"]
    assert api.files == []


async def test_private_addresses_are_not_called(api: BotApi) -> None:
    async with pipeline({"a.txt": b"secret"}) as (url, asked):
        link = f"{url}/files/a.txt"
        run = an_ended_run(artifacts=[{"name": "a.txt", "url": link}])
        async with channel(api.url, agent_url="http://agent.example:1234") as telegram:
            assert isinstance(await telegram.send(an_attempt(run)), Sent)
    assert asked == []
    assert api.texts[1:] == [f"a.txt: {link}"]


async def test_files_that_were_sent_are_not_sent_again(api: BotApi) -> None:
    files = {"a.txt": b"first", "b.txt": b"second"}
    async with pipeline(files) as (url, _):
        made = [{"name": name, "url": f"{url}/files/{name}"} for name in files]
        attempt = an_attempt(an_ended_run(artifacts=made))
        steps = [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0)]
        api.script.extend([*steps, error_answer(429, "Too Many Requests", retry_after=3)])
        async with channel(api.url, agent_url=url) as telegram:
            first = await telegram.send(attempt)
            assert isinstance(first, Retry)
            assert first.after == timedelta(seconds=3)
            assert isinstance(await telegram.send(attempt), Sent)
    assert [name for name, _, _ in api.files] == ["a.txt", "b.txt"]
    assert len(api.texts) == 1


async def test_a_rejected_document_becomes_a_link(api: BotApi) -> None:
    async with pipeline({"a.txt": b"first"}) as (url, _):
        run = an_ended_run(artifacts=[{"name": "a.txt", "url": f"{url}/files/a.txt"}])
        api.script.extend([lambda: asyncio.sleep(0), error_answer(413, "Request Entity Too Large")])
        async with channel(api.url, agent_url=url) as telegram:
            assert isinstance(await telegram.send(an_attempt(run)), Sent)
    assert api.texts[1:] == [f"a.txt: {url}/files/a.txt"]


async def test_public_chat_name_is_sent_unchanged(api: BotApi) -> None:
    async with channel(api.url) as telegram:
        await telegram.send(an_attempt(recipient=a_recipient(to="@chimes_news")))
    assert api.requests[0].fields["chat_id"] == "@chimes_news"


async def test_chunked_answer_is_read() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"ok": true, "result": {"mess', b'age_id": 12}}'):
            await response.write(piece)
            await asyncio.sleep(0.05)  # separates the chunks
        return response

    app = web.Application()
    app.router.add_post("/{any:.*}", answer)
    async with serve_app(app) as url, channel(url) as telegram:
        assert await telegram.send(an_attempt()) == Sent(receipt="12")


@pytest.mark.parametrize("body", [b"<html>502</html>", b"[]", b"[" * 100_000])
async def test_invalid_answers_are_retried(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, status=200)

    app = web.Application()
    app.router.add_post("/{any:.*}", answer)
    async with serve_app(app) as url, channel(url) as telegram:
        result = await telegram.send(an_attempt())
    assert isinstance(result, Retry)
    assert result.code == "http_200"
