"""The pipeline `openai`: an OpenAI-compatible chat endpoint, streaming. No tools are sent along,
and none is called (S73)."""

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
    Exchange,
    Handing,
    Trouble,
    bad_answer,
    clean,
    error_text,
    parsed,
    short,
    too_long,
    whole,
)

# @@ Server-sent events, read from pieces that may be cut anywhere.

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """A line or an event is longer than what is read of one."""


class EventReader:
    """Only the data of events is of interest; names, ids and comments are passed over."""

    def __init__(self, longest: int) -> None:
        """`longest`: bytes of one event."""
        self._longest = longest
        self._rest = bytearray()
        self._searched = 0
        #: The line feed that may come next belongs to the line before.
        self._after_return = False
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that this completes."""
        events = [found for line in self._lines(piece) if (found := self._take(line)) is not None]
        if len(self._rest) > self._longest:
            raise EventTooLong
        return events

    def end(self) -> list[str]:
        """What an event without an empty line behind it holds: some servers end so."""
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
        """The data of the event that an empty line ends."""
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


# @@ The answer in the run's log while it comes in: whole lines, at most once a second.

EVERY_SECONDS = 1.0
LONGEST_ENTRY = 4000


class LiveText:
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
        """Only whole lines are told: a secret that comes in pieces is seen as a whole."""
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
WHO = _("the model server")
#: Bytes of a stream, its packing included: a token may take some hundred of them.
STREAM_LIMIT = 32 * READ_LIMIT
#: Bytes that are dealt with at a time: then it is the turn of others.
_PIECE = 16 * 1024
_DONE = "[DONE]"
_LASTING_ERRORS = ("invalid", "authentication", "permission", "not_found", "insufficient_quota")


async def ask_model(exchange: Exchange, handing: Handing) -> None:
    """Fills the answer; Trouble if there is none."""
    try:
        await _ask(exchange, handing, with_usage=True)
    except Trouble as trouble:
        # Some servers know no stream_options, and refuse what they do not know.
        if trouble.status not in (400, 422) or "stream_options" not in trouble.text:
            raise
        await _ask(exchange, handing, with_usage=False)
    answer = handing.answer
    if not answer.size and answer.refused_tools:
        raise Trouble(
            "tool_call_refused",
            _(
                "the model asked for {tools} instead of an answer; no tools are offered",
                tools=", ".join(answer.refused_tools),
            ),
        )
    if not answer.size and answer.finish_reason == "content_filter":
        raise Trouble("content_filter", _("the model server withheld the answer (content_filter)"))


async def _ask(exchange: Exchange, handing: Handing, *, with_usage: bool) -> None:
    async with exchange.ask(
        handing.config,
        "POST",
        PATH,
        who=WHO,
        now=handing.now(),
        body=_request(handing, with_usage),
        headers={
            "Accept": "text/event-stream, application/json",
            "Idempotency-Key": handing.call.run.id,
        },
    ) as response:
        first = await response.content.read(_PIECE)
        if _is_document(response, first):
            data = await whole(response, who=WHO, begun=first)
            _absorb(parsed(data, who=WHO), "message", handing, handing.answer.add)
            return
        await _stream(response, first, handing)


def _request(handing: Handing, with_usage: bool) -> dict[str, object]:
    config = handing.config
    body: dict[str, object] = {
        "messages": [{"role": "user", "content": handing.target.prompt}],
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
    """Some servers do not stream, and say so in their own ways."""
    if response.content_type == "text/event-stream":
        return False
    return response.content_type == "application/json" or first.lstrip().startswith(b"{")


async def _stream(response: aiohttp.ClientResponse, piece: bytes, handing: Handing) -> None:
    answer, clock = handing.answer, handing.clock
    events = EventReader(READ_LIMIT)
    live = LiveText(handing.log, handing.redactor, clock)
    began, first_after = clock(), None
    received = 0

    def add(text: str) -> None:
        nonlocal first_after
        if first_after is None:
            first_after = clock() - began
            handing.log("info", _("first token after {seconds:.2f} s", seconds=first_after))
        answer.add(text)
        live.add(text)

    done = False
    try:
        while piece and not done:
            received += len(piece)
            done = _absorb_all(events.feed(piece), handing, add)
            if answer.too_long or received > STREAM_LIMIT:
                raise too_long(WHO)
            # A server on the same machine always has more: the others get their turn, too.
            await asyncio.sleep(0)
            piece = b"" if done else await response.content.read(_PIECE)
        done = done or _absorb_all(events.end(), handing, add)
    except EventTooLong:
        raise too_long(WHO) from None
    except aiohttp.ClientPayloadError:
        if not answer.finish_reason:
            raise
    finally:
        live.end()
    if not done and not answer.finish_reason:
        raise Trouble(
            "stream_broken", _("{who} ended its answer in the middle", who=WHO), retryable=True
        )


def _absorb_all(events: list[str], handing: Handing, add: Callable[[str], None]) -> bool:
    """Whether the last event has come."""
    for data in events:
        if data.strip() == _DONE:
            return True
        _absorb(parsed(data, who=WHO), "delta", handing, add)
        if handing.answer.too_long:
            return False
    return False


def _absorb(
    found: Mapping[str, object], part: str, handing: Handing, add: Callable[[str], None]
) -> None:
    """A whole answer (`message`), or a piece of one (`delta`)."""
    answer = handing.answer
    if found.get("error"):
        raise _model_error(found["error"])
    answer.model = short(found.get("model"), LONGEST_NAME) or answer.model
    answer.add_usage(found.get("usage"))
    choices = found.get("choices")
    if not isinstance(choices, list):
        if part == "message":
            raise bad_answer(WHO)
        return
    for choice in choices:
        if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
            continue
        answer.finish_reason = short(choice.get("finish_reason"), 50) or answer.finish_reason
        said = choice.get(part)
        if isinstance(said, Mapping):
            _refuse_tools(said, handing)
            if text := _text(said.get("content")):
                add(text)


def _text(content: object) -> str:
    """A text, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _refuse_tools(said: Mapping[str, object], handing: Handing) -> None:
    calls = said.get("tool_calls")
    wanted = [each.get("function") for each in calls if isinstance(each, Mapping)] if isinstance(
        calls, list
    ) else []  # fmt: skip
    wanted.append(said.get("function_call"))
    for function in wanted:
        # Of a call that comes in pieces only the first has its name.
        if (
            isinstance(function, Mapping)
            and function.get("name")
            and handing.answer.refuse_tool(function["name"])
        ):
            name = handing.answer.refused_tools[-1]
            handing.log("warning", _("the model asked for the tool {name}: refused", name=name))


def _model_error(error: object) -> Trouble:
    kind = ""
    if isinstance(error, Mapping):
        kind = " ".join(str(error.get(name) or "") for name in ("type", "code")).lower()
    text = error_text(error) or _("an error without words")
    lasting = any(word in kind for word in _LASTING_ERRORS)
    return Trouble(
        "model_error", _("{who} broke off: {error}", who=WHO, error=text), retryable=not lasting
    )
