"""The pipeline `openai`: a streaming OpenAI-compatible chat endpoint, without tools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

import aiohttp

from chimes.i18n import _
from chimes.redaction import Redactor
from chimes.targets.agent.service import (
    KEEP_LIMIT,
    LONGEST_NAME,
    READ_LIMIT,
    AgentRequest,
    Exchange,
    bad_answer,
    clean,
    error_text,
    parsed,
    short,
    too_long,
    whole,
)
from chimes.targets.base import TargetError

# Server-sent events.

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """A line or event exceeds the limit."""


class EventReader:
    """Incremental parser for the data of events; names, ids and comments are ignored."""

    def __init__(self, longest: int) -> None:
        """`longest`: maximum bytes of one event."""
        self._longest = longest
        self._rest = bytearray()
        self._searched = 0
        #: A line feed that follows belongs to the previous line.
        self._after_return = False
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that this piece completes."""
        events = [found for line in self._lines(piece) if (found := self._take(line)) is not None]
        if len(self._rest) > self._longest:
            raise EventTooLong
        return events

    def end(self) -> list[str]:
        """The data of a last event without a trailing empty line."""
        if self._rest:
            self._take(bytes(self._rest))
            self._rest.clear()
        last = self._take(b"")
        return [] if last is None else [last]

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        self._rest += piece
        if not self._begun and len(self._rest) >= len(_BOM):
            self._begun = True
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
        lines: list[bytes] = []
        start = 0
        for found in _END_OF_LINE.finditer(self._rest, self._searched):
            lines.append(bytes(self._rest[start : found.start()]))
            start = found.end()
            self._after_return = found[0] == b"\r" and start == len(self._rest)
        del self._rest[:start]
        self._searched = len(self._rest)
        return lines

    def _take(self, line: bytes) -> str | None:
        """The data of an event if this line ends one."""
        if not line:
            data, self._data, self._size = self._data, [], 0
            return b"\n".join(data).decode(errors="replace") if data else None
        name, _unused, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._size += len(value)
            if self._size > self._longest:
                raise EventTooLong
            self._data.append(value)
        return None


EVERY_SECONDS = 1.0
LONGEST_ENTRY = 4000


class LiveText:
    """Writes the streamed answer to the run's log: whole lines, at most once a second."""

    def __init__(
        self, log: Callable[[str, str], None], redactor: Redactor, clock: Callable[[], float]
    ) -> None:
        self._log = log
        self._redactor = redactor
        self._clock = clock
        self._line = ""
        self._waiting: list[str] = []
        self._size = 0
        self._told_at = clock()

    def add(self, piece: str) -> None:
        """Logs whole lines only, so that a secret split over pieces is still redacted."""
        if self._size > KEEP_LIMIT:
            return
        self._size += len(piece)
        *whole, self._line = (self._line + piece).split("\n")
        self._waiting.extend(whole)
        if self._waiting and self._clock() - self._told_at >= EVERY_SECONDS:
            self._tell()

    def end(self) -> None:
        self._waiting.append(self._line)
        self._line = ""
        self._tell()

    def _tell(self) -> None:
        text = self._redactor.text(clean("\n".join(self._waiting)).strip())
        self._waiting.clear()
        self._told_at = self._clock()
        for start in range(0, len(text), LONGEST_ENTRY):
            self._log("info", text[start : start + LONGEST_ENTRY])


PATH = "/v1/chat/completions"
SERVICE = _("the model server")
#: Bytes of a stream including its framing: a token may take some hundred.
STREAM_LIMIT = 32 * READ_LIMIT
#: Bytes per iteration, so that other tasks get their turn.
_PIECE = 16 * 1024
_DONE = "[DONE]"
_LASTING_ERRORS = ("invalid", "authentication", "permission", "not_found", "insufficient_quota")


async def ask_model(exchange: Exchange, request: AgentRequest) -> None:
    """Fills the answer; TargetError if there is none."""
    try:
        await _send_prompt(exchange, request, with_usage=True)
    except TargetError as error:
        # Some servers reject the unknown field stream_options.
        if error.status not in (400, 422) or "stream_options" not in error.text:
            raise
        await _send_prompt(exchange, request, with_usage=False)
    answer = request.answer
    if not answer.size and answer.refused_tools:
        raise TargetError(
            "tool_call_refused",
            _(
                "the model asked for {tools} instead of an answer; no tools are offered",
                tools=", ".join(answer.refused_tools),
            ),
        )
    if not answer.size and answer.finish_reason == "content_filter":
        raise TargetError(
            "content_filter", _("the model server withheld the answer (content_filter)")
        )


