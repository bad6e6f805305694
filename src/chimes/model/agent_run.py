"""What is kept of a prompt that a run pipeline works on, and where it may call back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from chimes.model.ids import RunId

CALLBACK_PATH = "/api/v1/agent/callbacks"
LONGEST_PIPELINE_ID = 200


class PipelineEnd(StrEnum):
    """How a run of the pipeline ended, whatever word it has for that."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


_ENDS = {
    PipelineEnd.COMPLETED: "completed complete succeeded success done finished ok",
    PipelineEnd.FAILED: "failed failure error errored timeout timed_out expired",
    PipelineEnd.CANCELED: "canceled cancelled aborted stopped",
}
_END_OF = {word: end for end, words in _ENDS.items() for word in words.split()}


def end_of(status: str) -> PipelineEnd | None:
    """None: under way. Every word that is not known here is taken for that."""
    return _END_OF.get(status.strip().lower().replace("-", "_").replace(" ", "_"))


def kept_name(run_id: RunId) -> str:
    """Under which name the target keeps its `Handover`, until the run has ended."""
    return f"agent:{run_id}"


def heard_name(run_id: RunId) -> str:
    """Under which name it finds what the pipeline has said by itself."""
    return f"agent:{run_id}:heard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """How far a run was handed over: another attempt goes on from here."""

    #: What a callback has to show; empty: none is expected.
    token: str = ""
    #: The pipeline's own id; empty: it is not known yet.
    pipeline_run_id: str = ""

    def to_text(self) -> str:
        return json.dumps({"token": self.token, "pipeline_run_id": self.pipeline_run_id})


def handover_from(text: str | None) -> Handover:
    """What is not ours counts as nothing."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return Handover()
    return Handover(
        token=str(found.get("token") or ""),
        pipeline_run_id=str(found.get("pipeline_run_id") or ""),
    )


def callback_address(base: str, run_id: RunId, token: str) -> str:
    return f"{base.rstrip('/')}{CALLBACK_PATH}/{quote(run_id, safe='')}?token={token}"
