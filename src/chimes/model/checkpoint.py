"""Checkpoints: state that a target keeps between attempts or runs, e.g. the cursor of a sync, and
small documents, e.g. the users."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from msgspec import Struct

from chimes.errors import StaleVersion
from chimes.model.ids import RunId, ScheduleId

#: In characters; more is rejected before it reaches the store.
MAX_CHECKPOINT_LENGTH = 1024 * 1024
#: Set through the API, not by a run.
NO_RUN = RunId("")


class Checkpoint(Struct, frozen=True, kw_only=True):
    #: Identity, e.g. `SyncTarget.key`.
    name: str
    #: JSON text.
    value: str
    changed_at: datetime
    #: The run that wrote it last.
    run_id: RunId = NO_RUN

    @property
    def version(self) -> int:
        """A hash of the value: a change computed from an equal value is still right."""
        value = self.value.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(value, digest_size=16).digest())


def version_of(stored: Checkpoint | None) -> int:
    """0: it does not exist."""
    return 0 if stored is None else stored.version


def check_version(stored: Checkpoint | None, expected: int | None) -> None:
    """Raises StaleVersion if the stored version is not the expected one; None: any version."""
    if expected is not None and expected != version_of(stored):
        raise StaleVersion()


# --- actions: the id of the execution in the action service

MAX_EXECUTION_ID_LENGTH = 200


class ExecutionEnd(StrEnum):
    """How an execution of the action service ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: The original service says `success` of a single object, other services of the whole.
_ENDS = {end.value: end for end in ExecutionEnd} | {
    "canceled": ExecutionEnd.CANCELLED,
    "success": ExecutionEnd.COMPLETED,
    "succeeded": ExecutionEnd.COMPLETED,
}


def execution_end(status: str) -> ExecutionEnd | None:
    """None: still running, as is every unknown status."""
    return _ENDS.get(status.strip().lower())


def action_checkpoint_name(run_id: RunId) -> str:
    """Name of the checkpoint that holds the execution id until the run has ended."""
    return f"action:{run_id}"


def encode_action_checkpoint(execution_id: str) -> str:
    return json.dumps({"execution_id": execution_id})


def decode_action_checkpoint(text: str | None) -> str:
    """The execution id; empty if the text is missing or invalid."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return ""
    given = found.get("execution_id") if isinstance(found, dict) else None
    return given if isinstance(given, str) else ""


# --- agents: the id of the run in the pipeline, and the callback

CALLBACK_PATH = "/api/v1/agent/callbacks"
MAX_PIPELINE_ID_LENGTH = 200


class PipelineEnd(StrEnum):
    """How a run of the pipeline ended, in our words."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


_PIPELINE_WORDS = {
    PipelineEnd.COMPLETED: "completed complete succeeded success done finished ok",
    PipelineEnd.FAILED: "failed failure error errored timeout timed_out expired",
    PipelineEnd.CANCELED: "canceled cancelled aborted stopped",
}
_PIPELINE_ENDS = {word: end for end, words in _PIPELINE_WORDS.items() for word in words.split()}


def pipeline_end(status: str) -> PipelineEnd | None:
    """None: still running, as is every unknown status."""
    return _PIPELINE_ENDS.get(status.strip().lower().replace("-", "_").replace(" ", "_"))


def agent_checkpoint_name(run_id: RunId) -> str:
    """Name of the checkpoint that holds the `AgentCheckpoint` until the run has ended."""
    return f"agent:{run_id}"


def agent_callback_name(run_id: RunId) -> str:
    """Name of the checkpoint that holds the callback of the pipeline."""
    return f"agent:{run_id}:heard"


def engine_checkpoint_name(run_id: RunId) -> str:
    """Name of the checkpoint that holds the `EngineCheckpoint` until the run has ended."""
    return f"engine:{run_id}"


class EngineCheckpoint(Struct, frozen=True, kw_only=True):
    """A job that is handed over to an engine; another attempt continues from here."""

    #: The id of the job over there.
    id: str
    #: Whether the engine has confirmed it.
    sent: bool = False
    #: Failed attempts of the run before it was handed over.
    failures: int = 0

    def to_text(self) -> str:
        return json.dumps({"id": self.id, "sent": self.sent, "failures": self.failures})


def decode_engine_checkpoint(text: str | None) -> EngineCheckpoint | None:
    """None if the text is missing or invalid."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        return None
    failures = found.get("failures")
    return EngineCheckpoint(
        id=found["id"],
        sent=found.get("sent") is True,
        failures=failures if isinstance(failures, int) else 0,
    )


def run_checkpoint_names(run_id: RunId) -> tuple[str, ...]:
    """The names of all checkpoints that belong to one run and are deleted with it."""
    return (
        action_checkpoint_name(run_id),
        agent_checkpoint_name(run_id),
        agent_callback_name(run_id),
        engine_checkpoint_name(run_id),
    )


def schedule_checkpoint_names(schedule_id: ScheduleId) -> tuple[str, ...]:
    """The names of all checkpoints that belong to one schedule and are deleted with it: the state
    of its events and what its trigger has seen."""
    name = f"events:{schedule_id}"
    return (name, f"{name}:runs", f"{name}:files", f"{name}:sql")


class AgentCheckpoint(Struct, frozen=True, kw_only=True):
    """Progress of the request to the pipeline; another attempt continues from here."""

    #: Token that a callback must present; empty: no callback is expected.
    token: str = ""
    #: The pipeline's id of the run; empty: not known yet.
    pipeline_run_id: str = ""

    def to_text(self) -> str:
        return json.dumps({"token": self.token, "pipeline_run_id": self.pipeline_run_id})


def decode_agent_checkpoint(text: str | None) -> AgentCheckpoint:
    """Empty if the text is missing or invalid."""
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
