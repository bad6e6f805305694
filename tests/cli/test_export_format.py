"""Export format: every item survives a round trip."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from chimes.cli.store.commands import export_lines, parse_export
from chimes.errors import InvalidInput
from chimes.model.access import Scope
from chimes.model.audit import chain_entry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.target import AgentTarget
from chimes.store.port import Item, RunLog
from tests.builders import (
    ACTION,
    NOW,
    SYNC,
    a_delivery,
    a_key,
    a_schedule,
    a_sync_run,
    an_entry,
    an_item,
    full_delivery,
    full_item,
    full_run,
    full_schedule,
    log_lines,
)

ITEMS: Sequence[Item] = (
    full_schedule(),
    a_schedule(target=SYNC),
    full_run(),
    a_sync_run(),
    RunLog(run_id=RunId("full-run"), entries=tuple(log_lines("one", "น้ำ 水"))),
    chain_entry(an_entry(), number=1, previous_hash=""),
    a_key(),
    a_key(scopes=(Scope.READ, Scope.AGENT)),
    a_schedule(target=AgentTarget(prompt="สรุปข่าว", model="small", max_tokens=9)),
    a_schedule(target=ACTION),
    a_delivery(),
    full_delivery(),
    an_item(),
    full_item(),
    Checkpoint(name=SYNC.key, value='{"cursor": "น้ำ"}', changed_at=NOW, run_id=RunId("full-run")),
    Checkpoint(name="by hand", value="[]", changed_at=NOW),
)


async def _items() -> AsyncIterator[Item]:
    for item in ITEMS:
        yield item


async def test_every_item_survives_export_and_import() -> None:
    lines = [line async for line in export_lines(_items())]
    assert len(lines) == len(ITEMS) + 1
    assert list(parse_export(lines)) == list(ITEMS)


@pytest.mark.parametrize(
    "value",
    ["{}", '{"name": "a", "value": 1, "changed_at": "2030-01-01T00:00:00Z"}', '{"extra": 1}', "7"],
)
def test_invalid_checkpoint_is_rejected(value: str) -> None:
    lines = ['{"chimes_export": 1}', f'{{"kind": "state", "value": {value}}}']
    with pytest.raises(InvalidInput, match="line 2"):
        list(parse_export(lines))


@pytest.mark.parametrize("kind", ["delivery", "inbox"])
@pytest.mark.parametrize("value", ["{}", '{"id": 1}', '{"id": "a", "extra": 1}', "7", "null"])
def test_invalid_message_is_rejected(kind: str, value: str) -> None:
    lines = ['{"chimes_export": 1}', f'{{"kind": "{kind}", "value": {value}}}']
    with pytest.raises(InvalidInput, match="line 2"):
        list(parse_export(lines))
