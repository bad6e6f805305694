"""Log output: one line per record as JSON or text, with secrets redacted.

Other modules use `logging.getLogger(__name__)` and `extra={...}` for fields. A closed pipe or a
full disk never stops the process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TextIO

from chimes.redaction import Redactor, escape_control
from chimes.telemetry import log_fields

MAX_TEXT_LENGTH = 16_384

#: Libraries that log too much, or URLs and headers of callbacks.
VERBOSE_LIBRARIES = (
    "aiohttp",
    "asyncio",
    "httpcore",
    "httpx",
    "httpx2",
    "markdown_it",
    "sqlalchemy",
    "urllib3",
    "uvicorn",
    "uvicorn.access",
    "uvicorn.error",
)
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
# A log record has its own attribute `name`, so the field is passed as `job_name`.
_RENAMED = {"job_name": "name"}


def configure_logging(
    level: str = "info",
    format: str = "auto",
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> LineHandler:
    """Send all logs to `stream` (stderr), as JSON lines or, with `auto` on a terminal, as text.

    Calling it again replaces the previous handler.
    """
    target = stream or sys.stderr
    as_text = format == "text" or (format == "auto" and target.isatty())
    redactor = Redactor(secrets)
    handler = LineHandler(target)
    handler.setFormatter(TextFormatter(redactor) if as_text else JsonFormatter(redactor))
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, LineHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    return handler


class LineHandler(logging.Handler):
    """Writes each record with one system call, without a buffer.

    A buffer that cannot be flushed at exit would turn the exit code into 120.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        try:
            self._descriptor = stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._descriptor = -1
        #: Lines that could not be written: the pipe is closed, the disk is full.
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record) + "\n")
        except Exception:
            # Closed pipe, full disk, broken __str__: logging must not stop the work.
            self.dropped += 1

    def _write(self, line: str) -> None:
        if self._descriptor < 0:
            self._stream.write(line)
            self._stream.flush()
            return
        data = line.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "event", …the record's own fields…}`"""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _short(self._redactor.text(_message(record))),
        }
        for name, value in _fields(record, self._redactor).items():
            # A field must not replace a key of the line.
            line[name if name not in line else f"{name}_"] = value
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """For people at a terminal: `2026-01-02T09:30:00.123Z INFO    event  name=value  (logger)`"""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        event = _short(self._redactor.text(_message(record)))
        parts = [f"{_time(record)[:23]}Z {record.levelname:<7} {event}"]
        for name, value in _fields(record, self._redactor).items():
            shown = value if isinstance(value, str) else json.dumps(value, default=str)
            parts.append(f"{name}={shown}")
        return escape_control("  ".join([*parts, f"({record.name})"]))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _fields(record: logging.LogRecord, redactor: Redactor) -> dict[str, object]:
    own = dict(log_fields()) | {
        _RENAMED.get(name, name): value
        for name, value in record.__dict__.items()
        if name not in _STANDARD
    }
    if record.exc_info and record.exc_info[1] is not None:
        own["exception"] = "".join(traceback.format_exception(*record.exc_info))
    hidden = redactor.value(own)
    assert isinstance(hidden, dict)
    return {name: _short(v) if isinstance(v, str) else v for name, v in hidden.items()}


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else text[:MAX_TEXT_LENGTH] + "…"