async def _send_prompt(exchange: Exchange, request: AgentRequest, *, with_usage: bool) -> None:
    async with exchange.send(
        request.config,
        "POST",
        PATH,
        who=SERVICE,
        now=request.now(),
        body=_request(request, with_usage),
        headers={
            "Accept": "text/event-stream, application/json",
            "Idempotency-Key": request.call.run.id,
        },
    ) as response:
        first = await response.content.read(_PIECE)
        if _is_document(response, first):
            data = await whole(response, who=SERVICE, begun=first)
            _absorb(parsed(data, who=SERVICE), "message", request, request.answer.add)
            return
        await _stream(response, first, request)


def _request(request: AgentRequest, with_usage: bool) -> dict[str, object]:
    config = request.config
    body: dict[str, object] = {
        "messages": [{"role": "user", "content": request.target.prompt}],
        "stream": True,
    }
    if config.model:
        body["model"] = config.model
    if with_usage:
        body["stream_options"] = {"include_usage": True}
    if config.max_tokens:
        body["max_tokens"] = config.max_tokens
    return body


def _is_document(response: aiohttp.ClientResponse, first: bytes) -> bool:
    """Whether the server returned one JSON document instead of a stream."""
    if response.content_type == "text/event-stream":
        return False
    return response.content_type == "application/json" or first.lstrip().startswith(b"{")


async def _stream(response: aiohttp.ClientResponse, piece: bytes, request: AgentRequest) -> None:
    answer, clock = request.answer, request.clock
    events = EventReader(READ_LIMIT)
    live = LiveText(request.log, request.redactor, clock)
    began, first_after = clock(), None
    received = 0

    def add(text: str) -> None:
        nonlocal first_after
        if first_after is None:
            first_after = clock() - began
            request.log("info", _("first token after {seconds:.2f} s", seconds=first_after))
        answer.add(text)
        live.add(text)

    done = False
    try:
        while piece and not done:
            received += len(piece)
            done = _absorb_all(events.feed(piece), request, add)
            if answer.too_long or received > STREAM_LIMIT:
                raise too_long(SERVICE)
            # A local server always has more data; let other tasks run.
            await asyncio.sleep(0)
            piece = b"" if done else await response.content.read(_PIECE)
        done = done or _absorb_all(events.end(), request, add)
    except EventTooLong:
        raise too_long(SERVICE) from None
    except aiohttp.ClientPayloadError:
        if not answer.finish_reason:
            raise
    finally:
        live.end()
    if not done and not answer.finish_reason:
        raise TargetError(
            "stream_broken", _("{who} ended its answer in the middle", who=SERVICE), retryable=True
        )


def _absorb_all(events: list[str], request: AgentRequest, add: Callable[[str], None]) -> bool:
    """Whether the last event has arrived."""
    for data in events:
        if data.strip() == _DONE:
            return True
        _absorb(parsed(data, who=SERVICE), "delta", request, add)
        if request.answer.too_long:
            return False
    return False


def _absorb(
    found: Mapping[str, object], part: str, request: AgentRequest, add: Callable[[str], None]
) -> None:
    """Adds a whole answer (`message`) or a piece of one (`delta`)."""
    answer = request.answer
    if found.get("error"):
        raise _model_error(found["error"])
    answer.model = short(found.get("model"), LONGEST_NAME) or answer.model
    answer.add_usage(found.get("usage"))
    choices = found.get("choices")
    if not isinstance(choices, list):
        if part == "message":
            raise bad_answer(SERVICE)
        return
    for choice in choices:
        if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
            continue
        answer.finish_reason = short(choice.get("finish_reason"), 50) or answer.finish_reason
        said = choice.get(part)
        if isinstance(said, Mapping):
            _refuse_tools(said, request)
            if text := _text(said.get("content")):
                add(text)


def _text(content: object) -> str:
    """The text of a string or of a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _refuse_tools(said: Mapping[str, object], request: AgentRequest) -> None:
    calls = said.get("tool_calls")
    wanted = [each.get("function") for each in calls if isinstance(each, Mapping)] if isinstance(
        calls, list
    ) else []  # fmt: skip
    wanted.append(said.get("function_call"))
    for function in wanted:
        # Only the first piece of a streamed call has its name.
        if (
            isinstance(function, Mapping)
            and function.get("name")
            and request.answer.refuse_tool(function["name"])
        ):
            name = request.answer.refused_tools[-1]
            request.log("warning", _("the model asked for the tool {name}: refused", name=name))


def _model_error(error: object) -> TargetError:
    kind = ""
    if isinstance(error, Mapping):
        kind = " ".join(str(error.get(name) or "") for name in ("type", "code")).lower()
    text = error_text(error) or _("an error without words")
    lasting = any(word in kind for word in _LASTING_ERRORS)
    return TargetError(
        "model_error", _("{who} broke off: {error}", who=SERVICE, error=text), retryable=not lasting
    )
