"""Texts and numbers are stored exactly on MariaDB, also in large batches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from chimes.errors import AlreadyExists
from chimes.model import replace
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.store.sql import SqlStore
from chimes.store.sql.dialects import mariadb
from tests.builders import a_completion, a_node, a_run, a_schedule, claim_request
from tests.store.mariadb_rig import opened
from tests.store_contract.scenes import all_runs

LONG = timedelta(minutes=10)
#: Texts that could break quoting, escaping, collations or columns.
TEXTS = [
    "",
    " ",
    "a",
    "a ",
    "A",
    "á",
    "a\u0301",
    "ａ",
    "น้ำ 水 \U0001f514",
    "%s %(x)s %% :y ? \\ \\\\ \\n '' \"\" ` ; --",
    "null",
    "\x01\x1f\x7f\u2028\ufeff\uffff",
    "line\r\nline\ttab",
]


@pytest.fixture
async def store(mariadb_url: str) -> AsyncIterator[SqlStore]:
    async with opened(mariadb_url) as store:
        await store.join(a_node(), LONG)
        yield store


async def test_texts_that_collate_equal_stay_distinct(store: SqlStore) -> None:
    names = [f"x{text}" for text in TEXTS]
    for name in names:
        await store.add_schedule(a_schedule(id=name, name=name))
    for name in names:
        found = await store.get_schedule(name)
        assert found is not None
        assert found.name == name
        page = await store.list_schedules(ScheduleQuery(name=name))
        assert [schedule.id for schedule in page.items] == [name]
        with pytest.raises(AlreadyExists):
            await store.add_schedule(a_schedule(id=name))
    page = await store.list_schedules(ScheduleQuery(sort=ScheduleSort.NAME, limit=100))
    assert [schedule.name for schedule in page.items] == sorted(names)


async def test_completions_keep_their_texts_in_a_batch(store: SqlStore) -> None:
    runs = [a_run(available_at=await store.now(), id=f"r{text}") for text in TEXTS]
    await store.add_runs(runs)
    claimed = await store.claim(claim_request(free=100))
    now = await store.now()
    completions = [
        replace(a_completion(run, now), error=text, result={text: text})
        for run, text in zip(sorted(claimed, key=lambda run: run.id), sorted(TEXTS), strict=True)
    ]
    accepted = (await store.finish(completions)).accepted
    rows = await all_runs(store)
    for run in accepted:
        text = run.id.removeprefix("r")
        assert rows[run.id] == run
        assert (run.error, run.result) == (text, {text: text})


# A batch of results that exceeds a packet, and one result that fills most of one.
async def test_large_results_are_stored(store: SqlStore) -> None:
    now = await store.now()
    await store.add_runs([a_run(available_at=now) for _ in range(12)])
    claimed = await store.claim(claim_request(free=100))
    large = {"value": "水" * 490_000 + '"\\\n' * 1000}
    completions = [replace(a_completion(run, now), result=large) for run in claimed]
    assert len(json.dumps(large, ensure_ascii=False).encode()) * len(completions) > 16 << 20
    assert len((await store.finish(completions)).accepted) == 12
    assert {len(str(run.result)) for run in (await all_runs(store)).values()} == {len(str(large))}


async def test_distant_times_are_exact(store: SqlStore) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    schedules = [
        a_schedule(next_slot=last - timedelta(microseconds=number), next_run_at=last)
        for number in range(3)
    ]
    for schedule in schedules:
        await store.add_schedule(schedule)
        assert await store.get_schedule(schedule.id) == schedule


def test_packets_contain_all_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_PACKET", 10)
    rows = ["1234", "123456", "1", "x" * 10, "12", "1234567", "1"]
    packets = [list(some) for some in mariadb._packets(rows)]
    assert packets == [["1234", "123456"], ["1"], ["x" * 10], ["12", "1234567", "1"]]
    assert list(mariadb._packets(["a"])) == [["a"]]
    assert list(mariadb._packets([])) == []
