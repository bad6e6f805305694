"""When a claim on SQL is dated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chimes.store.sql import open_sqlite
from chimes.store.sql.dialects.sqlite import SqliteDialect
from chimes.testing import SettableClock
from tests.builders import LEASE, SECOND, a_node, a_run, claim_request


async def test_claim_is_dated_after_its_runs_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a run that was unblocked meanwhile would overlap the run that it waited for."""
    clock = SettableClock()
    find = SqliteDialect.claimable

    def find_slowly(*given: Any) -> Any:
        found = find(*given)
        clock.advance(SECOND)
        return found

    monkeypatch.setattr(SqliteDialect, "claimable", find_slowly)
    store = open_sqlite(tmp_path / "chimes.db", clock=clock)
    await store.open()
    try:
        node = await store.join(a_node(), LEASE)
        await store.add_runs([a_run(available_at=clock.now())])
        (run,) = await store.claim(claim_request(node.id))
        assert run.claimed_at == clock.now()
    finally:
        await store.close()
