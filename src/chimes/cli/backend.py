"""Backends of client commands: a server over HTTP, or the API in process on the local store.

Both serve the native API with the same JSON, so commands do not distinguish them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from chimes.cli.command import (
    NOT_FOUND,
    OK,
    RUN_FAILED,
    TIMED_OUT,
    UNREACHABLE,
    USAGE,
    CommandError,
    from_problem,
)
from chimes.cli.output import RUN_STATUSES, Json, current_language, echo_err, target_of
from chimes.clock import SystemClock
from chimes.errors import ChimesError
from chimes.i18n import _, joined
from chimes.redaction import escape_control

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

    from chimes.config import LoadedSettings


API = "/api/v1"
_CONNECT_TIMEOUT = 3.0
_RESPONSE_TIMEOUT = 30.0
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes

    def json(self) -> Json:
        """The JSON object of the body, of a list its `items`. CommandError for an error response
        or anything else."""
        try:
            found = json.loads(self.body) if self.body else {}
        except ValueError:
            found = None
        if isinstance(found, list):
            # A list without pages.
            found = {"items": found}
        if not isinstance(found, dict):
            raise CommandError(
                _("The response (status {status}) is not from Chimes", status=self.status),
                UNREACHABLE,
                hint=_("check CHIMES_URL"),
            )
        if self.status >= 400:
            raise from_problem(self.status, found)
        return found


class Backend(Protocol):
    #: Whether runs are executed while the command runs.
    executes_runs: bool
    #: The URL of the server or of the store, without passwords.
    location: str

    def request(self, method: str, path: str, body: object = None) -> Response: ...

    def close(self) -> None: ...


def get(backend: Backend, path: str, **query: object) -> Json:
    return backend.request("GET", API + path + _query(query)).json()


def post(backend: Backend, path: str, body: object = None) -> Json:
    return _with_warnings(backend.request("POST", API + path, body).json())


def patch(backend: Backend, path: str, body: object) -> Json:
    return _with_warnings(backend.request("PATCH", API + path, body).json())


def put(backend: Backend, path: str, body: object, **query: object) -> Json:
    return backend.request("PUT", API + path + _query(query), body).json()


def _with_warnings(answer: Json) -> Json:
    """Prints the warnings of an answer on stderr, whatever the output format is."""
    warnings = answer.get("warnings")
    for each in warnings if isinstance(warnings, list) else ():
        if not isinstance(each, dict):
            continue
        name = f"{each['schedule_name']}: " if "schedule_name" in each else ""
        echo_err(_("Warning: {text}", text=escape_control(f"{name}{each['message']}")))
    return answer


def delete(backend: Backend, path: str, **query: object) -> None:
    backend.request("DELETE", API + path + _query(query)).json()


def remove(backend: Backend, path: str) -> Json:
    """A DELETE that answers with an object."""
    return backend.request("DELETE", API + path).json()


def paginate(
    backend: Backend, path: str, limit: int | None = None, **query: object
) -> Iterator[Json]:
    """The items of all pages, or the first `limit` of them."""
    cursor: object = None
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = get(backend, path, limit=size, cursor=cursor, **query)
        items = items_of(page)
        yield from items
        cursor = page.get("next_cursor")
        left = None if left is None else left - len(items)
        if not cursor:
            return


def items_of(page: Json) -> list[Json]:
    items = page.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def api_path(*parts: object) -> str:
    """A path of the API with each part quoted, because clients may choose ids freely."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _query(given: Mapping[str, object]) -> str:
    pairs = [(name, value) for name, value in given.items() if value not in (None, "", ())]
    return f"?{urlencode(pairs, doseq=True)}" if pairs else ""


