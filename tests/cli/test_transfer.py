"""An export has a line for every item, from which the very same item is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from chimes.cli.transfer import exported, imported
from chimes.errors import InvalidInput
from chimes.model.audit import chained
from chimes.model.ids import RunId
from chimes.model.kept_state import KeptState
from chimes.store.port import Item, RunLog
from tests.builders import (
    NOW,
    SYNC,
    a_key,
    a_schedule,
    a_task,
    an_entry,
    full_run,
    full_schedule,
    log_lines,
)

ITEMS: Sequence[Item] = (
    full_schedule(),
    a_schedule(target=SYNC),
    full_run(),
    a_task(),
    RunLog(run_id=RunId("full-run"), entries=tuple(log_lines("one", "น้ำ 水"))),
    chained(an_entry(), number=1, previous_hash=""),
    a_key(),
    KeptState(name=SYNC.key, value='{"cursor": "น้ำ"}', changed_at=NOW, run_id=RunId("full-run")),
    KeptState(name="by hand", value="[]", changed_at=NOW),
)


async def _each() -> AsyncIterator[Item]:
    for item in ITEMS:
        yield item


async def test_every_item_comes_back_as_it_was() -> None:
    lines = [line async for line in exported(_each())]
    assert len(lines) == len(ITEMS) + 1
    assert list(imported(lines)) == list(ITEMS)


@pytest.mark.parametrize(
    "value",
    ["{}", '{"name": "a", "value": 1, "changed_at": "2030-01-01T00:00:00Z"}', '{"extra": 1}', "7"],
)
def test_a_state_that_makes_no_sense_is_refused(value: str) -> None:
    lines = ['{"chimes_export": 1}', f'{{"kind": "state", "value": {value}}}']
    with pytest.raises(InvalidInput, match="line 2"):
        list(imported(lines))
