"""The two clients. Both drive the same verbs: one blocks, one awaits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib.metadata import version
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import httpx2

from chimes.client.operations import Verbs
from chimes.client.requests import Duration, path_of
from chimes.client.transport import (
    Call,
    NoAnswer,
    Reply,
    Steps,
    Wait,
    asked_to_wait,
    error_of,
    object_of,
    pauses,
)
from chimes.client.values import LogLine, RunInfo, log_line
from chimes.clock import SystemClock
from chimes.errors import ConfigError, Conflict, Unreachable
from chimes.i18n import _
from chimes.language.languages import named

# @@ Following the log of a run: the events as they come, again after a lost connection.
#
# Where a follower is stands in `Following`, which never touches a socket, so that the blocking
# and the asynchronous client drive one and the same code.

#: Come back later: the store is away, or too many follow.
_LATER = frozenset({429, 503})


class Following:
    def __init__(self, run_id: str, *, after: int, patience: float) -> None:
        """`patience`: seconds to wait over the tries to come back, counted anew after each that
        brought something."""
        self._run_id = run_id
        self._after = after
        self._patience = patience
        self._left = patience
        self._pauses = pauses()
        self._event: list[str] = []
        self._ended = False

    def ended(self) -> bool:
        """The run has ended and all of its log was read."""
        return self._ended

    @property
    def call(self) -> Call:
        self._event = []
        return Call(
            method="GET",
            path=path_of("runs", self._run_id, "logs"),
            query={"after": str(self._after), "follow": "true"},
            headers={"Accept": "text/event-stream"},
        )

    def line(self, text: str) -> Iterator[LogLine]:
        """One line of the stream; entries come out at the end of an event."""
        if text:
            self._event.append(text)
            return
        event, self._event = self._event, []
        data = "\n".join(_values(event, "data"))
        if _values(event, "event") == ["end"]:
            self._ended = True
        elif data:
            found = json.loads(data)
            if isinstance(found, dict):
                entry = log_line(found)
                self._after = entry.number
                self._left, self._pauses = self._patience, pauses()
                yield entry

    def refused(self, reply: Reply) -> float:
        """How many seconds to wait; raises where waiting does not help."""
        error = error_of(reply.status, object_of(reply), reply.headers)
        if reply.status not in _LATER:
            raise error
        return self._wait(error, asked_to_wait(reply.headers))

    def broken(self, reason: str) -> float:
        """The connection is lost, or the server wants somebody else to be asked."""
        return self._wait(Unreachable(reason), 0.0)

    def _wait(self, error: Exception, least: float) -> float:
        pause = max(next(self._pauses), least)
        if pause > self._left:
            raise error
        self._left -= pause
        return pause


def _values(event: list[str], name: str) -> list[str]:
    prefix = f"{name}:"
    return [
        line.removeprefix(prefix).removeprefix(" ") for line in event if line.startswith(prefix)
    ]


# @@ One run on a server, to wait for and to ask about.


class RunHandle:
    """One run on a server."""

    __slots__ = ("_client", "id")

    def __init__(self, run_id: str, client: Client) -> None:
        self.id = run_id
        self._client = client

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r})"

    def run(self) -> RunInfo:
        return self._client.run(self.id)

    def status(self) -> str:
        return self.run().status

    def result(self, timeout: Duration | None = None) -> object:
        """What the task returned, once it has ended; see `Client.result`."""
        return self._client.result(self.id, timeout)

    def logs(self) -> list[LogLine]:
        return self._client.logs(self.id)

    def follow_logs(self, *, after: int = 0) -> Iterator[LogLine]:
        """Its lines as they are written; see `Client.follow_logs`."""
        return self._client.follow_logs(self.id, after=after)

    def cancel(self) -> bool:
        """Ask it to stop: True if it was still waiting or running."""
        try:
            self._client.cancel(self.id)
        except Conflict:
            return False
        return True


class AsyncRunHandle:
    """One run on a server, for `await`."""

    __slots__ = ("_client", "id")

    def __init__(self, run_id: str, client: AsyncClient) -> None:
        self.id = run_id
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncRunHandle({self.id!r})"

    async def run(self) -> RunInfo:
        return await self._client.run(self.id)

    async def status(self) -> str:
        return (await self.run()).status

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109
        return await self._client.result(self.id, timeout)

    async def logs(self) -> list[LogLine]:
        return await self._client.logs(self.id)

    def follow_logs(self, *, after: int = 0) -> AsyncIterator[LogLine]:
        return self._client.follow_logs(self.id, after=after)

    async def cancel(self) -> bool:
        try:
            await self._client.cancel(self.id)
        except Conflict:
            return False
        return True


API = "/api/v1"
DEFAULT_URL = "http://127.0.0.1:7100"
_ENDED_EARLY = _("the server ended the stream before the run had ended")
_SILENCE = 30.0
P = ParamSpec("P")
T = TypeVar("T")


class _Connection:
    """Where the server is and how to be known there; the key is never shown."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        namespace: str = "catbird",
        timeout: float = 30.0,
        patience: float = 15.0,
        verify: bool = True,
        language: str | None = None,
    ) -> None:
        """`url` and `key` are those of CHIMES_URL and CHIMES_API_KEY where they are left out.
        `timeout`: seconds for one answer. `patience`: seconds to wait over all repeats of one
        request, when the server is away or asks to come back later. `language`: in which the
        server says what is wrong, `en`, `th` or `zh`; else the one that the key's owner chose."""
        self.url = checked_url(url or os.environ.get("CHIMES_URL") or DEFAULT_URL)
        self.namespace = namespace
        self._key = key if key is not None else os.environ.get("CHIMES_API_KEY") or ""
        self._timeout = timeout
        self._patience = patience
        self._verify = verify
        self.language = None if language is None else named(language)
        self._verbs = Verbs(
            namespace=namespace, patience=patience, monotonic=SystemClock().monotonic
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _headers(self) -> dict[str, str]:
        agent = f"chimes-client/{version('chimes')}"
        headers = {"User-Agent": agent, "Accept": "application/json"}
        if self.language is not None:
            headers["X-Language"] = self.language
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers


def checked_url(url: str) -> str:
    """Without a slash at its end. A key in the URL would show up in logs."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(_("the URL of a server is written http://host:port"), key="url")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(_("the URL of a server has no user, no query and no fragment"), key="url")
    return url.rstrip("/")


def _request(http: httpx2.Client | httpx2.AsyncClient, call: Call) -> httpx2.Request:
    return http.build_request(
        call.method,
        call.path,
        params=call.query,
        json=call.body,
        headers=call.headers,
    )


def _stream(http: httpx2.Client | httpx2.AsyncClient, call: Call) -> httpx2.Request:
    """Silence of the length of a few heartbeats is no failure."""
    request = _request(http, call)
    limits = request.extensions["timeout"]
    read = limits["read"]
    if read is not None:
        request.extensions["timeout"] = {**limits, "read": max(read, _SILENCE)}
    return request


def _reply(answer: httpx2.Response) -> Reply:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Reply(status=answer.status_code, headers=headers, body=answer.content)


def _reason(url: str, error: httpx2.TransportError) -> str:
    """By kind only: what the driver says may repeat what was sent."""
    if isinstance(error, httpx2.TimeoutException):
        return _("{url} has not answered in time", url=url)
    return _("{url} cannot be reached ({reason})", url=url, reason=type(error).__name__)


def blocking(
    verb: Callable[Concatenate[Verbs, P], Steps[T]],
) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(verb)
    def call(self: Client, /, *args: P.args, **named: P.kwargs) -> T:
        return self._drive(verb(self._verbs, *args, **named))

    return call


def blocking_run(
    verb: Callable[Concatenate[Verbs, P], Steps[str]],
) -> Callable[Concatenate[Client, P], RunHandle]:
    @functools.wraps(verb)
    def call(self: Client, /, *args: P.args, **named: P.kwargs) -> RunHandle:
        return self.run_handle(self._drive(verb(self._verbs, *args, **named)))

    return call


def awaiting(
    verb: Callable[Concatenate[Verbs, P], Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[object, object, T]]:
    @functools.wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._drive(verb(self._verbs, *args, **named))

    return call


def awaiting_run(
    verb: Callable[Concatenate[Verbs, P], Steps[str]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[object, object, AsyncRunHandle]]:
    @functools.wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **named: P.kwargs) -> AsyncRunHandle:
        return self.run_handle(await self._drive(verb(self._verbs, *args, **named)))

    return call


class Client(_Connection):
    """The verbs, blocking. Close it, or use it as a context manager."""

    _http: httpx2.Client | None = None

    @property
    def aio(self) -> AsyncClient:
        """The same server and key, for `await`."""
        return AsyncClient(
            self.url,
            self._key,
            namespace=self.namespace,
            timeout=self._timeout,
            patience=self._patience,
            verify=self._verify,
            language=self.language,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def run_handle(self, run_id: str) -> RunHandle:
        """A run by an id that was kept elsewhere."""
        return RunHandle(run_id, self)

    def _drive(self, steps: Steps[T]) -> T:
        came: Reply | NoAnswer | None = None
        try:
            while True:
                wanted = steps.send(came)
                if isinstance(wanted, Wait):
                    time.sleep(wanted.seconds)
                    came = None
                else:
                    came = self._send(wanted)
        except StopIteration as done:
            found: T = done.value
            return found

    def follow_logs(self, run_id: str, *, after: int = 0) -> Iterator[LogLine]:
        """The lines of its log numbered above `after`, as they are written, until it has ended.
        Goes on by itself after a lost connection, without losing or repeating a line."""
        following = Following(run_id, after=after, patience=self._patience)
        while True:
            http = self._connected()
            pause = None
            try:
                answer = http.send(_stream(http, following.call), stream=True)
                with contextlib.closing(answer):
                    if answer.status_code != 200:
                        answer.read()
                        pause = following.refused(_reply(answer))
                    else:
                        for line in answer.iter_lines():
                            yield from following.line(line)
                            if following.ended():
                                return
            except httpx2.TransportError as error:
                pause = following.broken(_reason(self.url, error))
            time.sleep(following.broken(_ENDED_EARLY) if pause is None else pause)

    def _connected(self) -> httpx2.Client:
        if self._http is None:
            self._http = httpx2.Client(
                base_url=self.url + API,
                headers=self._headers(),
                timeout=self._timeout,
                verify=self._verify,
            )
        return self._http

    def _send(self, call: Call) -> Reply | NoAnswer:
        http = self._connected()
        try:
            return _reply(http.send(_request(http, call)))
        except httpx2.TransportError as error:
            return NoAnswer(_reason(self.url, error))

    list_schedules = blocking(Verbs.list_schedules)
    get_schedule = blocking(Verbs.get_schedule)
    schedule = blocking(Verbs.schedule)
    delete_schedule = blocking(Verbs.delete_schedule)
    trigger_schedule = blocking_run(Verbs.trigger_schedule)
    reschedule_for = blocking(Verbs.reschedule_for)
    set_schedule_enabled = blocking(Verbs.set_schedule_enabled)
    pause = blocking(Verbs.pause)
    resume = blocking(Verbs.resume)
    enqueue = blocking_run(Verbs.enqueue)
    runs = blocking(Verbs.runs)
    run = blocking(Verbs.run)
    logs = blocking(Verbs.logs)
    cancel = blocking(Verbs.cancel)
    retry = blocking_run(Verbs.retry)
    result = blocking(Verbs.result)
    nodes = blocking(Verbs.nodes)


class AsyncClient(_Connection):
    """The verbs as coroutines. Belongs to one event loop; close it, or use `async with`."""

    _http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def run_handle(self, run_id: str) -> AsyncRunHandle:
        """A run by an id that was kept elsewhere."""
        return AsyncRunHandle(run_id, self)

    async def _drive(self, steps: Steps[T]) -> T:
        came: Reply | NoAnswer | None = None
        try:
            while True:
                wanted = steps.send(came)
                if isinstance(wanted, Wait):
                    await asyncio.sleep(wanted.seconds)
                    came = None
                else:
                    came = await self._send(wanted)
        except StopIteration as done:
            found: T = done.value
            return found

    async def follow_logs(self, run_id: str, *, after: int = 0) -> AsyncIterator[LogLine]:
        """As `Client.follow_logs`."""
        following = Following(run_id, after=after, patience=self._patience)
        while True:
            http = self._connected()
            pause = None
            try:
                answer = await http.send(_stream(http, following.call), stream=True)
                async with contextlib.aclosing(answer):
                    if answer.status_code != 200:
                        await answer.aread()
                        pause = following.refused(_reply(answer))
                    else:
                        async for line in answer.aiter_lines():
                            for entry in following.line(line):
                                yield entry
                            if following.ended():
                                return
            except httpx2.TransportError as error:
                pause = following.broken(_reason(self.url, error))
            await asyncio.sleep(following.broken(_ENDED_EARLY) if pause is None else pause)

    def _connected(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(
                base_url=self.url + API,
                headers=self._headers(),
                timeout=self._timeout,
                verify=self._verify,
            )
        return self._http

    async def _send(self, call: Call) -> Reply | NoAnswer:
        http = self._connected()
        try:
            return _reply(await http.send(_request(http, call)))
        except httpx2.TransportError as error:
            return NoAnswer(_reason(self.url, error))

    list_schedules = awaiting(Verbs.list_schedules)
    get_schedule = awaiting(Verbs.get_schedule)
    schedule = awaiting(Verbs.schedule)
    delete_schedule = awaiting(Verbs.delete_schedule)
    trigger_schedule = awaiting_run(Verbs.trigger_schedule)
    reschedule_for = awaiting(Verbs.reschedule_for)
    set_schedule_enabled = awaiting(Verbs.set_schedule_enabled)
    pause = awaiting(Verbs.pause)
    resume = awaiting(Verbs.resume)
    enqueue = awaiting_run(Verbs.enqueue)
    runs = awaiting(Verbs.runs)
    run = awaiting(Verbs.run)
    logs = awaiting(Verbs.logs)
    cancel = awaiting(Verbs.cancel)
    retry = awaiting_run(Verbs.retry)
    result = awaiting(Verbs.result)
    nodes = awaiting(Verbs.nodes)