class HttpBackend:
    executes_runs = True

    def __init__(self, url: str, key: str, *, timeout: float | None = None) -> None:
        """`timeout`: seconds to connect and to wait for each response."""
        self.url = self.location = url
        self._response_timeout = timeout or _RESPONSE_TIMEOUT
        self.connect_error = ""
        self._key = key
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
            # http.client refuses such a host itself, with another error.
            port = -1 if re.search(r"[^!-~]", parts.netloc) else port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise CommandError(
                _(
                    "Invalid CHIMES_URL {url!r}: expected a URL such as http://127.0.0.1:7100",
                    url=url,
                ),
                USAGE,
            )
        # Imported here, because completion asks the server without it.
        from http.client import HTTPConnection, HTTPSConnection

        self._prefix = parts.path.rstrip("/")
        connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = connection(parts.hostname, port, timeout=timeout or _CONNECT_TIMEOUT)

    def connect(self) -> bool:
        """Whether a connection could be made; otherwise `connect_error` has the reason."""
        try:
            self._connection.connect()
        except OSError as error:
            self.connect_error = error.strerror or str(error)
            return False
        self._connection.sock.settimeout(self._response_timeout)
        # For connections that replace it after a loss, too.
        self._connection.timeout = self._response_timeout
        return True

    def request(self, method: str, path: str, body: object = None) -> Response:
        from http.client import HTTPException

        headers = {
            "Accept": "application/json",
            "X-Language": current_language(),
            "Accept-Language": current_language(),
            "User-Agent": "chimes-cli",
        }
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            self._connection.request(method, self._prefix + path, data, headers)
            response = self._connection.getresponse()
            return Response(response.status, response.read())
        except TimeoutError:
            self._connection.close()
            raise CommandError(
                _(
                    "{url} did not respond within {seconds:.0f} s",
                    url=self.url,
                    seconds=self._response_timeout,
                ),
                TIMED_OUT,
            ) from None
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise _unreachable(self.url, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def default_url() -> str:
    """Where `chimes serve` listens with this environment."""
    port = os.environ.get("CHIMES_PORT") or os.environ.get("PORT") or "7100"
    return f"http://127.0.0.1:{port if port.isdecimal() else 7100}"


def connect(url: str | None, key: str, *, create: bool = False) -> Backend:
    """The server; the local store if no server was named and none responds.

    `create`: the local store may be created, as for the first key of a new server.
    """
    server = HttpBackend(url or default_url(), key)
    if server.connect():
        if url is None and _is_store_configured():
            echo_err(
                _(
                    "Using the server at {url} instead of the configured store. "
                    "Set CHIMES_URL to choose another server, or stop this one.",
                    url=server.url,
                )
            )
        return server
    server.close()
    if url is None:
        local = local_backend(create=create)
        if local is not None:
            echo_err(
                _(
                    "No server at {url}; using {store} directly.",
                    url=server.url,
                    store=local.location,
                )
            )
            return local
    raise _unreachable(server.url, server.connect_error)


def _is_store_configured() -> bool:
    from chimes.config import load_settings

    try:
        return load_settings().origins["store"] != "default"
    except ChimesError:
        # Invalid local settings do not matter when a server responds.
        return False


def _unreachable(url: str, why: str) -> CommandError:
    return CommandError(
        _("Cannot reach the server at {url}: {reason}", url=url, reason=why),
        UNREACHABLE,
        hint=_("start one with `chimes serve`, or set CHIMES_URL"),
    )


# --- the API on the local store -------------------------------------------------------------------
def local_backend(*, create: bool) -> LocalBackend | None:
    """The configured store, or the default one if it exists; None if there is none."""
    from chimes.config import load_settings, masked_store_url, store_location

    loaded = load_settings()
    location = store_location(loaded.settings)
    if location.server:
        return LocalBackend(loaded, masked_store_url(location.server))
    if location.path is None:
        return None
    file = location.path / "jobs.json" if location.kind == "json" else location.path
    configured = loaded.origins["store"] != "default"
    return LocalBackend(loaded, location.url) if file.exists() or configured or create else None


class LocalBackend:
    """Calls the API in process, as an admin with a temporary key: a user who can write the store's
    files has full access anyway."""

    executes_runs = False

    def __init__(self, loaded: LoadedSettings, location: str) -> None:
        import asyncio
        import secrets

        self.location = location
        self._settings = loaded.settings
        self._token = secrets.token_urlsafe(32)
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self._app: ASGIApp | None = None

    def request(self, method: str, path: str, body: object = None) -> Response:
        return self._runner.run(self._request(method, path, body))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _request(self, method: str, path: str, body: object) -> Response:
        if self._app is None:
            self._app = await self._open()
        data = b"" if body is None else json.dumps(body).encode()
        raw, _question, query = path.partition("?")
        host = f"127.0.0.1:{self._settings.port}"
        headers = [
            ("host", host),
            ("x-api-key", self._token),
            ("accept", "application/json"),
            ("x-language", current_language()),
            ("accept-language", current_language()),
        ]
        if body is not None:
            headers += [("content-type", "application/json"), ("content-length", str(len(data)))]
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", self._settings.port),
        }
        return await _call(self._app, scope, data)

    async def _open(self) -> ASGIApp:
        from prometheus_client import CollectorRegistry

        from chimes import __version__
        from chimes.runtime.composition import open_local
        from chimes.services.access import AccessService
        from chimes.web.requests import WebContext
        from chimes.web.server import build_app

        clock = SystemClock()
        services = await self._stack.enter_async_context(open_local(self._settings, clock))
        return build_app(
            WebContext(
                schedules=services.schedules,
                runs=services.runs,
                access=AccessService(services.store, clock, fixed=[self._token]),
                store=services.store,
                settings=replace(self._settings, allowed_hosts=(), requests_per_second=math.inf),
                clock=clock,
                metrics=CollectorRegistry(),
                version=__version__,
                port=self._settings.port,
                not_ready=lambda: "",
            )
        )


