"""What is kept of an action that the action service works on."""

from __future__ import annotations

import json
from enum import StrEnum

from chimes.model.ids import RunId

LONGEST_EXECUTION_ID = 200


class ExecutionEnd(StrEnum):
    """How an execution ended; there are no other ends."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: `success` is what the original says of a single object, and others of the whole.
_ENDS = {end.value: end for end in ExecutionEnd} | {
    "canceled": ExecutionEnd.CANCELLED,
    "success": ExecutionEnd.COMPLETED,
    "succeeded": ExecutionEnd.COMPLETED,
}


def end_of(status: str) -> ExecutionEnd | None:
    """None: under way. Every word that is not known here is taken for that."""
    return _ENDS.get(status.strip().lower())


def kept_name(run_id: RunId) -> str:
    """Under which name the target keeps which execution is its own, until the run has ended."""
    return f"action:{run_id}"


def kept_text(execution_id: str) -> str:
    return json.dumps({"execution_id": execution_id})


def execution_kept(text: str | None) -> str:
    """The id; empty: none is known. What is not ours counts as nothing."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return ""
    given = found.get("execution_id") if isinstance(found, dict) else None
    return given if isinstance(given, str) else ""
