"""Cron against the fire times in vectors/: an independent oracle, robfig/cron and Quartz."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron
from tests.tables import each_row

HERE = Path(__file__).parent / "vectors"

# A day field that starts with `*` must match together with the other day field. robfig/cron treats
# a field with a step as restricted and lets either of the two match.
BOTH_DAY_FIELDS = {"* * */10 * Sun", "0 0 0 */5 Apr,Aug,Oct Mon"}

Row = dict[str, object]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def label(row: Row) -> str:
    return f"{row['expr']} {row.get('zone', '')} {row.get('start', row.get('moment', ''))}"


def check_walk(trigger: Cron, row: Row) -> None:
    expected = [datetime.fromisoformat(text) for text in row["expected"]]
    start = at = datetime.fromisoformat(row["start"])
    found = []
    for _ in expected or [None]:
        at = trigger.next_after(at)
        if at is None:
            break
        found.append(at)
    assert found == expected
    for earlier, later in pairwise(found):
        assert trigger.previous_before(later) == earlier
    if found:
        before = trigger.previous_before(found[0])
        assert before is None or before <= start


@each_row("row", rows("oracle_sample.jsonl"), ids=label)
def test_cron_matches_the_oracle_vectors(row: Row) -> None:
    check_walk(Cron(row["expr"], timezone=row["zone"]), row)


@each_row("row", rows("quartz_tests.jsonl"), ids=label)
def test_cron_matches_the_quartz_vectors(row: Row) -> None:
    if row.get("invalid"):
        with pytest.raises(InvalidTrigger):
            Cron(row["expr"], dialect="quartz")
    else:
        check_walk(Cron(row["expr"], timezone=row["zone"], dialect="quartz"), row)


@each_row("row", rows("robfig.jsonl"), ids=label)
def test_cron_matches_the_robfig_vectors(row: Row) -> None:
    if row.get("invalid"):
        with pytest.raises(InvalidTrigger):
            Cron(row["expr"])
        return
    # Rows with an offset test the wall clock; this zone has that offset.
    zone = "Asia/Kolkata" if row.get("zone") == "offset" else row.get("zone")
    trigger = Cron(row["expr"], timezone=zone, dst=row.get("dst_policy", "chimes"))
    if "matches" in row:
        moment = datetime.fromisoformat(row["moment"])
        fires = trigger.next_after(moment - timedelta(seconds=1)) == moment
        assert fires is (row["matches"] and row["expr"] not in BOTH_DAY_FIELDS)
    elif row["expr"] in BOTH_DAY_FIELDS:
        assert trigger.next_after(datetime.fromisoformat(row["start"])) == datetime.fromisoformat(
            "2012-08-06T00:00:00+00:00"  # the first Monday that is a */5 day
        )
    elif "expected" in row:
        check_walk(trigger, row)
    else:
        assert row["valid"]
