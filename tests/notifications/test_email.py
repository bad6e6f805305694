"""The e-mail channel against an SMTP server on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from chimes.egress import EgressRules
from chimes.errors import ConfigError
from chimes.model import replace
from chimes.model.recipient import Channel
from chimes.notifications.attachments import AttachmentFetcher
from chimes.notifications.base import Refused, Result, Retry, Sent
from chimes.notifications.email import Email, Server, parse_sender, parse_server
from tests.builders import NOW
from tests.notifications.attempts import a_recipient, an_attempt, an_ended_run
from tests.notifications.bot_api import serve_app
from tests.notifications.smtp_server import SmtpServer, smtp_server
from tests.targets.certificates import Authority, create_authority

TO = a_recipient(Channel.EMAIL)
SENDER = parse_sender("Chimes <chimes@example.org>")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return create_authority(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def channel(server: Server, *, agent_url: str = "", **given: Any) -> AsyncIterator[Email]:
    fetcher = AttachmentFetcher(
        egress=EgressRules(open_mode=False), user_agent="test", agent_url=agent_url
    )
    email = Email(server=server, sender=SENDER, fetcher=fetcher, **given)
    await email.open()
    try:
        yield email
    finally:
        await email.close()


def server_at(smtp: SmtpServer, **given: Any) -> Server:
    return replace(Server(host="127.0.0.1", port=smtp.port, tls=False), **given)


async def result_of(smtp: SmtpServer, **given: Any) -> Result:
    async with channel(server_at(smtp), **given) as email:
        return await email.send(an_attempt(recipient=TO))


async def test_mail_is_in_the_language_of_the_recipient() -> None:
    async with smtp_server() as smtp, channel(server_at(smtp)) as email:
        attempt = an_attempt(an_ended_run("สรุปข่าว **วันนี้**"), TO, language="th")
        result = await email.send(attempt)
    assert result == Sent(receipt=f"<{attempt.delivery_id}@example.org>")
    (mail,) = smtp.mails
    assert (mail.sender, mail.to) == ("chimes@example.org", ["ada@example.com"])
    message = mail.message
    assert message["Subject"] == "Morning report: สำเร็จ"
    assert message["From"] == "Chimes <chimes@example.org>"
    # The same at every attempt, so that a receiver can detect a repeat.
    assert message["Message-ID"] == f"<{attempt.delivery_id}@example.org>"
    assert message["Date"].datetime == NOW.replace(microsecond=0)
    assert message["Auto-Submitted"] == "auto-generated"
    assert message.get_content().replace("\r\n", "\n") == attempt.message.text + "\n"
    assert "สรุปข่าว วันนี้" in message.get_content()


# Header injection.
@pytest.mark.parametrize("name", ["a\r\nBcc: eve@example.com", "a\nSubject: x", "a\u2028b\x0b\x85"])
async def test_names_cannot_inject_headers(name: str) -> None:
    run = an_ended_run(schedule_name=name)
    async with smtp_server() as smtp, channel(server_at(smtp)) as email:
        assert isinstance(await email.send(an_attempt(run, TO)), Sent)
    (mail,) = smtp.mails
    assert mail.to == ["ada@example.com"]
    assert "Bcc" not in mail.message
    assert mail.message.get_all("Subject") == [mail.message["Subject"]]


@pytest.mark.parametrize(
    "address", ["", "nobody", "a@b\r\nRCPT TO:<eve@example.com>", "a@b,c@d", "<a@b>, eve@x"]
)
async def test_invalid_addresses_are_permanent_failures(address: str) -> None:
    async with smtp_server() as smtp, channel(server_at(smtp)) as email:
        result = await email.send(an_attempt(recipient=replace(TO, to=address)))
    assert isinstance(result, Refused)
    assert smtp.mails == []


async def test_unavailable_files_become_links() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.match_info["name"] == "gone":
            raise web.HTTPNotFound()
        return web.Response(body=b"\x89PNG\r\n.\r\n", content_type="image/png")

    app = web.Application()
    app.router.add_get("/{name}", answer)
    async with serve_app(app) as url, smtp_server() as smtp:
        made = [{"name": name, "url": f"{url}/{name}"} for name in ("รูป.png", "gone")]
        async with channel(server_at(smtp), agent_url=url) as email:
            assert isinstance(await email.send(an_attempt(an_ended_run(artifacts=made), TO)), Sent)
    message = smtp.mails[0].message
    (attached,) = message.iter_attachments()
    assert attached.get_filename() == "รูป.png"
    assert attached.get_content_type() == "image/png"
    assert attached.get_content() == b"\x89PNG\r\n.\r\n"
    body = message.get_body()
    assert body is not None
    assert body.get_content().strip().endswith(f"gone: {url}/gone")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"RCPT": "450 try later"},
            Retry(error="SMTP 450 try later", code="smtp_450"),
        ),
        ({"RCPT": "550 no such user"}, Refused(error="SMTP 550 no such user", code="smtp_550")),
        ({"MAIL": "552 too much"}, Refused(error="SMTP 552 too much", code="smtp_552")),
        ({"END": "451 busy"}, Retry(error="SMTP 451 busy", code="smtp_451")),
        ({"END": "554 spam"}, Refused(error="SMTP 554 spam", code="smtp_554")),
        ({"CONNECT": "421 full"}, Retry(error="SMTP 421 full", code="smtp_421")),
    ],
)
async def test_smtp_answers_map_to_results(answers: dict[str, str], expected: object) -> None:
    async with smtp_server() as smtp:
        smtp.answers = answers
        assert await result_of(smtp) == expected


async def test_unreachable_or_hanging_server_is_retried() -> None:
    async with smtp_server() as smtp:
        smtp.answers = {"EHLO": ""}
        result = await result_of(smtp, seconds=0.2)
        assert result == Retry(error="timed out after 0.2 s", code="timeout")
        smtp.answers = {"CONNECT": ""}
        result = await result_of(smtp, answer_seconds=0.1)
        assert isinstance(result, Retry)
        assert result.code == "unreachable"
    result = await result_of(smtp)
    assert isinstance(result, Retry)
    assert result.code == "unreachable"


async def test_the_password_is_sent_over_tls_or_loopback_only(authority: Authority) -> None:
    async with smtp_server() as smtp:
        smtp.account, smtp.tls = "ada:pa:ss", authority.server("localhost")
        server = server_at(smtp, host="localhost", user="ada", password="pa:ss")
        async with channel(server, tls=authority.client()) as email:
            assert isinstance(await email.send(an_attempt(recipient=TO)), Sent)
        assert (smtp.mails[0].tls, smtp.mails[0].login) == (True, "ada:pa:ss")
        # To a remote server the password is not sent without TLS.
        smtp.tls = None
        async with channel(replace(server, host="127.1")) as email:
            result = await email.send(an_attempt(recipient=TO))
        assert isinstance(result, Refused)
        assert result.code == "no_tls"
        async with channel(replace(server, password="wrong")) as email:
            result = await email.send(an_attempt(recipient=TO))
        assert isinstance(result, Retry)
        assert (result.code, "wrong" in result.error) == ("bad_login", False)


async def test_smtps_uses_implicit_tls(authority: Authority) -> None:
    async with smtp_server(over_tls=authority.server("localhost")) as smtp:
        server = server_at(smtp, host="localhost", tls=True)
        async with channel(server, tls=authority.client()) as email:
            assert isinstance(await email.send(an_attempt(recipient=TO)), Sent)
        async with channel(server) as email:
            result = await email.send(an_attempt(recipient=TO))
    assert isinstance(result, Retry)
    assert result.code == "tls"
    assert len(smtp.mails) == 1


def test_parse_server() -> None:
    server = Server(host="mail.example", port=465, tls=True, user="a@b", password="p/w")
    assert parse_server("smtps://a%40b:p%2Fw@mail.example") == server
    assert parse_server("smtp://mail.example") == Server(host="mail.example", port=25, tls=False)
    assert parse_server("smtp://u@mail.example").port == 587
    assert parse_server("smtp://mail.example:2525").port == 2525


@pytest.mark.parametrize(
    "url", ["mail.example", "http://x", "smtp://", "smtp://u:hush@h:port", "smtp://u:hush%C3%A4@h"]
)
def test_invalid_server_urls_are_rejected(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="smtp_url") as raised:
        parse_server(url)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "nobody", "a b", "@x"])
def test_invalid_senders_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="smtp_from"):
        parse_sender(text)
