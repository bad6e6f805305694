"""Client of the configured agent server: configuration, answers, errors, HTTP.

Connections are not kept: a prompt takes longer than a handshake, and a broken kept connection
would look like a rejection.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urljoin, urlsplit, urlunsplit

import aiohttp
from yarl import URL

from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.model import replace as struct_replace
from chimes.model.target import AgentTarget
from chimes.redaction import Redactor, mask_known
from chimes.targets.base import Call, TargetError, fill_event
from chimes.targets.http.connection import read_at_most, wait_asked
from chimes.targets.http.runner import failure_of
from chimes.targets.remote import RemoteAttempt

_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """Settings of the pipeline. The address may be private; egress rules do not apply."""

    #: `openai` or `runs`.
    pipeline: str
    #: Without a trailing slash and without `/v1`.
    url: str
    model: str = ""
    api_key: str = ""
    #: Maximum tokens of an answer; None: the model decides.
    max_tokens: int | None = None
    #: Prices per million tokens.
    input_price: float = 0.0
    output_price: float = 0.0
    #: Base address for callbacks; empty: polling only.
    callback_url: str = ""

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """None if no prices are set."""
        if not self.input_price and not self.output_price:
            return None
        total = prompt_tokens * self.input_price + completion_tokens * self.output_price
        return round(total / _MILLION, 8)

    @property
    def public_url(self) -> str:
        """The address without credentials."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def secrets(self) -> tuple[str, ...]:
        password = urlsplit(self.url).password
        return tuple(each for each in (self.api_key, password) if each)


def checked_config(config: AgentConfig) -> AgentConfig:
    """ConfigError names the invalid setting."""
    url = _checked_url(config.url, "agent_url")
    if config.pipeline == "openai":
        url = url.removesuffix("/v1")
    callback = config.callback_url
    if callback:
        callback = _checked_url(callback, "agent_callback_url")
    return replace(config, url=url, callback_url=callback)


def _checked_url(text: str, key: str) -> str:
    if not text:
        raise ConfigError(_("{key}: agent_pipeline is set, so it is needed", key=key), key=key)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or any(char.isspace() for char in text):
        raise ConfigError(
            _("{key}: an address such as http://127.0.0.1:11434 is expected", key=key), key=key
        )
    return text.rstrip("/")


def for_target(config: AgentConfig, target: AgentTarget) -> AgentConfig:
    """With the options of the target."""
    return replace(
        config,
        pipeline=target.pipeline or config.pipeline,
        model=target.model or config.model,
        max_tokens=target.max_tokens or config.max_tokens,
    )


# Answers, truncated to what is kept.

#: Bytes of text kept in a result.
KEEP_LIMIT = 64 * 1024
#: Bytes of text after which reading stops.
READ_LIMIT = 1024 * 1024
MOST_ARTIFACTS = 50
LONGEST_NAME = 200
LONGEST_URL = 2048
_MOST_TOOLS = 20


