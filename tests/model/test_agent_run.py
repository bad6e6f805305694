"""Checkpoints of agent runs."""

from __future__ import annotations

import pytest

from chimes.model.checkpoint import (
    AgentCheckpoint,
    PipelineEnd,
    agent_callback_name,
    agent_checkpoint_name,
    callback_url,
    decode_agent_checkpoint,
    pipeline_end,
)
from chimes.model.ids import RunId


@pytest.mark.parametrize(
    "kept", [AgentCheckpoint(), AgentCheckpoint(token="t", pipeline_run_id="p/1")]
)
def test_agent_checkpoint_round_trips(kept: AgentCheckpoint) -> None:
    assert decode_agent_checkpoint(kept.to_text()) == kept


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"token": null}'])
def test_invalid_checkpoint_decodes_to_an_empty_one(text: str | None) -> None:
    assert decode_agent_checkpoint(text) == AgentCheckpoint()


def test_checkpoint_names_and_callback_url() -> None:
    run = RunId("a/b ก")
    assert agent_checkpoint_name(run) != agent_callback_name(run)
    assert callback_url("https://h.example/x/", run, "T") == (
        "https://h.example/x/api/v1/agent/callbacks/a%2Fb%20%E0%B8%81?token=T"
    )


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("completed", PipelineEnd.COMPLETED),
        (" Succeeded", PipelineEnd.COMPLETED),
        ("FAILED", PipelineEnd.FAILED),
        ("timed-out", PipelineEnd.FAILED),
        ("Timed Out", PipelineEnd.FAILED),
        ("cancelled", PipelineEnd.CANCELED),
        ("running", None),
        ("", None),
        ("completing", None),
    ],
)
def test_pipeline_statuses_map_to_ends(word: str, end: PipelineEnd | None) -> None:
    assert pipeline_end(word) is end
