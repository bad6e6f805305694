"""Filter grammar of search box, URL and chips."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, RunStatus
from chimes.services.filters import (
    RUN_NAMES,
    SCHEDULE_NAMES,
    Chip,
    Filter,
    read_filter,
    run_filter,
    schedule_filter,
)

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
ANNA = Actor(owner=Owner(type=OwnerType.USER, id="anna"))


def test_example_filter_of_the_page_is_parsed() -> None:
    text = "label:billing=eu kind:http owner:me status:paused next:<1h nightly"
    found = schedule_filter(
        read_filter(text, SCHEDULE_NAMES), ANNA, NOW, ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT)
    )
    assert found.query == ScheduleQuery(
        owner=ANNA.owner,
        text="nightly",
        enabled=False,
        kind="http",
        label="billing",
        label_value="eu",
        due_by=NOW + timedelta(hours=1),
        sort=ScheduleSort.NEXT_RUN_AT,
    )
    assert found.filter.errors == ()
    assert found.filter.text == text


def test_run_filter_with_several_statuses_and_a_start_time() -> None:
    text = "status:failed status:timeout origin:manual node:n1 schedule:abc since:24h boom"
    found = run_filter(read_filter(text, RUN_NAMES), ANNA, NOW)
    assert found.query == RunQuery(
        statuses=(RunStatus.FAILED, RunStatus.TIMEOUT),
        origin=Origin.MANUAL,
        holder=found.query.holder,
        schedule_id=found.query.schedule_id,
        since=NOW - timedelta(hours=24),
    )
    assert (found.query.holder, found.query.schedule_id) == ("n1", "abc")
    assert found.text == "boom"


@pytest.mark.parametrize(
    "text", ["status:purple", "origin:moon", "owner:anna", "since:soon", "status:"]
)
def test_invalid_filter_part_is_reported_and_ignored(text: str) -> None:
    found = run_filter(read_filter(text, RUN_NAMES), ANNA, NOW)
    if text == "status:":
        # A name without a value is plain text.
        assert found.text == "status:"
        return
    assert found.query == RunQuery()
    assert found.filter.errors[0].startswith(text)


def test_unknown_condition_is_reported_with_the_nearest_name() -> None:
    found = schedule_filter(read_filter("staus:failed label:x", SCHEDULE_NAMES), ANNA, NOW)
    assert found.query == ScheduleQuery(label="x")
    assert found.filter.text == "staus:failed label:x"
    assert found.filter.errors == (
        "staus:failed: this list has no condition staus. Did you mean status?",
    )
    (other,) = read_filter("zzz:1", RUN_NAMES).errors
    assert f"only {', '.join(RUN_NAMES)}" in other
    assert "in quotes" in other
    assert read_filter('"zzz:1" http://a 12:30 Report:', RUN_NAMES).errors == ()
    # The same name can be a condition of one list only.
    assert read_filter("since:1h", RUN_NAMES).errors == ()
    assert read_filter("since:1h", SCHEDULE_NAMES).errors


def test_filter_words_with_spaces_and_colons_are_quoted() -> None:
    found = read_filter('label:"big one" "a b" http://x', SCHEDULE_NAMES)
    assert found.chips == (Chip("label", "big one"), Chip("", "a b"), Chip("", "http://x"))
    assert read_filter(found.text, SCHEDULE_NAMES) == found


def test_repeated_words_are_kept_and_repeated_conditions_are_not() -> None:
    found = schedule_filter(read_filter("a b a label:x label:x", SCHEDULE_NAMES), ANNA, NOW)
    assert (found.query.text, found.filter.text) == ("a b a", "a b a label:x")


def test_chips_are_removed_and_replaced_in_the_url() -> None:
    found = read_filter("status:failed label:x", (*RUN_NAMES, "label"))
    assert found.without(Chip("status", "failed")).address("/ui/runs") == "/ui/runs?q=label%3Ax"
    assert found.with_chip(Chip("status", "missed")).text == "label:x status:missed"
    assert Filter().address("/ui/runs") == "/ui/runs"
    address = found.address("/ui/runs", sort="name")
    assert parse_qs(urlsplit(address).query) == {"q": [found.text], "sort": ["name"]}


@given(st.text(max_size=600))
def test_any_text_round_trips_as_a_filter(text: str) -> None:
    found = read_filter(text, SCHEDULE_NAMES)
    schedule_filter(found, ANNA, NOW)
    again = read_filter(found.text, SCHEDULE_NAMES)
    if len(found.text) <= 500 and '"' not in text:
        assert again.chips == found.chips
