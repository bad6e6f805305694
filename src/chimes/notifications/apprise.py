"""The Apprise channel: some hundred services by URL, such as `ntfy://topic` or `discord://…`.

Apprise is a package of its own (extra `apprise`). It sends with blocking calls, so each attempt
runs in a thread. Only services that are called over HTTP are allowed: their connections go through
urllib3, where every dialled address is checked by the egress rules.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from chimes.egress import Egress
from chimes.i18n import _
from chimes.model.access import fill_secrets
from chimes.model.recipient import Channel
from chimes.model.run import RunStatus
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.message import one_line

SECONDS = 60.0
MAX_ERROR = 300
_TYPES = {
    RunStatus.SUCCEEDED.value: "success",
    RunStatus.FAILED.value: "failure",
    RunStatus.TIMEOUT.value: "failure",
    RunStatus.UNKNOWN.value: "failure",
    RunStatus.MISSED.value: "warning",
}
#: Options of Apprise's URLs that name files on this machine.
_FILE_OPTIONS = frozenset({"template", "keyfile", "subfile", "attach"})
#: The egress rules of the thread that sends.
_rules = threading.local()


class _Denied(OSError):
    """The egress rules deny an address."""


class Apprise:
    channel = Channel.APPRISE
    capacity = 8

    def __init__(self, *, egress: Egress, seconds: float = SECONDS) -> None:
        self._egress = egress
        self._seconds = seconds
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        self._threads = ThreadPoolExecutor(self.capacity, thread_name_prefix="chimes-apprise")

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, attempt: DeliveryAttempt) -> Result:
        assert self._threads is not None, "open() was not called"
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._send, attempt)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            return Retry(
                error=_("timed out after {seconds:g} s", seconds=self._seconds), code="timeout"
            )

    def _send(self, attempt: DeliveryAttempt) -> Result:
        apprise = _load()
        # Apprise decodes the parts of its URLs.
        encoded = {name: quote(value, safe="") for name, value in attempt.secrets.items()}
        url = fill_secrets(attempt.recipient.to, encoded)
        asset = apprise.AppriseAsset(
            app_id="Chimes",
            app_desc="Chimes",
            async_mode=False,
            storage_mode="memory",
        )
        scheme = url.partition("://")[0]
        if names := _FILE_OPTIONS.intersection(parse_qs(urlsplit(url).query, True)):
            return Refused(
                error=_("{name} names a file of the server, which is not allowed", name=min(names)),
                code="bad_address",
            )
        service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            return Refused(
                error=_(
                    "Apprise does not know the address of {scheme}, or it is incomplete",
                    scheme=scheme,
                ),
                code="bad_address",
            )
        if "requests" not in vars(sys.modules[type(service).__module__]):
            return Refused(
                error=_("{scheme} is not called over HTTP, so it cannot be used", scheme=scheme),
                code="not_supported",
            )
        # The URL may ask for more; a thread must not wait longer than an attempt lasts.
        service.socket_connect_timeout = service.socket_read_timeout = self._seconds / 3
        service.retry = 0
        lines = _LogLines()
        logger = logging.getLogger("apprise")
        _rules.egress = self._egress
        logger.addHandler(lines)
        try:
            sent = service.notify(
                title=one_line(attempt.message.title),
                body=attempt.message.text,
                notify_type=_TYPES.get(attempt.message.status, "info"),
            )
        finally:
            logger.removeHandler(lines)
            denial = getattr(_rules, "denial", None)
            _rules.egress = _rules.denial = None
        if denial is not None:
            return Refused(error=denial, code="egress_denied")
        if sent:
            return Sent()
        error = _("the service did not accept it: {reason}", reason=lines.last or scheme)
        return Retry(error=error, code="not_accepted")


class _LogLines(logging.Handler):
    """What Apprise logged in this thread last; it is the only place of its reasons."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.last = one_line(record.getMessage())[:MAX_ERROR]


_load_lock = threading.Lock()


def _load() -> ModuleType:
    """Imports Apprise, and lets urllib3 ask the egress rules of the sending thread."""
    with _load_lock:
        import apprise
        import urllib3.util.connection as connections

        if getattr(connections.create_connection, "__module__", "") != __name__:
            connections.create_connection = _checked(connections.create_connection)
        return apprise


def _checked(create_connection: Any) -> Any:
    def create(address: tuple[str, int], *arguments: Any, **options: Any) -> Any:
        egress: Egress | None = getattr(_rules, "egress", None)
        if egress is None:
            # Another user of urllib3 in this process.
            return create_connection(address, *arguments, **options)
        return create_connection(_allowed(egress, *address), *arguments, **options)

    create.__module__ = __name__
    return create


def _allowed(egress: Egress, host: str, port: int) -> tuple[str, int]:
    """The first address of the host that may be dialled; it is resolved once."""
    error = ""
    for *_unused, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        dialled = str(address[0])
        denial = egress.check_address(ip_address(dialled.partition("%")[0]), port, host=host)
        if denial is None:
            return dialled, port
        error = str(denial.text)
    _rules.denial = error
    raise _Denied(error)
