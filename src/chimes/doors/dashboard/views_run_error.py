"""What went wrong, in its parts: the type, what it says, and where in the code; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chimes.doors.dashboard.views_run import cut, plain_line
from chimes.model.run import LogEntry, Run

#: Entries at the end of a log in which a traceback is looked for.
LAST_ENTRIES = 200
_TRACEBACK = "Traceback (most recent call last)"
_TYPED = re.compile(r"([A-Za-z_][\w.]{0,100}): (.+)", re.DOTALL)
#: Where an error is an exception of somebody's code.
_CODE = ("task", "sync", "flow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    #: Empty: it is no exception.
    type: str
    message: str
    #: Empty: there is none.
    stack: str


def failure_of(run: Run, last: Sequence[LogEntry]) -> Failure:
    """`last`: the end of its log."""
    found = _TYPED.fullmatch(run.error) if run.target.kind in _CODE else None
    return Failure(
        type=found[1] if found else "",
        message=found[2] if found else run.error or run.reason,
        stack=_stack_in(last),
    )


def _stack_in(entries: Sequence[LogEntry]) -> str:
    """From the last traceback on, as far as it is an error that is told."""
    begins = [place for place, each in enumerate(entries) if _TRACEBACK in each.message]
    if not begins:
        return ""
    lines: list[str] = []
    for each in entries[begins[-1] :]:
        if each.level != "error":
            break
        lines.append("\n".join(plain_line(line) for line in each.message.split("\n")))
    return cut("\n".join(lines))