async def _call(app: ASGIApp, scope: Scope, data: bytes) -> Response:
    from asyncio import Event

    sent: list[Message] = []
    waiting: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await Event().wait()
        raise AssertionError("never set")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status = next(each["status"] for each in sent if each["type"] == "http.response.start")
    parts = [each.get("body", b"") for each in sent if each["type"] == "http.response.body"]
    return Response(status, b"".join(parts))


# --- lookup by id, id prefix or name --------------------------------------------------------------
#: How many rows are searched for a prefix or a name.
_SEARCH_LIMIT = 5000
_MIN_PREFIX = 3


def find_schedule(backend: Backend, reference: str) -> Json:
    found = find_exact(backend, "schedules", reference)
    if found is not None:
        return found
    rows = list(islice(paginate(backend, "/schedules"), _SEARCH_LIMIT))
    named = [row for row in rows if str(row.get("name", "")) == reference]
    folded = reference.casefold()
    matches = named or [
        row
        for row in rows
        if slug(str(row.get("name", ""))) == folded or has_prefix(row, reference)
    ]
    words = [str(row.get("name", "")) for row in rows] + [str(row["id"]) for row in rows]
    missing = _("No schedule {reference!r}", reference=reference)
    return only_row(matches, reference, words, missing, _("list schedules with `chimes ls`"))


def find_run(backend: Backend, reference: str) -> Json:
    missing = _("No run {reference!r}", reference=reference)
    return _by_id(backend, "runs", reference, missing, _("list runs with `chimes runs`"))


def find_proposal(backend: Backend, reference: str) -> Json:
    found = find_exact(backend, "proposals", reference)
    if found is not None:
        return found
    rows = items_of(get(backend, "/proposals", limit=_PAGE))
    missing = _("No proposal {reference!r}", reference=reference)
    see = _("list proposals with `chimes proposals list`")
    matches = [row for row in rows if has_prefix(row, reference)]
    return only_row(matches, reference, [str(row["id"]) for row in rows], missing, see)


def find_approval(backend: Backend, reference: str) -> Json:
    found = find_exact(backend, "approvals", reference)
    if found is not None:
        return found
    rows = items_of(get(backend, "/approvals", limit=_PAGE))
    missing = _("No approval {reference!r}", reference=reference)
    see = _("list approvals with `chimes approvals`")
    matches = [row for row in rows if has_prefix(row, reference)]
    return only_row(matches, reference, [str(row["id"]) for row in rows], missing, see)


def find_delivery(backend: Backend, reference: str) -> Json:
    missing = _("No notification {reference!r}", reference=reference)
    return _by_id(
        backend, "deliveries", reference, missing, _("list notifications with `chimes deliveries`")
    )


def find_node(backend: Backend, reference: str) -> Json:
    """By its id or a prefix of it, such as the name of its host."""
    missing = _("No node {reference!r}", reference=reference)
    rows = items_of(get(backend, "/nodes"))
    matches = [row for row in rows if row["id"] == reference] or [
        row for row in rows if has_prefix(row, reference)
    ]
    return only_row(
        matches,
        reference,
        [str(row["id"]) for row in rows],
        missing,
        _("list nodes with `chimes nodes`"),
    )


def find_message(backend: Backend, reference: str, owner: str | None = None) -> Json:
    missing = _("No message {reference!r}", reference=reference)
    return _by_id(
        backend, "inbox", reference, missing, _("list messages with `chimes inbox`"), owner=owner
    )


def _by_id(
    backend: Backend, kind: str, reference: str, missing: str, see: str, **query: object
) -> Json:
    found = find_exact(backend, kind, reference)
    if found is not None:
        return found
    rows = list(islice(paginate(backend, f"/{kind}", None, **query), _SEARCH_LIMIT))
    matches = [row for row in rows if has_prefix(row, reference)]
    return only_row(matches, reference, [str(row["id"]) for row in rows], missing, see)


def find_exact(backend: Backend, kind: str, reference: str) -> Json | None:
    # "." and ".." would be path segments.
    if not reference.strip("."):
        return None
    answer = backend.request("GET", API + api_path(kind, reference))
    return None if answer.status in (404, 422) else answer.json()


