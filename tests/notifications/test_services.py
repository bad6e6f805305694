"""Slack and Apprise: the messages that the services receive."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import pytest

from chimes.egress import Egress, EgressRules
from chimes.errors import InvalidInput
from chimes.model.recipient import Channel, Recipient, format_recipient, parse_recipient
from chimes.model.run import Run, RunStatus
from chimes.model.validation import check_recipients
from chimes.notifications.apprise import Apprise
from chimes.notifications.base import Refused, Retry, Sent
from chimes.notifications.webhook import MAX_SECTION, Slack
from chimes.redaction import mask_text, unmask_text
from tests.notifications.attempts import a_recipient, an_attempt, an_ended_run
from tests.targets.sinks import OPEN, Sink, answer, serving

CLOSED = EgressRules(open_mode=False)
HOOK = "https://hooks.slack.com/services/T0001/B0002/abcdEFGH"


async def to_slack(sink: Sink, run: Run) -> object:
    slack = Slack(egress=OPEN, user_agent="Chimes/test")
    await slack.open()
    try:
        async with serving(sink.handle) as sink.port:
            recipient = a_recipient(Channel.SLACK, to=f"{sink.url}/services/T/B/X")
            return await slack.send(an_attempt(run, recipient))
    finally:
        await slack.close()


async def to_apprise(
    to: str,
    egress: Egress = OPEN,
    *,
    run: Run | None = None,
    secrets: dict[str, str] | None = None,
) -> object:
    apprise = Apprise(egress=egress)
    await apprise.open()
    try:
        attempt = an_attempt(run, a_recipient(Channel.APPRISE, to=to))
        return await apprise.send(replace(attempt, secrets=secrets or {}))
    finally:
        await apprise.close()


async def test_slack_receives_blocks_without_mentions_of_the_output() -> None:
    sink = Sink()
    long = "<!channel> & more\n" * 2000
    assert await to_slack(sink, an_ended_run(long)) == Sent(receipt="200")
    body = json.loads(sink.last.body)
    assert body["text"].startswith("Morning report")
    header, *sections = [block for block in body["blocks"] if block["type"] != "context"]
    assert header["text"]["type"] == "plain_text"
    texts = [section["text"]["text"] for section in sections]
    assert all(len(text) <= MAX_SECTION for text in texts)
    assert "&lt;!channel&gt; &amp; more" in texts[1]
    assert "<!channel>" not in sink.last.body.decode()


async def test_slack_asks_to_wait() -> None:
    busy = answer("429 Too Many Requests", Retry_After="7")
    result = await to_slack(Sink([busy]), an_ended_run("x"))
    assert isinstance(result, Retry)
    assert result.rate_limited


async def test_apprise_sends_title_body_and_type() -> None:
    sink = Sink()
    async with serving(sink.handle) as sink.port:
        to = f"json://127.0.0.1:{sink.port}/notify"
        run = an_ended_run("oops", status=RunStatus.FAILED)
        assert await to_apprise(to, run=run) == Sent()
    body = json.loads(sink.last.body)
    assert body["title"].startswith("Morning report")
    assert "oops" in body["message"]
    assert body["type"] == "failure"


async def test_apprise_fills_secrets_and_reports_a_refusal() -> None:
    sink = Sink([answer("500 Broken")])
    async with serving(sink.handle) as sink.port:
        to = f"json://127.0.0.1:{sink.port}/{{{{secret.TOPIC}}}}"
        result = await to_apprise(to, secrets={"TOPIC": "s3cret"})
    assert isinstance(result, Retry)
    assert result.code == "not_accepted"
    assert "500" in str(result.error)
    assert sink.last.target == "/s3cret"


async def test_apprise_encodes_secrets_and_fills_them_once() -> None:
    sink = Sink()
    async with serving(sink.handle) as sink.port:
        to = f"json://{{{{ secret.USER }}}}:{{{{secret.PASSWORD}}}}@127.0.0.1:{sink.port}/x"
        secrets = {"USER": "a/b", "PASSWORD": "p@s/{{secret.USER}}%41"}
        assert await to_apprise(to, secrets=secrets) == Sent()
    assert sink.last.target == "/x"
    login = base64.b64decode(sink.last.headers["authorization"].removeprefix("Basic ")).decode()
    assert login == "a/b:p@s/{{secret.USER}}%41"


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("json://127.0.0.1:9/x", "egress_denied"),
        ("json://localhost:9/x", "egress_denied"),
        ("nosuch://x", "bad_address"),
        ("syslog://local", "not_supported"),
        ("discord://1234/token?template=/etc/hostname", "bad_address"),
    ],
)
async def test_apprise_refuses(to: str, code: str) -> None:
    result = await to_apprise(to, CLOSED)
    assert isinstance(result, Refused), result
    assert result.code == code


async def test_apprise_does_not_wait_as_long_as_a_url_asks() -> None:
    hanging = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        await hanging.wait()
        writer.close()

    apprise = Apprise(egress=OPEN, seconds=1.5)
    await apprise.open()
    try:
        async with serving(never) as port:
            to = f"json://127.0.0.1:{port}/?rto=86400&cto=86400&retry=9"
            result = await apprise.send(an_attempt(None, a_recipient(Channel.APPRISE, to=to)))
            hanging.set()
    finally:
        await apprise.close()
    # Not `timeout`: the thread has ended, too.
    assert isinstance(result, Retry)
    assert result.code == "not_accepted"


def test_addresses_are_checked() -> None:
    def check(channel: Channel, to: str) -> None:
        check_recipients((Recipient(channel=channel, to=to),))

    check(Channel.SLACK, HOOK)
    check(Channel.APPRISE, "discord://ID/{{secret.DISCORD}}")
    for channel, to in (
        (Channel.SLACK, "hooks.slack.com"),
        (Channel.APPRISE, "discord"),
        (Channel.APPRISE, "https://example.com/hook"),
        (Channel.APPRISE, "ntfy://with space"),
    ):
        with pytest.raises(InvalidInput):
            check(channel, to)


@pytest.mark.parametrize(
    ("text", "channel", "to"),
    [
        ("ntfy://topic:on=failure", "apprise", "ntfy://topic"),
        ("slack://A/B/C", "apprise", "slack://A/B/C"),
        (f"slack:{HOOK}", "slack", HOOK),
        ("apprise:discord://1/2", "apprise", "discord://1/2"),
    ],
)
def test_text_form(text: str, channel: str, to: str) -> None:
    found = parse_recipient(text)
    assert (found["channel"], found["to"]) == (channel, to)
    assert parse_recipient(format_recipient(found)) == found


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (HOOK, "https://hooks.slack.com/services/***"),
        ("discord://123/token", "discord://***"),
        ("json://user:pass@host/path", "json://user:***@host/path"),
        ("postgresql://db/name", "postgresql://db/name"),
        ("ntfy://{{secret.TOPIC}}", "ntfy://{{secret.TOPIC}}"),
    ],
)
def test_tokens_in_addresses_are_masked_and_kept(stored: str, shown: str) -> None:
    assert mask_text(stored) == shown
    assert unmask_text(shown, stored) == stored
