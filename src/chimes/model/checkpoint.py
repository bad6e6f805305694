"""What a target wants to find again the next time: the cursor of a sync, for example."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from chimes.model.ids import RunId

#: In characters; whoever keeps more gets a clear refusal before the store sees it.
MAX_CHECKPOINT_LENGTH = 1024 * 1024
#: In place of a run.
NO_RUN = RunId("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    #: Whose it is, e.g. `SyncTarget.key`.
    name: str
    #: JSON text.
    value: str
    changed_at: datetime
    #: The run that kept it last.
    run_id: RunId = NO_RUN


# @@ What is kept of an action that the action service works on.

MAX_EXECUTION_ID_LENGTH = 200


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


def execution_end(status: str) -> ExecutionEnd | None:
    """None: under way. Every word that is not known here is taken for that."""
    return _ENDS.get(status.strip().lower())


def action_checkpoint_name(run_id: RunId) -> str:
    """Under which name the target keeps which execution is its own, until the run has ended."""
    return f"action:{run_id}"


def encode_action_checkpoint(execution_id: str) -> str:
    return json.dumps({"execution_id": execution_id})


def decode_action_checkpoint(text: str | None) -> str:
    """The id; empty: none is known. What is not ours counts as nothing."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return ""
    given = found.get("execution_id") if isinstance(found, dict) else None
    return given if isinstance(given, str) else ""


# @@ What is kept of a prompt that a run pipeline works on, and where it may call back.

CALLBACK_PATH = "/api/v1/agent/callbacks"
MAX_PIPELINE_ID_LENGTH = 200


class PipelineEnd(StrEnum):
    """How a run of the pipeline ended, whatever word it has for that."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


_ENDS_AGENT_RUN = {
    PipelineEnd.COMPLETED: "completed complete succeeded success done finished ok",
    PipelineEnd.FAILED: "failed failure error errored timeout timed_out expired",
    PipelineEnd.CANCELED: "canceled cancelled aborted stopped",
}
_END_OF = {word: end for end, words in _ENDS_AGENT_RUN.items() for word in words.split()}


def pipeline_end(status: str) -> PipelineEnd | None:
    """None: under way. Every word that is not known here is taken for that."""
    return _END_OF.get(status.strip().lower().replace("-", "_").replace(" ", "_"))


def agent_checkpoint_name(run_id: RunId) -> str:
    """Under which name the target keeps its `AgentCheckpoint`, until the run has ended."""
    return f"agent:{run_id}"


def agent_callback_name(run_id: RunId) -> str:
    """Under which name it finds what the pipeline has said by itself."""
    return f"agent:{run_id}:heard"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCheckpoint:
    """How far a run was handed over: another attempt goes on from here."""

    #: What a callback has to show; empty: none is expected.
    token: str = ""
    #: The pipeline's own id; empty: it is not known yet.
    pipeline_run_id: str = ""

    def to_text(self) -> str:
        return json.dumps({"token": self.token, "pipeline_run_id": self.pipeline_run_id})


def decode_agent_checkpoint(text: str | None) -> AgentCheckpoint:
    """What is not ours counts as nothing."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return AgentCheckpoint()
    return AgentCheckpoint(
        token=str(found.get("token") or ""),
        pipeline_run_id=str(found.get("pipeline_run_id") or ""),
    )


def callback_url(base: str, run_id: RunId, token: str) -> str:
    return f"{base.rstrip('/')}{CALLBACK_PATH}/{quote(run_id, safe='')}?token={token}"
