"""Telegram as a channel, against a stand-in for the Bot API (F75, S60, R1.11)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import web

from chimes.model.egress import EgressRules
from chimes.notifications.attachments import Fetcher
from chimes.notifications.base import Refused, Retry, Sent
from chimes.notifications.telegram import LONGEST_MESSAGE, MOST_PARTS, Telegram
from chimes.notifications.telegram_api import Action, decode
from chimes.notifications.text import utf16_length
from tests.notifications.bot_api import TOKEN, BotApi, bot_api, refused, served
from tests.notifications.letters import CHAT, a_letter, a_recipient, an_ended_run

CLOSED = EgressRules(open_mode=False)


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with bot_api() as api:
        yield api


@asynccontextmanager
async def channel(
    url: str, *, token: str = TOKEN, agent_url: str = "", seconds: float = 5.0
) -> AsyncIterator[Telegram]:
    fetcher = Fetcher(
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
    """Where artifacts lie."""
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
    async with served(app) as url:
        yield url, asked


async def test_a_message_goes_as_plain_text_without_a_preview(api: BotApi) -> None:
    run = an_ended_run("_*[]()~`>#+-=|{}.! <b>x</b> https://example.com")
    async with channel(api.url) as telegram:
        result = await telegram.send(a_letter(run))
    assert result == Sent(receipt="1")
    (sent,) = api.requests
    assert sent.fields["chat_id"] == int(CHAT)
    assert "parse_mode" not in sent.fields
    assert sent.fields["link_preview_options"] == {"is_disabled": True}
    assert sent.text.startswith(f"Run {run.id}: succeeded\n")
    assert "<b>x</b> https://example.com" in sent.text


async def test_buttons_are_signed_and_in_the_language_of_the_chat(api: BotApi) -> None:
    letter = a_letter(language="th")
    async with channel(api.url) as telegram:
        await telegram.send(letter)
    buttons = api.requests[0].buttons
    assert [each["text"] for each in buttons[:3]] == ["รันอีกครั้ง", "หยุดชั่วคราว", "เลื่อน 1 ชม."]
    pressed = [decode(each["callback_data"], chat=CHAT, token=TOKEN) for each in buttons]
    actions = [each.action for each in pressed if each]
    assert actions == [Action.RUN, Action.PAUSE, Action.SNOOZE, Action.DONE]
    assert {each.object_id for each in pressed[:3] if each} == {letter.message.schedule_id}
    assert pressed[3] is not None
    assert pressed[3].object_id == letter.message.run_id


# UX A.7: Telegram takes no address that only this machine knows
@pytest.mark.parametrize(
    ("url", "shown"), [("https://chimes.example", True), ("http://127.0.0.1:8080", False)]
)
async def test_a_message_can_be_opened_where_it_can_be_reached(
    api: BotApi, url: str, shown: bool
) -> None:
    letter = a_letter(public_url=url)
    async with channel(api.url) as telegram:
        await telegram.send(letter)
    links = [each["url"] for each in api.requests[0].buttons if "url" in each]
    assert links == [f"{url}/ui/runs/{letter.message.run_id}"] * shown


async def test_a_run_without_a_schedule_can_be_run_again(api: BotApi) -> None:
    run = an_ended_run(schedule_id=None)
    async with channel(api.url) as telegram:
        await telegram.send(a_letter(run))
    button = api.requests[0].buttons[0]
    pressed = decode(button["callback_data"], chat=CHAT, token=TOKEN)
    assert pressed is not None
    assert (pressed.action, pressed.object_id) == (Action.RETRY, run.id)


# F75: split at 4 096; what was sent is not sent again
async def test_a_long_text_goes_on_where_an_attempt_ended(api: BotApi) -> None:
    text = "\n\n".join(f"paragraph {n} " + "ก😀" * 500 for n in range(8))
    letter = a_letter(an_ended_run(text))
    api.script.extend([lambda: asyncio.sleep(0), refused(500, "Internal Server Error")])
    async with channel(api.url) as telegram:
        first = await telegram.send(letter)
        assert isinstance(first, Retry)
        assert letter.progress.parts == 1
        second = await telegram.send(letter)
    assert isinstance(second, Sent)
    assert all(utf16_length(each) <= LONGEST_MESSAGE for each in api.texts)
    assert "\n\n".join(api.texts) == letter.message.text
    assert [bool(sent.buttons) for sent in api.shown] == [False] * (len(api.shown) - 1) + [True]
    assert letter.progress.parts == len(api.shown)


async def test_a_text_without_end_is_a_bounded_number_of_messages(api: BotApi) -> None:
    letter = a_letter(an_ended_run("x" * 59_999))
    async with channel(api.url) as telegram:
        assert isinstance(await telegram.send(letter), Sent)
    assert len(api.texts) == MOST_PARTS
    assert api.texts[-1] == "… the rest is with the run"


# F75: each answer means what it means
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            refused(429, "Too Many Requests: retry after 17", retry_after=17),
            Retry(
                error="Telegram answered 429: Too Many Requests: retry after 17",
                code="rate_limited",
                after=timedelta(seconds=17),
                holds_back=True,
            ),
        ),
        (
            refused(403, "Forbidden: bot was blocked by the user"),
            Refused(
                error="Telegram answered 403: Forbidden: bot was blocked by the user",
                code="blocked",
            ),
        ),
        (
            refused(400, "Bad Request: chat not found"),
            Refused(
                error="Telegram answered 400: Bad Request: chat not found", code="chat_not_found"
            ),
        ),
        (
            refused(502, "Bad Gateway"),
            Retry(error="Telegram answered 502: Bad Gateway", code="http_502"),
        ),
        (
            (200, {"ok": False, "error_code": 420, "description": "FLOOD"}),
            Refused(error="Telegram answered 420: FLOOD", code="http_420"),
        ),
    ],
)
async def test_what_an_answer_means(api: BotApi, step: object, expected: object) -> None:
    api.script.append(step)  # type: ignore[arg-type]
    async with channel(api.url) as telegram:
        assert await telegram.send(a_letter()) == expected
    assert len(api.requests) == 1


# F75: 400 on parsing: once more, as nothing but text
async def test_a_message_that_cannot_be_parsed_goes_once_more_as_text(api: BotApi) -> None:
    api.script.append(refused(400, "Bad Request: can't parse entities: byte offset 7"))
    async with channel(api.url) as telegram:
        assert await telegram.send(a_letter()) == Sent(receipt="1")
    first, second = api.requests
    assert first.text == second.text
    assert set(second.fields) == {"chat_id", "text"}


async def test_a_message_that_is_refused_twice_is_given_up(api: BotApi) -> None:
    api.script.extend([refused(400, "Bad Request: no"), refused(400, "Bad Request: no")])
    async with channel(api.url) as telegram:
        result = await telegram.send(a_letter())
    assert isinstance(result, Refused)
    assert (result.code, len(api.requests)) == ("http_400", 2)


async def test_a_group_that_became_another_chat_is_found(api: BotApi) -> None:
    api.script.append(
        refused(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=-1009)
    )
    async with channel(api.url) as telegram:
        assert isinstance(await telegram.send(a_letter()), Sent)
    assert [sent.fields["chat_id"] for sent in api.requests] == [int(CHAT), -1009]


async def test_no_answer_in_time_may_be_repeated(api: BotApi) -> None:
    gate = asyncio.Event()

    async def hang() -> None:
        await gate.wait()

    api.script.append(hang)
    async with channel(api.url, seconds=0.2) as telegram:
        result = await telegram.send(a_letter())
        gate.set()
    assert result == Retry(
        error="Telegram cannot be reached: no answer in time", code="unreachable"
    )


async def test_a_bad_token_is_said_once_and_never_shown(
    api: BotApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = "99:the-wrong-token"
    async with channel(api.url, token=token) as telegram:
        for _ in range(3):
            result = await telegram.send(a_letter())
            assert isinstance(result, Retry)
            assert result.code == "bad_token"
            assert "CHIMES_TELEGRAM_TOKEN" in result.error
    assert [record.levelname for record in caplog.records if record.name.startswith("chimes")] == [
        "ERROR"
    ]
    assert token not in caplog.text


# RELIABILITY 8: the token is in the URL, and aiohttp's errors have the URL in their text
@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no-such-host.invalid", "nonsense"])
async def test_no_error_shows_the_token(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with channel(url) as telegram:
        result = await telegram.send(a_letter())
    assert isinstance(result, Retry)
    assert result.code == "unreachable"
    assert TOKEN not in result.error
    assert TOKEN not in caplog.text


async def test_an_answer_that_repeats_the_token_is_scrubbed(api: BotApi) -> None:
    api.script.append(refused(403, f"Forbidden for {TOKEN}"))
    async with channel(api.url) as telegram:
        result = await telegram.send(a_letter())
    assert isinstance(result, Refused)
    assert TOKEN not in result.error


# R1.11: files, from the pipeline that made them
async def test_artifacts_are_sent_as_documents(api: BotApi) -> None:
    files = {"a.txt": b"first", "b.csv": "ข้อมูล".encode(), "c.bin": bytes(range(256))}
    async with pipeline(files) as (url, asked):
        made = [{"name": f"dir/{name}", "url": f"{url}/files/{name}"} for name in files]
        async with channel(api.url, agent_url=url) as telegram:
            result = await telegram.send(a_letter(an_ended_run(artifacts=made)))
    assert isinstance(result, Sent)
    assert [(name, content) for name, _, content in api.files] == list(files.items())
    assert [sent.method for sent in api.requests] == ["sendMessage", *["sendDocument"] * 3]
    assert all(sent.fields["chat_id"] == CHAT for sent in api.requests[1:])
    assert {each.headers["Authorization"] for each in asked} == {"Bearer key-of-the-agent"}


# S33: what lies elsewhere is called under the rules, and without our key
@pytest.mark.parametrize("name", ["missing.txt", "moved", "huge.bin", "empty.txt"])
async def test_what_cannot_be_had_is_a_link(api: BotApi, name: str) -> None:
    async with pipeline({"huge.bin": b"x" * 11_000_000, "empty.txt": b""}) as (url, _):
        link = f"{url}/files/{name}"
        run = an_ended_run(artifacts=[{"name": name, "url": link}])
        async with channel(api.url, agent_url=url) as telegram:
            assert isinstance(await telegram.send(a_letter(run)), Sent)
    assert api.texts[1:] == [f"{name}: {link}"]
    assert api.files == []


async def test_a_private_address_of_somebody_else_is_not_called(api: BotApi) -> None:
    async with pipeline({"a.txt": b"secret"}) as (url, asked):
        link = f"{url}/files/a.txt"
        run = an_ended_run(artifacts=[{"name": "a.txt", "url": link}])
        async with channel(api.url, agent_url="http://agent.example:1234") as telegram:
            assert isinstance(await telegram.send(a_letter(run)), Sent)
    assert asked == []
    assert api.texts[1:] == [f"a.txt: {link}"]


async def test_files_that_were_sent_are_not_sent_again(api: BotApi) -> None:
    files = {"a.txt": b"first", "b.txt": b"second"}
    async with pipeline(files) as (url, _):
        made = [{"name": name, "url": f"{url}/files/{name}"} for name in files]
        letter = a_letter(an_ended_run(artifacts=made))
        steps = [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0)]
        api.script.extend([*steps, refused(429, "Too Many Requests", retry_after=3)])
        async with channel(api.url, agent_url=url) as telegram:
            first = await telegram.send(letter)
            assert isinstance(first, Retry)
            assert first.after == timedelta(seconds=3)
            assert isinstance(await telegram.send(letter), Sent)
    assert [name for name, _, _ in api.files] == ["a.txt", "b.txt"]
    assert len(api.texts) == 1


async def test_a_document_that_is_refused_becomes_a_link(api: BotApi) -> None:
    async with pipeline({"a.txt": b"first"}) as (url, _):
        run = an_ended_run(artifacts=[{"name": "a.txt", "url": f"{url}/files/a.txt"}])
        api.script.extend([lambda: asyncio.sleep(0), refused(413, "Request Entity Too Large")])
        async with channel(api.url, agent_url=url) as telegram:
            assert isinstance(await telegram.send(a_letter(run)), Sent)
    assert api.texts[1:] == [f"a.txt: {url}/files/a.txt"]


async def test_a_public_name_is_sent_as_it_is(api: BotApi) -> None:
    async with channel(api.url) as telegram:
        await telegram.send(a_letter(recipient=a_recipient(to="@chimes_news")))
    assert api.requests[0].fields["chat_id"] == "@chimes_news"


async def test_an_answer_in_pieces_is_read_to_its_end() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"ok": true, "result": {"mess', b'age_id": 12}}'):
            await response.write(piece)
            await asyncio.sleep(0.05)  # so that they arrive one by one
        return response

    app = web.Application()
    app.router.add_post("/{any:.*}", answer)
    async with served(app) as url, channel(url) as telegram:
        assert await telegram.send(a_letter()) == Sent(receipt="12")


@pytest.mark.parametrize("body", [b"<html>502</html>", b"[]", b"[" * 100_000])
async def test_what_is_no_answer_of_the_bot_api_is_tried_again(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, status=200)

    app = web.Application()
    app.router.add_post("/{any:.*}", answer)
    async with served(app) as url, channel(url) as telegram:
        result = await telegram.send(a_letter())
    assert isinstance(result, Retry)
    assert result.code == "http_200"
