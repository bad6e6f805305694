"""The e-mail channel: smtplib in its own threads."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from urllib.parse import unquote, urlsplit

from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.model.recipient import Channel
from chimes.notifications.attachments import AttachmentFetcher, FetchBudget, File
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.message import link_line, one_line

SECONDS = 60.0
#: Timeout of one response of the server.
ANSWER_SECONDS = 20.0
MAX_SUBJECT = 200
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    host: str
    port: int
    #: Implicit TLS (smtps).
    tls: bool
    user: str = ""
    password: str = ""


def parse_server(url: str) -> Server:
    """Parses `smtp_url`. Raises ConfigError, without the password in its text."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ConfigError(
            _("smtp_url: expected smtp://user:password@host:port, or smtps://"), key="smtp_url"
        )
    tls = parts.scheme == "smtps"
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not (user + password).isascii():
        raise ConfigError(_("smtp_url: user and password must be ASCII text"), key="smtp_url")
    default_port = 465 if tls else 587 if user else 25
    return Server(
        host=parts.hostname,
        port=port or default_port,
        tls=tls,
        user=user,
        password=password,
    )


def parse_sender(text: str) -> Address:
    """`Chimes <chimes@example.com>`, or the address alone."""
    name, address = parseaddr(text)
    try:
        if not address or "@" not in address:
            raise ValueError
        return Address(display_name=name, addr_spec=address)
    except Exception:
        # The parser of the standard library raises many types of errors.
        raise ConfigError(
            _("smtp_from: expected an address such as chimes@example.com"), key="smtp_from"
        ) from None


class Email:
    channel = Channel.EMAIL
    capacity = 16

    def __init__(
        self,
        *,
        server: Server,
        sender: Address,
        fetcher: AttachmentFetcher,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._server = server
        self._sender = sender
        self._fetcher = fetcher
        self._tls = tls
        self._seconds = seconds
        self._answer_seconds = answer_seconds
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        await self._fetcher.open()
        self._threads = ThreadPoolExecutor(self.capacity, thread_name_prefix="chimes-smtp")

    async def close(self) -> None:
        await self._fetcher.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, attempt: DeliveryAttempt) -> Result:
        async with self._fetcher.budget(len(attempt.message.files)) as budget:
            mail = await self._mail(attempt, budget)
            if mail is None:
                return Refused(error=_("not an e-mail address"), code="bad_address")
            return await self._in_thread(mail)

    async def _mail(self, attempt: DeliveryAttempt, budget: FetchBudget) -> EmailMessage | None:
        """A separate method, so that the fetched files are freed before the mail is sent."""
        fetched = [(each, await budget.fetch(each)) for each in attempt.message.files]
        files = [file for _artifact, file in fetched if file is not None]
        links = [link_line(artifact) for artifact, file in fetched if file is None]
        try:
            to = Address(addr_spec=attempt.recipient.to)
            return mail_of(attempt, self._sender, to, files, links)
        except Exception:
            # The recipient was saved under older rules; see `parse_sender`.
            return None

    async def _in_thread(self, mail: EmailMessage) -> Result:
        assert self._threads is not None, "open() was not called"
        session = _SmtpSession(self._server, self._sender.domain, self._tls, self._answer_seconds)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, session.send, mail)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            return Retry(
                error=_("timed out after {seconds:g} s", seconds=self._seconds), code="timeout"
            )
        finally:
            # Otherwise the thread would keep waiting and stay occupied.
            session.abort()


