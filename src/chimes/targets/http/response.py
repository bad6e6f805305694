"""Reads and truncates HTTP responses: bounded size, plain text, secrets masked."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader

from chimes.redaction import HIDDEN, is_secret_name

READ_LIMIT = 1024 * 1024
KEEP_LIMIT = 64 * 1024
MAX_KEPT_HEADERS = 64
MAX_KEPT_HEADER_LENGTH = 1024
_PIECE = 64 * 1024
_LONGEST_WAIT = timedelta(days=365)


class Reply(NamedTuple):
    status: int
    #: Like `location` and `retry_after`, set for unsuccessful responses only.
    phrase: str
    headers: Mapping[str, str]
    body: str
    truncated: bool
    location: str | None
    retry_after: str | None


async def read_reply(
    message: RawResponseMessage, content: StreamReader, keep: int = KEEP_LIMIT
) -> Reply:
    """`keep`: bytes of the body to keep, at most READ_LIMIT."""
    headers = message.headers
    body, truncated = await _read_body(content, headers.get("Content-Encoding", ""), keep)
    successful = message.code < 300
    return Reply(
        status=message.code,
        phrase="" if successful else _clean(message.reason or "")[:100],
        headers=_kept_headers(headers.items()),
        body=body,
        truncated=truncated,
        location=None if successful else _header(headers, "Location"),
        retry_after=None if successful else _header(headers, "Retry-After"),
    )


def wait_asked(value: str | None, now: datetime) -> timedelta | None:
    """Retry-After in seconds or as a date by the store's clock; other values are ignored."""
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,18}", value):
        return timedelta(seconds=min(int(value), _LONGEST_WAIT.total_seconds()))
    try:
        at = parsedate_to_datetime(value)
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return wait if timedelta(0) < wait <= _LONGEST_WAIT else None


async def _read_body(content: StreamReader, encoding: str, keep: int) -> tuple[str, bool]:
    """Reads past the kept bytes so that the connection can be reused, up to READ_LIMIT."""
    decoder = _Decoder(encoding)
    kept = bytearray()
    received = decoded = 0
    while not content.at_eof() and (chunk := await content.readany()):
        received += len(chunk)
        for piece in decoder.pieces(chunk):
            decoded += len(piece)
            kept += piece[: keep - len(kept)]
            if decoded > READ_LIMIT:
                break
        if received > READ_LIMIT or decoded > READ_LIMIT:
            break
    text, cut = _as_text(kept, keep)
    return text, cut or decoder.broken or decoded > len(kept)


def _as_text(kept: bytearray, keep: int) -> tuple[str, bool]:
    """The text and whether it was truncated."""
    if len(kept) < keep and kept.isascii() and 0 not in kept:
        return kept.decode("ascii"), False
    text = _clean(codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(kept)))
    # A replacement character takes three bytes.
    short = text.encode()[:keep].decode(errors="ignore")
    return short, len(short) < len(text)


class _Decoder:
    """Decodes gzip and deflate in bounded pieces, so that a decompression bomb stays harmless."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._inflate: zlib._Decompress | None = None
        self.broken = False

    def pieces(self, chunk: bytes) -> Iterable[bytes]:
        compressed = self._encoding in ("gzip", "x-gzip", "deflate")
        return self._inflated(chunk) if compressed else (chunk,)

    def _inflated(self, chunk: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            self._inflate = zlib.decompressobj(self._window(chunk))
        while chunk and not self.broken and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(chunk, _PIECE)
            except zlib.error:
                self.broken = True
                return
            chunk = self._inflate.unconsumed_tail
            yield piece

    def _window(self, chunk: bytes) -> int:
        if self._encoding != "deflate":
            return 16 + zlib.MAX_WBITS
        # Some servers send raw deflate; the low bits of a zlib header are always 8.
        return zlib.MAX_WBITS if chunk[0] & 0x0F == 8 else -zlib.MAX_WBITS


def _kept_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in items:
        if name not in kept and len(kept) >= MAX_KEPT_HEADERS:
            break
        shown = HIDDEN if is_secret_name(name) else _clean(value)
        kept[name] = f"{kept[name]}, {shown}" if name in kept else shown
        kept[name] = kept[name][:MAX_KEPT_HEADER_LENGTH]
    return kept


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else _clean(value)[:MAX_KEPT_HEADER_LENGTH]


def _clean(text: str) -> str:
    """Text that every store accepts: no NUL, no lone surrogates (from bad bytes)."""
    if not text.isascii():
        text = text.encode(errors="surrogateescape").decode(errors="replace")
    return text.replace("\x00", "\ufffd")
