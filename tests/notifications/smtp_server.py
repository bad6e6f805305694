"""A small SMTP server on the loopback that records mails and answers by script."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as usual_policy


@dataclass
class Mail:
    sender: str
    to: list[str]
    content: bytes
    tls: bool
    login: str

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.content, _class=EmailMessage, policy=usual_policy)  # type: ignore[call-overload,no-any-return]


@dataclass
class SmtpServer:
    #: Answers by SMTP verb: `{"RCPT": "550 no such user"}`; empty: no answer.
    answers: dict[str, str] = field(default_factory=dict)
    #: Accepted user:password; empty: no authentication.
    account: str = ""
    #: TLS context of STARTTLS; None: not offered.
    tls: ssl.SSLContext | None = None
    mails: list[Mail] = field(default_factory=list)
    port: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mail = Mail("", [], b"", False, "")
        await self._say(writer, "CONNECT", "220 test")
        while line := await reader.readline():
            verb = line.decode().strip().split(" ")[0].upper()
            text = line.decode().strip()
            match verb:
                case "EHLO" | "HELO":
                    lines = ["test", "8BITMIME", "SMTPUTF8"]
                    if self.tls is not None and not mail.tls:
                        lines.append("STARTTLS")
                    if self.account:
                        lines.append("AUTH PLAIN")
                    said = [f"250-{each}" for each in lines[:-1]] + [f"250 {lines[-1]}"]
                    await self._say(writer, verb, "\r\n".join(said))
                case "STARTTLS":
                    await self._say(writer, verb, "220 go ahead")
                    assert self.tls is not None
                    await writer.start_tls(self.tls)
                    mail.tls = True
                case "AUTH":
                    given = base64.b64decode(text.split(" ")[2]).decode().split("\0")
                    mail.login = ":".join(given[1:])
                    good = mail.login == self.account
                    await self._say(writer, verb, "235 welcome" if good else "535 not you")
                case "MAIL":
                    mail.sender = text.partition("<")[2].partition(">")[0]
                    await self._say(writer, verb, "250 ok")
                case "RCPT":
                    mail.to.append(text.partition("<")[2].partition(">")[0])
                    await self._say(writer, verb, "250 ok")
                case "DATA":
                    await self._say(writer, verb, "354 go on")
                    if "DATA" not in self.answers:
                        content = await reader.readuntil(b"\r\n.\r\n")
                        mail.content = content[:-3].replace(b"\r\n..", b"\r\n.")
                        self.mails.append(mail)
                        await self._say(writer, "END", "250 taken")
                case "QUIT":
                    await self._say(writer, verb, "221 bye")
                    return
                case _:
                    await self._say(writer, verb, "250 ok")

    async def _say(self, writer: asyncio.StreamWriter, verb: str, usual: str) -> None:
        text = self.answers.get(verb, usual)
        if not text:
            await asyncio.Event().wait()
        writer.write(f"{text}\r\n".encode())
        await writer.drain()


@asynccontextmanager
async def smtp_server(*, over_tls: ssl.SSLContext | None = None) -> AsyncIterator[SmtpServer]:
    smtp = SmtpServer()
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await smtp.handle(reader, writer)
        tasks.discard(task)
        writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0, ssl=over_tls, limit=64 * 1024 * 1024)
    smtp.port = server.sockets[0].getsockname()[1]
    try:
        yield smtp
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