class Answer:
    """The answer so far; a failed attempt reports it too."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self.model = config.model
        self.pipeline_run_id = ""
        self.finish_reason = ""
        #: Tools that the model requested; none is called.
        self.refused_tools: list[str] = []
        self.artifacts: list[dict[str, str]] = []
        self._usage: dict[str, int] = {}
        self._cost: float | None = None
        self._pieces: list[str] = []
        self._kept = 0
        self.size = 0

    @property
    def begun(self) -> bool:
        return bool(self.size or self.pipeline_run_id or self.refused_tools)

    @property
    def text(self) -> str:
        whole = clean("".join(self._pieces))
        return whole.encode()[:KEEP_LIMIT].decode(errors="ignore")

    @property
    def truncated(self) -> bool:
        return self.size > KEEP_LIMIT

    @property
    def too_long(self) -> bool:
        return self.size > READ_LIMIT

    def add(self, piece: str) -> None:
        # The other half of a surrogate pair may be in the next piece.
        size = len(piece.encode(errors="surrogatepass"))
        if self._kept <= KEEP_LIMIT:
            self._pieces.append(piece[: KEEP_LIMIT + 1])
            self._kept += min(size, KEEP_LIMIT + 1)
        self.size += size

    def refuse_tool(self, name: object) -> bool:
        """Whether the tool was not requested before."""
        shown = short(name, LONGEST_NAME) or "?"
        if shown in self.refused_tools or len(self.refused_tools) >= _MOST_TOOLS:
            return False
        self.refused_tools.append(shown)
        return True

    def add_usage(self, given: object) -> None:
        if not isinstance(given, Mapping):
            return
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            value = given.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
                self._usage[name] = value

    def add_cost(self, given: object) -> None:
        """The cost reported by the pipeline; otherwise computed from the prices."""
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1e12:
            self._cost = float(given)

    def add_artifacts(self, given: object) -> int:
        """The number of artifacts that were dropped: too many, or without a usable address."""
        found = given if isinstance(given, list) else []
        for each in found[:MOST_ARTIFACTS]:
            artifact = _artifact(each, f"{self._config.public_url}/")
            if artifact is not None:
                self.artifacts.append(artifact)
        return len(found) - len(self.artifacts)

    @property
    def usage(self) -> dict[str, int] | None:
        if not self._usage:
            return None
        used = {name: self._usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
        return used | {"total_tokens": self._usage.get("total_tokens", sum(used.values()))}

    @property
    def cost(self) -> float | None:
        usage = self.usage
        if self._cost is not None or usage is None:
            return self._cost
        return self._config.cost(usage["prompt_tokens"], usage["completion_tokens"])

    def result(self) -> dict[str, object]:
        """The result of the run; notifications deliver its `text`."""
        found: dict[str, object] = {
            "text": self.text,
            "model": self.model,
            "pipeline": self._config.pipeline,
            "pipeline_run_id": self.pipeline_run_id or None,
            "artifacts": list(self.artifacts),
            "usage": self.usage,
            "cost": self.cost,
            "finish_reason": self.finish_reason or None,
            "truncated": self.truncated,
        }
        if self.refused_tools:
            found["refused_tools"] = list(self.refused_tools)
        secrets = self._config.secrets
        return {name: mask_known(value, secrets) for name, value in found.items()}


def clean(text: str) -> str:
    """Text that every store accepts: no NUL, no lone surrogates."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd")


def short(value: object, most: int) -> str:
    """One line, for names, models and foreign error texts."""
    if not isinstance(value, str | int | float):
        return ""
    return " ".join(clean(str(value)[: most * 4]).split())[:most]


def _artifact(given: object, base: str) -> dict[str, str] | None:
    if not isinstance(given, Mapping):
        return None
    url = given.get("url")
    if not isinstance(url, str) or not url or len(url) > LONGEST_URL:
        return None
    try:
        # http and https only: no `tg:`, no `javascript:`.
        whole = urljoin(base, url)
        parts = urlsplit(whole)
        callable_ = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    if not callable_ or whole != clean(whole) or any(char.isspace() for char in whole):
        return None
    name = short(given.get("name"), LONGEST_NAME) or parts.path.rpartition("/")[2] or "artifact"
    return {"name": name[:LONGEST_NAME], "url": whole}


LONGEST_DETAIL = 300
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})


def error_of_status(
    status: int, headers: Mapping[str, str], body: str, *, who: str, now: datetime
) -> TargetError:
    """For an unsuccessful response; `now` is the store's time."""
    if 300 <= status <= 399:
        return TargetError(
            "redirect",
            _("{who} answered HTTP {status}: redirects are not followed", who=who, status=status),
            status=status,
        )
    retryable = status in _WORTH_ANOTHER_TRY or status >= 500
    detail = rejection_text(body)
    text = _("{who} answered HTTP {status}", who=who, status=status)
    if detail:
        text = _("{who} answered HTTP {status}: {detail}", who=who, status=status, detail=detail)
    if status in (401, 403):
        text = _("{problem} (is CHIMES_AGENT_API_KEY right?)", problem=text)
    elif status == 404:
        text = _("{problem} (are CHIMES_AGENT_URL and the model right?)", problem=text)
    return TargetError(
        f"http_{status}",
        text,
        retryable=retryable,
        retry_after=wait_asked(headers.get("Retry-After"), now) if retryable else None,
        status=status,
    )


