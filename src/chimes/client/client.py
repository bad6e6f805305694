"""The blocking and the asynchronous client, over the same operations."""

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

from chimes.client.operations import Operations
from chimes.client.requests import Duration, path_of
from chimes.client.transport import (
    Call,
    NoReply,
    Reply,
    Steps,
    Wait,
    error_from,
    parse_object,
    retry_after,
    retry_delays,
)
from chimes.client.values import LogLine, RunInfo, log_line
from chimes.clock import SystemClock
from chimes.errors import ConfigError, Conflict, Unreachable
from chimes.i18n import _
from chimes.language.languages import named
from chimes.model.ids import DEFAULT_NAMESPACE, canonical_namespace
from chimes.telemetry import current_traceparent

#: Retryable statuses: store unavailable, too many streams.
_RETRYABLE = frozenset({429, 503})


class LogFollower:
    """State of a log stream across reconnections. Does no I/O, so that both clients share it."""

    def __init__(self, run_id: str, *, after: int, patience: float) -> None:
        """`patience`: total seconds to wait over reconnections; starts again after each entry."""
        self._run_id = run_id
        self._after = after
        self._patience = patience
        self._remaining = patience
        self._delays = retry_delays()
        self._event: list[str] = []
        self._ended = False

    def ended(self) -> bool:
        """Whether the run has ended and its whole log was read."""
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
        """Feeds one line of the stream; yields a log entry at the end of an event."""
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
                self._remaining, self._delays = self._patience, retry_delays()
                yield entry

    def rejected(self, reply: Reply) -> float:
        """Seconds to wait before reconnecting. Raises if the error is permanent."""
        error = error_from(reply.status, parse_object(reply), reply.headers)
        if reply.status not in _RETRYABLE:
            raise error
        return self._wait(error, retry_after(reply.headers))

    def disconnected(self, reason: str) -> float:
        """Seconds to wait after a lost connection or an early end of the stream."""
        return self._wait(Unreachable(reason), 0.0)

    def _wait(self, error: Exception, minimum: float) -> float:
        pause = max(next(self._delays), minimum)
        if pause > self._remaining:
            raise error
        self._remaining -= pause
        return pause


def _values(event: list[str], name: str) -> list[str]:
    prefix = f"{name}:"
    return [
        line.removeprefix(prefix).removeprefix(" ") for line in event if line.startswith(prefix)
    ]


class RunHandle:
    """A run on a server."""

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
        """Waits for the end and returns the value; see `Client.result`."""
        return self._client.result(self.id, timeout)

    def logs(self) -> list[LogLine]:
        return self._client.logs(self.id)

    def follow_logs(self, *, after: int = 0) -> Iterator[LogLine]:
        """Log entries as they are written; see `Client.follow_logs`."""
        return self._client.follow_logs(self.id, after=after)

    def cancel(self) -> bool:
        """Requests cancellation; False if the run has ended."""
        try:
            self._client.cancel(self.id)
        except Conflict:
            return False
        return True


class AsyncRunHandle:
    """A run on a server, with coroutines."""

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
_STREAM_READ_SECONDS = 30.0
P = ParamSpec("P")
T = TypeVar("T")


class _Connection:
    """Address, key and options of a client; the key is not in its repr."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        timeout: float = 30.0,
        patience: float = 15.0,
        verify: bool = True,
        language: str | None = None,
    ) -> None:
        """`url` and `key` default to CHIMES_URL and CHIMES_API_KEY. `timeout`: seconds per
        response. `patience`: total seconds to wait over the retries of a request while the server
        is unavailable. `language`: of error messages, `en`, `th` or `zh`; default: the preference
        of the owner of the key."""
        self.url = checked_url(url or os.environ.get("CHIMES_URL") or DEFAULT_URL)
        self.namespace = canonical_namespace(namespace)
        self._key = key if key is not None else os.environ.get("CHIMES_API_KEY") or ""
        self._timeout = timeout
        self._patience = patience
        self._verify = verify
        self.language = None if language is None else named(language)
        self._operations = Operations(
            namespace=self.namespace, patience=patience, monotonic=SystemClock().monotonic
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
    """Strips the trailing slash. Refuses credentials in the URL, which would be logged."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(_("the URL of a server has the form http://host:port"), key="url")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(_("the URL of a server has no user, no query and no fragment"), key="url")
    return url.rstrip("/")


