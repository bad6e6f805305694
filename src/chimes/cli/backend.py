"""How a client command reaches Chimes: over HTTP, or straight on the local store.

Both answer the same requests of the native API with the same JSON, so a command never knows which
of them it talks to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

from chimes.cli.failure import UNREACHABLE, Failure, from_problem
from chimes.cli.language import spoken
from chimes.cli.output import Json, tell
from chimes.errors import ChimesError
from chimes.wording import say

API = "/api/v1"
_CONNECT_TIMEOUT = 3.0
_ANSWER_TIMEOUT = 30.0
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> Json:
        """The object that was asked for; anything else is a Failure."""
        try:
            found = json.loads(self.body) if self.body else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Failure(
                say("The answer ({status}) does not come from Chimes", status=self.status),
                UNREACHABLE,
                hint=say("is CHIMES_URL right?"),
            )
        if self.status >= 400:
            raise from_problem(self.status, found)
        return found


class Backend(Protocol):
    #: Whether runs are carried out by somebody while we look.
    live: bool

    def request(self, method: str, path: str, body: object = None) -> Answer: ...

    def close(self) -> None: ...


def get(backend: Backend, path: str, **query: object) -> Json:
    return backend.request("GET", API + path + _query(query)).json()


def post(backend: Backend, path: str, body: object = None) -> Json:
    return backend.request("POST", API + path, body).json()


def patch(backend: Backend, path: str, body: object) -> Json:
    return backend.request("PATCH", API + path, body).json()


def delete(backend: Backend, path: str) -> None:
    backend.request("DELETE", API + path).json()


def pages(backend: Backend, path: str, limit: int | None = None, **query: object) -> Iterator[Json]:
    """The items of all pages, or the first `limit`."""
    cursor: object = None
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = get(backend, path, limit=size, cursor=cursor, **query)
        items = page.get("items")
        found = (
            [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        )
        yield from found
        cursor = page.get("next_cursor")
        left = None if left is None else left - len(found)
        if not cursor:
            return


def items_of(answer: Json) -> list[Json]:
    items = answer.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def path_of(*parts: object) -> str:
    """A path of the API with each part quoted: ids are whatever a client chose."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _query(given: Mapping[str, object]) -> str:
    pairs = [(name, value) for name, value in given.items() if value not in (None, "", ())]
    return f"?{urlencode(pairs, doseq=True)}" if pairs else ""


class HttpBackend:
    live = True

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.trouble = ""
        self._key = key
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise Failure(
                say("CHIMES_URL {url!r} is not an address such as http://127.0.0.1:7100", url=url),
                2,
            )
        self._prefix = parts.path.rstrip("/")
        connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = connection(parts.hostname, port, timeout=_CONNECT_TIMEOUT)

    def connect(self) -> bool:
        """Whether somebody listens there; `trouble` says why not."""
        try:
            self._connection.connect()
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return False
        self._connection.sock.settimeout(_ANSWER_TIMEOUT)
        # Also for the connections that take its place when it is lost.
        self._connection.timeout = _ANSWER_TIMEOUT
        return True

    def request(self, method: str, path: str, body: object = None) -> Answer:
        headers = {
            "Accept": "application/json",
            "X-Language": spoken(),
            "Accept-Language": spoken(),
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
            answer = self._connection.getresponse()
            return Answer(answer.status, answer.read())
        except TimeoutError:
            self._connection.close()
            raise Failure(
                say(
                    "{url} did not answer within {seconds:.0f} s",
                    url=self.url,
                    seconds=_ANSWER_TIMEOUT,
                ),
                124,
            ) from None
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise _unreachable(self.url, str(error)) from None

    def close(self) -> None:
        self._connection.close()


def default_url() -> str:
    """Where `chimes serve` in this environment would listen."""
    port = os.environ.get("CHIMES_PORT") or os.environ.get("PORT") or "7100"
    return f"http://127.0.0.1:{port if port.isdecimal() else 7100}"


def connect(url: str | None, key: str, *, create: bool = False) -> Backend:
    """The server, or, when none was named and none answers, the store that is configured here.

    `create`: the store may come into being by this, as for the first key of a new server.
    """
    server = HttpBackend(url or default_url(), key)
    if server.connect():
        if url is None and _store_was_named():
            tell(
                say(
                    "Using the server at {url}; the store setting is not used. "
                    "Set CHIMES_URL or stop the server to choose.",
                    url=server.url,
                )
            )
        return server
    server.close()
    if url is None:
        from chimes.cli.local import local_backend

        local = local_backend(create=create)
        if local is not None:
            tell(
                say(
                    "No server answers at {url}; using {store} directly.",
                    url=server.url,
                    store=local.location,
                )
            )
            return local
    raise _unreachable(server.url, server.trouble)


def _store_was_named() -> bool:
    from chimes.config import load_settings

    try:
        return load_settings().origins["store"] != "default"
    except ChimesError:
        # A server that answers is used whatever the settings here are like.
        return False


def _unreachable(url: str, why: str) -> Failure:
    return Failure(
        say("The server at {url} cannot be reached: {reason}", url=url, reason=why),
        UNREACHABLE,
        hint=say("start one with `chimes serve`, or set CHIMES_URL"),
    )