def error_of_connection(error: Exception, *, who: str) -> TargetError:
    """For a failed connection."""
    if isinstance(error, aiohttp.InvalidURL):
        return TargetError("bad_address", _("the address of {who} cannot be used", who=who))
    if isinstance(error, aiohttp.ServerTimeoutError):
        return TargetError(
            "connect_failed", _("{who}: no connection could be made", who=who), retryable=True
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TargetError("reset", _("{who}: the connection was lost", who=who), retryable=True)
    failure = failure_of(error)
    return TargetError(
        failure.code,
        _("no answer from {who}: {problem}", who=who, problem=failure.text),
        retryable=failure.retryable,
    )


def rejection_text(body: str) -> str:
    """The error text of a rejection in any common format, in one line."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return "" if body.lstrip().startswith("<") else short(body, LONGEST_DETAIL)
    return error_text(found)


def error_text(found: object) -> str:
    if isinstance(found, Mapping):
        for name in ("error", "message", "detail", "title"):
            if found.get(name):
                return error_text(found[name])
        return ""
    return short(found, LONGEST_DETAIL)


#: Connect timeout in seconds.
CONNECT_SECONDS = 30.0
ERROR_LIMIT = 16 * 1024
DOCUMENT_LIMIT = 2 * 1024 * 1024


class Exchange:
    def __init__(self, *, user_agent: str) -> None:
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            # Responses are not decompressed, because a bomb would unfold in one step.
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def send(
        self,
        config: AgentConfig,
        method: str,
        path: str,
        *,
        who: str,
        now: datetime,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response; TargetError for every other one and for a connection that fails,
        also while the response is read."""
        assert self._session is not None, "open() comes first"
        sent = {
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
            **(headers or {}),
        }
        base = config.url
        if config.api_key:
            sent["Authorization"] = f"Bearer {config.api_key}"
            base = config.public_url
        data = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            data = json.dumps(body, ensure_ascii=False).encode()
        try:
            async with self._session.request(
                method,
                URL(base + path, encoded=True),
                data=data,
                headers=sent,
                allow_redirects=False,
            ) as response:
                if not 200 <= response.status <= 299:
                    said = await read_at_most(response, ERROR_LIMIT)
                    raise error_of_status(
                        response.status,
                        response.headers,
                        said.decode(errors="replace"),
                        who=who,
                        now=now,
                    )
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise error_of_connection(error, who=who) from None

    async def fetch_document(
        self,
        config: AgentConfig,
        method: str,
        path: str,
        *,
        who: str,
        now: datetime,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """A response that is one JSON object."""
        async with self.send(
            config, method, path, who=who, now=now, body=body, headers=headers
        ) as response:
            return parsed(await whole(response, who=who), who=who)


async def whole(response: aiohttp.ClientResponse, *, who: str, begun: bytes = b"") -> bytes:
    data = begun + await read_at_most(response, DOCUMENT_LIMIT + 1 - len(begun))
    if len(data) > DOCUMENT_LIMIT:
        raise too_long(who)
    return data


def parsed(data: bytes | str, *, who: str) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise bad_answer(who) from None
    if not isinstance(found, dict):
        raise bad_answer(who)
    return found


def bad_answer(who: str) -> TargetError:
    return TargetError(
        "bad_answer", _("{who} answered with something else than JSON", who=who), retryable=True
    )


def too_long(who: str) -> TargetError:
    return TargetError(
        "answer_too_long", _("{who} answered with more than is read of an answer", who=who)
    )


class AgentRequest(RemoteAttempt):
    """One attempt of a prompt; the pipelines fill its answer."""

    def __init__(self, call: Call, config: AgentConfig) -> None:
        target = call.run.target
        assert isinstance(target, AgentTarget), "a runner is only given runs of its own kind"
        if call.run.definition.cause is not None:
            target = struct_replace(target, prompt=fill_event(target.prompt, call.run))
        self.target = target
        self.config = for_target(config, target)
        super().__init__(call, Redactor(self.config.secrets))
        self.answer = Answer(self.config)
