"""Reader of server-sent events."""

from __future__ import annotations

import pytest

from chimes.targets.agent.chat import EventReader, EventTooLong

LINES = (
    ": a comment",
    "",
    "data: first",
    "id: 7",
    "",
    "data:second",
    "data:  line ก🙂",
    "event: named",
    "data",
    "",
    "",
    "database: not data",
    "",
    "data: {}",
    "",
)
FOUND = ["first", "second\n line ก🙂\n", "{}"]


def read(*pieces: bytes) -> list[str]:
    reader = EventReader(1000)
    found = [event for piece in pieces for event in reader.feed(piece)]
    return found + reader.end()


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("eol", ["\n", "\r\n", "\r"])
def test_events_are_the_same_however_the_stream_is_split(eol: str, bom: bytes) -> None:
    stream = bom + eol.join([*LINES, ""]).encode()
    assert read(stream) == FOUND
    assert read(*(stream[place : place + 1] for place in range(len(stream)))) == FOUND
    for place in range(len(stream)):
        assert read(stream[:place], b"", stream[place:]) == FOUND


def test_invalid_utf8_is_replaced() -> None:
    assert read(b"data: a\xffb\n\n") == ["a\ufffdb"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_last_event_needs_no_empty_line(end: bytes) -> None:
    assert read(b"data: [DONE]" + end) == ["[DONE]"]
    assert read(b"data: one\n\n: bye") == ["one"]


@pytest.mark.parametrize("pieces", [[b"x" * 1001], [b"data: 1234567\n"] * 200])
def test_line_and_event_lengths_are_limited(pieces: list[bytes]) -> None:
    with pytest.raises(EventTooLong):
        read(*pieces)