def _request(http: httpx2.Client | httpx2.AsyncClient, call: Call) -> httpx2.Request:
    headers = call.headers
    if trace := current_traceparent():
        headers = {**headers, "traceparent": trace}
    return http.build_request(
        call.method,
        call.path,
        params=call.query,
        json=call.body,
        headers=headers,
    )


def _stream(http: httpx2.Client | httpx2.AsyncClient, call: Call) -> httpx2.Request:
    """A read timeout of several keep-alive intervals."""
    request = _request(http, call)
    limits = request.extensions["timeout"]
    read = limits["read"]
    if read is not None:
        request.extensions["timeout"] = {**limits, "read": max(read, _STREAM_READ_SECONDS)}
    return request


def _reply(answer: httpx2.Response) -> Reply:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Reply(status=answer.status_code, headers=headers, body=answer.content)


def _reason(url: str, error: httpx2.TransportError) -> str:
    """Names the error type only: the text of the driver may contain request data."""
    if isinstance(error, httpx2.TimeoutException):
        return _("{url} did not respond in time", url=url)
    return _("{url} cannot be reached ({reason})", url=url, reason=type(error).__name__)


def blocking(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(operation)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._drive(operation(self._operations, *args, **kwargs))

    return call


def blocking_run(
    operation: Callable[Concatenate[Operations, P], Steps[str]],
) -> Callable[Concatenate[Client, P], RunHandle]:
    @functools.wraps(operation)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        return self.run_handle(self._drive(operation(self._operations, *args, **kwargs)))

    return call


def asynchronous(
    operation: Callable[Concatenate[Operations, P], Steps[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[object, object, T]]:
    @functools.wraps(operation)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._drive(operation(self._operations, *args, **kwargs))

    return call


def asynchronous_run(
    operation: Callable[Concatenate[Operations, P], Steps[str]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[object, object, AsyncRunHandle]]:
    @functools.wraps(operation)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncRunHandle:
        return self.run_handle(await self._drive(operation(self._operations, *args, **kwargs)))

    return call


class Client(_Connection):
    """Blocking client. Close it, or use it as a context manager."""

    _http: httpx2.Client | None = None

    @property
    def aio(self) -> AsyncClient:
        """An asynchronous client with the same settings."""
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
        """A handle for a run by its id."""
        return RunHandle(run_id, self)

    def _drive(self, steps: Steps[T]) -> T:
        response: Reply | NoReply | None = None
        try:
            while True:
                step = steps.send(response)
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    response = None
                else:
                    response = self._send(step)
        except StopIteration as done:
            found: T = done.value
            return found

    def follow_logs(self, run_id: str, *, after: int = 0) -> Iterator[LogLine]:
        """Yields log entries with a number above `after` as they are written, until the run has
        ended. Reconnects after a lost connection without losing or repeating an entry."""
        follower = LogFollower(run_id, after=after, patience=self._patience)
        while True:
            http = self._http_client()
            pause = None
            try:
                answer = http.send(_stream(http, follower.call), stream=True)
                with contextlib.closing(answer):
                    if answer.status_code != 200:
                        answer.read()
                        pause = follower.rejected(_reply(answer))
                    else:
                        for line in answer.iter_lines():
                            yield from follower.line(line)
                            if follower.ended():
                                return
            except httpx2.TransportError as error:
                pause = follower.disconnected(_reason(self.url, error))
            time.sleep(follower.disconnected(_ENDED_EARLY) if pause is None else pause)

    def _http_client(self) -> httpx2.Client:
        if self._http is None:
            self._http = httpx2.Client(
                base_url=self.url + API,
                headers=self._headers(),
                timeout=self._timeout,
                verify=self._verify,
            )
        return self._http

    def _send(self, call: Call) -> Reply | NoReply:
        http = self._http_client()
        try:
            return _reply(http.send(_request(http, call)))
        except httpx2.TransportError as error:
            return NoReply(_reason(self.url, error))

    list_schedules = blocking(Operations.list_schedules)
    get_schedule = blocking(Operations.get_schedule)
    schedule = blocking(Operations.schedule)
    delete_schedule = blocking(Operations.delete_schedule)
    trigger_schedule = blocking_run(Operations.trigger_schedule)
    reschedule_for = blocking(Operations.reschedule_for)
    set_schedule_enabled = blocking(Operations.set_schedule_enabled)
    pause = blocking(Operations.pause)
    resume = blocking(Operations.resume)
    enqueue = blocking_run(Operations.enqueue)
    runs = blocking(Operations.runs)
    run = blocking(Operations.run)
    logs = blocking(Operations.logs)
    cancel = blocking(Operations.cancel)
    acknowledge = blocking(Operations.acknowledge)
    add_silence = blocking(Operations.add_silence)
    silences = blocking(Operations.silences)
    end_silence = blocking(Operations.end_silence)
    retry = blocking_run(Operations.retry)
    result = blocking(Operations.result)
    nodes = blocking(Operations.nodes)
    bulk = blocking(Operations.bulk)
    list_connections = blocking(Operations.list_connections)
    list_secrets = blocking(Operations.list_secrets)
    set_secret = blocking(Operations.set_secret)
    delete_secret = blocking(Operations.delete_secret)
    list_limits = blocking(Operations.list_limits)
    set_limit = blocking(Operations.set_limit)
    delete_limit = blocking(Operations.delete_limit)
    list_monitors = blocking(Operations.list_monitors)
    get_monitor = blocking(Operations.get_monitor)
    create_monitor = blocking(Operations.create_monitor)
    pause_monitor = blocking(Operations.pause_monitor)
    resume_monitor = blocking(Operations.resume_monitor)
    rotate_monitor = blocking(Operations.rotate_monitor)
    delete_monitor = blocking(Operations.delete_monitor)
    monitor_pings = blocking(Operations.monitor_pings)
    propose = blocking(Operations.propose)
    list_proposals = blocking(Operations.list_proposals)
    get_proposal = blocking(Operations.get_proposal)
    approve_proposal = blocking(Operations.approve_proposal)
    reject_proposal = blocking(Operations.reject_proposal)
    list_approvals = blocking(Operations.list_approvals)
    get_approval = blocking(Operations.get_approval)
    approve = blocking(Operations.approve)
    reject = blocking(Operations.reject)
    send_event = blocking(Operations.send_event)
    plan = blocking(Operations.plan)
    forecast = blocking(Operations.forecast)
    create_feed = blocking(Operations.create_feed)
    list_feeds = blocking(Operations.list_feeds)
    delete_feed = blocking(Operations.delete_feed)


class AsyncClient(_Connection):
    """Asynchronous client. Belongs to one event loop; close it, or use `async with`."""

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
        """A handle for a run by its id."""
        return AsyncRunHandle(run_id, self)

    async def _drive(self, steps: Steps[T]) -> T:
        response: Reply | NoReply | None = None
        try:
            while True:
                step = steps.send(response)
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    response = None
                else:
                    response = await self._send(step)
        except StopIteration as done:
            found: T = done.value
            return found

    async def follow_logs(self, run_id: str, *, after: int = 0) -> AsyncIterator[LogLine]:
        """See `Client.follow_logs`."""
        follower = LogFollower(run_id, after=after, patience=self._patience)
        while True:
            http = self._http_client()
            pause = None
            try:
                answer = await http.send(_stream(http, follower.call), stream=True)
                async with contextlib.aclosing(answer):
                    if answer.status_code != 200:
                        await answer.aread()
                        pause = follower.rejected(_reply(answer))
                    else:
                        async for line in answer.aiter_lines():
                            for entry in follower.line(line):
                                yield entry
                            if follower.ended():
                                return
            except httpx2.TransportError as error:
                pause = follower.disconnected(_reason(self.url, error))
            await asyncio.sleep(follower.disconnected(_ENDED_EARLY) if pause is None else pause)

    def _http_client(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(
                base_url=self.url + API,
                headers=self._headers(),
                timeout=self._timeout,
                verify=self._verify,
            )
        return self._http

    async def _send(self, call: Call) -> Reply | NoReply:
        http = self._http_client()
        try:
            return _reply(await http.send(_request(http, call)))
        except httpx2.TransportError as error:
            return NoReply(_reason(self.url, error))

    list_schedules = asynchronous(Operations.list_schedules)
    get_schedule = asynchronous(Operations.get_schedule)
    schedule = asynchronous(Operations.schedule)
    delete_schedule = asynchronous(Operations.delete_schedule)
    trigger_schedule = asynchronous_run(Operations.trigger_schedule)
    reschedule_for = asynchronous(Operations.reschedule_for)
    set_schedule_enabled = asynchronous(Operations.set_schedule_enabled)
    pause = asynchronous(Operations.pause)
    resume = asynchronous(Operations.resume)
    enqueue = asynchronous_run(Operations.enqueue)
    runs = asynchronous(Operations.runs)
    run = asynchronous(Operations.run)
    logs = asynchronous(Operations.logs)
    cancel = asynchronous(Operations.cancel)
    acknowledge = asynchronous(Operations.acknowledge)
    add_silence = asynchronous(Operations.add_silence)
    silences = asynchronous(Operations.silences)
    end_silence = asynchronous(Operations.end_silence)
    retry = asynchronous_run(Operations.retry)
    result = asynchronous(Operations.result)
    nodes = asynchronous(Operations.nodes)
    bulk = asynchronous(Operations.bulk)
    list_connections = asynchronous(Operations.list_connections)
    list_secrets = asynchronous(Operations.list_secrets)
    set_secret = asynchronous(Operations.set_secret)
    delete_secret = asynchronous(Operations.delete_secret)
    list_limits = asynchronous(Operations.list_limits)
    set_limit = asynchronous(Operations.set_limit)
    delete_limit = asynchronous(Operations.delete_limit)
    list_monitors = asynchronous(Operations.list_monitors)
    get_monitor = asynchronous(Operations.get_monitor)
    create_monitor = asynchronous(Operations.create_monitor)
    pause_monitor = asynchronous(Operations.pause_monitor)
    resume_monitor = asynchronous(Operations.resume_monitor)
    rotate_monitor = asynchronous(Operations.rotate_monitor)
    delete_monitor = asynchronous(Operations.delete_monitor)
    monitor_pings = asynchronous(Operations.monitor_pings)
    propose = asynchronous(Operations.propose)
    list_proposals = asynchronous(Operations.list_proposals)
    get_proposal = asynchronous(Operations.get_proposal)
    approve_proposal = asynchronous(Operations.approve_proposal)
    reject_proposal = asynchronous(Operations.reject_proposal)
    list_approvals = asynchronous(Operations.list_approvals)
    get_approval = asynchronous(Operations.get_approval)
    approve = asynchronous(Operations.approve)
    reject = asynchronous(Operations.reject)
    send_event = asynchronous(Operations.send_event)
    plan = asynchronous(Operations.plan)
    forecast = asynchronous(Operations.forecast)
    create_feed = asynchronous(Operations.create_feed)
    list_feeds = asynchronous(Operations.list_feeds)
    delete_feed = asynchronous(Operations.delete_feed)