class _SmtpSession:
    """One session with the server, in a thread."""

    def __init__(
        self, server: Server, local_hostname: str, tls: ssl.SSLContext | None, seconds: float
    ) -> None:
        """`local_hostname`: for EHLO; a lookup by smtplib could take seconds."""
        self._server = server
        self._local_hostname = local_hostname
        self._tls = tls
        self._seconds = seconds
        self._client: smtplib.SMTP | None = None

    def abort(self) -> None:
        sock = self._client.sock if self._client is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def send(self, mail: EmailMessage) -> Result:
        try:
            self._send(mail)
        except smtplib.SMTPAuthenticationError:
            error = _("the mail server rejected user or password: check CHIMES_SMTP_URL")
            return Retry(error=error, code="bad_login")
        except smtplib.SMTPRecipientsRefused as refused:
            return _result_of(*next(iter(refused.recipients.values())))
        except smtplib.SMTPResponseException as answer:
            return _result_of(answer.smtp_code, answer.smtp_error)
        except smtplib.SMTPNotSupportedError:
            return Refused(
                error=_("the mail server does not support this address"), code="not_supported"
            )
        except ssl.SSLCertVerificationError:
            return Retry(error=_("the mail server's TLS certificate is not valid"), code="tls")
        except _InsecureConnection as insecure:
            return Refused(error=insecure.args[0], code="no_tls")
        except (smtplib.SMTPException, OSError, UnicodeError) as failed:
            text = _("the mail server cannot be reached: {type}", type=type(failed).__name__)
            return Retry(error=text, code="unreachable")
        return Sent(receipt=str(mail["Message-ID"]))

    def _send(self, mail: EmailMessage) -> None:
        server = self._server
        context = self._tls or ssl.create_default_context()
        client: smtplib.SMTP
        if server.tls:
            client = _OverTls(server.host, self._local_hostname, self._seconds, context)
        else:
            client = _Plain(server.host, self._local_hostname, self._seconds)
        self._client = client
        try:
            code, reply = client.connect(server.host, server.port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, reply)
            client.ehlo_or_helo_if_needed()
            secured = server.tls
            if not secured and client.has_extn("starttls"):
                client.starttls(context=context)
                client.ehlo()
                secured = True
            if server.user:
                if not secured and server.host not in _LOOPBACK:
                    raise _InsecureConnection(
                        _("the mail server offers no TLS, so the password is not sent")
                    )
                client.login(server.user, server.password)
            client.send_message(mail)
            with suppress(smtplib.SMTPException, OSError):
                client.quit()
        finally:
            client.close()


class _Plain(smtplib.SMTP):
    """Created without a connection, so that `abort` can interrupt the connecting."""

    def __init__(self, host: str, local_hostname: str, seconds: float) -> None:
        super().__init__(local_hostname=local_hostname, timeout=seconds)
        # Checked by the TLS handshake.
        self._host = host


class _OverTls(smtplib.SMTP_SSL):
    def __init__(
        self, host: str, local_hostname: str, seconds: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(local_hostname=local_hostname, timeout=seconds, context=context)
        self._host = host


class _InsecureConnection(Exception):
    """The password would be sent in clear text."""


def _result_of(code: int, reply: bytes | str) -> Result:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    error = f"SMTP {code} {one_line(text)}"[:300].rstrip()
    kind = Retry if 400 <= code <= 499 or code < 0 else Refused
    return kind(error=error, code=f"smtp_{code}")


def mail_of(
    attempt: DeliveryAttempt,
    sender: Address,
    to: Address,
    files: Sequence[File],
    links: Sequence[str],
) -> EmailMessage:
    """The Message-ID derives from the delivery, so that receivers can detect a repeat."""
    message = attempt.message
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = one_line(message.title)[:MAX_SUBJECT]
    mail["From"] = sender
    mail["To"] = to
    mail["Date"] = format_datetime(attempt.now)
    mail["Message-ID"] = f"<{attempt.delivery_id}@{sender.domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["Content-Language"] = message.language
    text = "\n\n".join(filter(None, (message.text, "\n".join(links))))
    mail.set_content(text.encode("utf-8", "replace").decode() + "\n")
    for file in files:
        main, _slash, sub = file.content_type.partition("/")
        if main in ("text", "multipart", "message") or not sub:
            main, sub = "application", "octet-stream"
        mail.add_attachment(file.content, maintype=main, subtype=sub, filename=file.name)
    return mail