def has_prefix(row: Json, reference: str) -> bool:
    prefix = reference.rstrip("…")
    return len(prefix) >= _MIN_PREFIX and str(row["id"]).startswith(prefix)


def slug(name: str) -> str:
    """The name without spaces and capitals, by which a schedule is found too."""
    return "-".join(name.casefold().split())


def only_row(
    rows: list[Json], reference: str, words: Iterable[str], missing: str, see: str
) -> Json:
    """The only row. CommandError with `missing` and `see` if there is none."""
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise _ambiguous(rows, reference)
    from chimes.triggers.values import suggest_name

    hint = suggest_name(reference, [word for word in words if word])
    raise CommandError(missing, NOT_FOUND, hint=hint or see)


#: Candidates of an ambiguous name that are listed.
_MAX_CANDIDATES = 10


def _ambiguous(rows: list[Json], reference: str) -> CommandError:
    """The error lists the candidates: for schedules also when they fire and what they do."""
    if "trigger" not in rows[0]:
        ids = ", ".join(str(row["id"]) for row in rows[:5])
        return CommandError(
            _("{reference!r} is ambiguous: it matches {ids}", reference=reference, ids=ids), USAGE
        )
    candidates = [
        {
            "id": row["id"],
            "name": row.get("name"),
            "when": row.get("words"),
            "next_run_at": row.get("next_run_at"),
            "what": target_of(row),
        }
        for row in rows[:_MAX_CANDIDATES]
    ]
    lines = [
        _(
            "{id} {name}: {when}, next {next}; {what}",
            id=each["id"],
            name=each["name"],
            when=each["when"],
            next=each["next_run_at"] or "–",
            what=each["what"],
        )
        for each in candidates
    ]
    message = _(
        "{reference!r} is ambiguous: {count} schedules match; give the id of one of them:",
        reference=reference,
        count=len(rows),
    )
    problem: Json = {"title": message, "exit_code": USAGE, "candidates": candidates}
    return CommandError(joined("\n  ", [message, *lines]), USAGE, problem=problem)


# --- polling a run and its log --------------------------------------------------------------------
#: Short at first, for runs that end at once.
_PAUSES = (0.05, 0.1, 0.2, 0.4)
_MAX_PAUSE = 1.0
#: How long a server may be unreachable while a command waits.
_MAX_OUTAGE = 60.0
_ENDED = frozenset({"succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown"})


def has_ended(run: Json) -> bool:
    return run.get("status") in _ENDED


def run_exit_code(run: Json) -> int:
    return OK if run.get("status") == "succeeded" else RUN_FAILED


def wait_for(backend: Backend, run_id: str, timeout: str) -> Json:
    """Waits until the run has ended. CommandError with exit code 124 on timeout."""
    from chimes.triggers import parse_duration

    clock = SystemClock()
    until = clock.monotonic() + parse_duration(timeout, field="--timeout").total_seconds()
    for pause in _pauses():
        run = _get_with_retry(backend, api_path("runs", run_id))
        if has_ended(run):
            return run
        if clock.monotonic() + pause > until:
            raise CommandError(
                _(
                    "Run {id} is still {status} after {timeout}",
                    id=run_id,
                    status=RUN_STATUSES.get(str(run.get("status")), run.get("status")),
                    timeout=timeout,
                ),
                TIMED_OUT,
                hint=_("the run continues; follow it with `chimes logs {id} -f`", id=run_id),
            )
        time.sleep(pause)
    raise AssertionError("pauses never end")


def log_lines(backend: Backend, run_id: str, *, follow: bool) -> Iterator[Json]:
    """The log entries of a run; with `follow`, until the run has ended."""
    last = 0
    for pause in _pauses():
        # Read before the log, so that no entry before the end is missed.
        run = _get_with_retry(backend, api_path("runs", run_id)) if follow else {}
        more = True
        while more:
            page = _get_with_retry(backend, api_path("runs", run_id, "logs"), after=last or None)
            for entry in items_of(page):
                last = max(last, _number(entry))
                yield entry
            more = page.get("next_after") is not None
        if not follow or has_ended(run):
            return
        time.sleep(pause)


def _get_with_retry(backend: Backend, path: str, **query: object) -> Json:
    """Repeats the request while a server restarts."""
    clock = SystemClock()
    until = clock.monotonic() + _MAX_OUTAGE
    while True:
        try:
            return get(backend, path, **query)
        except CommandError as failure:
            if failure.code != UNREACHABLE or clock.monotonic() > until:
                raise
        time.sleep(_MAX_PAUSE / 4)


def _number(entry: Json) -> int:
    number = entry.get("number")
    return number if isinstance(number, int) else 0


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _MAX_PAUSE
