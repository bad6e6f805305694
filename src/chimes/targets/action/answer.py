"""What the action service says, as data: little is kept, whatever it sends."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from chimes.model.action_run import LONGEST_EXECUTION_ID, end_of
from chimes.redaction import Redactor
from chimes.targets.http_callback.response import Reply

LONGEST_TEXT = 1000
LONGEST_STATUS = 50

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
#: What the service calls them, by our names.
_COUNTS = {"total": "total_count", "success": "success_count", "failed": "failed_count"}
_MOST_COUNTED = 10**12


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """An answer about an execution; empty where it does not say."""

    execution_id: str = ""
    status: str = ""
    message: str = ""
    counts: Mapping[str, int] | None = None
    #: Why an object failed, of the first that says so; otherwise why the whole did.
    why: str = ""


def said_in(reply: Reply) -> Said | None:
    """None: it is not a JSON object."""
    found = document_in(reply)
    if found is None:
        return None
    return Said(
        execution_id=_id(found.get("execution_id") or found.get("id")),
        status=short(found.get("status"), LONGEST_STATUS),
        message=short(found.get("message"), LONGEST_TEXT),
        counts=_counts(found),
        why=_why(found),
    )


def document_in(reply: Reply) -> Mapping[str, object] | None:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def refusal_in(reply: Reply) -> str:
    """What a refusal says for people: the service's own shape, or another usual one."""
    found = document_in(reply)
    if found is None:
        page = reply.body.lstrip().startswith("<")
        return "" if page else short(reply.body, LONGEST_TEXT)
    for name in ("description", "message", "detail", "error", "title", "error_code"):
        text = short(found.get(name), LONGEST_TEXT)
        if text:
            details = short(found.get("error_details"), LONGEST_TEXT)
            return f"{text}: {details}" if details and details != text else text
    return ""


def short(given: object, most: int) -> str:
    """In one line, as text that every store takes."""
    if given is None or given == "":
        return ""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    text = _CONTROL.sub(" ", text).strip().encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _id(given: object) -> str:
    """Empty: there is none that could be asked for."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str) or len(given) > LONGEST_EXECUTION_ID:
        return ""
    if given in (".", ".."):
        # In a path they mean another one.
        return ""
    return given if given == short(given, LONGEST_EXECUTION_ID) else ""


def _counts(found: Mapping[str, object]) -> Mapping[str, int] | None:
    counts = {
        ours: value
        for ours, theirs in _COUNTS.items()
        if isinstance(value := found.get(theirs), int)
        and not isinstance(value, bool)
        and 0 <= value <= _MOST_COUNTED
    }
    return counts or None


def _why(found: Mapping[str, object]) -> str:
    results = found.get("results")
    for each in results if isinstance(results, list) else ():
        if isinstance(each, Mapping) and each.get("error_message"):
            return short(each["error_message"], LONGEST_TEXT)
    return short(found.get("error_message") or found.get("error"), LONGEST_TEXT)


class Record:
    """Grows while an attempt is under way, so that a broken one can be told of, too."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.execution_id = ""
        self.status = ""
        self.message = ""
        self.why = ""
        #: The message that came with the end; that of the acceptance is no reason for anything.
        self.last_words = ""
        self.counts: Mapping[str, int] | None = None
        #: Of the answer to `execute`; None: there was none in this attempt.
        self.http_status: int | None = None
        #: Whether the service took the action over, in this attempt or an earlier one.
        self.accepted = False
        #: Whether the service was able to say how it ended.
        self.followed = False

    def add(self, said: Said) -> None:
        self.status = said.status or self.status
        self.message = said.message or self.message
        self.why = said.why or self.why
        if end_of(said.status) is not None:
            self.last_words = said.message
        self.counts = said.counts or self.counts

    def result(self) -> dict[str, object]:
        found: dict[str, object] = {
            "execution_id": self.execution_id,
            "status": self.status,
            "message": self._redactor.text(self.message),
            "accepted": self.accepted,
            "followed": self.followed,
        }
        if self.counts is not None:
            found["counts"] = dict(self.counts)
        if self.http_status is not None:
            found["http_status"] = self.http_status
        return found
