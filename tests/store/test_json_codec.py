"""Codec of model values to plain JSON data, with errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes.clock import to_micros
from chimes.errors import InvalidInput
from chimes.model.access import Role
from chimes.model.run import LogEntry
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    key_from_plain,
    key_to_plain,
    log_from_plain,
    log_to_plain,
    run_from_plain,
    run_to_plain,
)
from chimes.store.codec.values import (
    Reader,
    moment,
    schedule_from_plain,
    schedule_to_plain,
    to_text,
)
from tests.builders import (
    FLOW,
    NOW,
    TASK,
    a_key,
    a_run,
    a_schedule,
    an_entry,
    full_run,
    full_schedule,
)
from tests.tables import each_row


@pytest.mark.parametrize(
    ("value", "to_plain", "from_plain"),
    [
        (a_schedule(), schedule_to_plain, schedule_from_plain),
        (full_schedule(), schedule_to_plain, schedule_from_plain),
        (a_schedule(target=TASK), schedule_to_plain, schedule_from_plain),
        (a_schedule(target=FLOW), schedule_to_plain, schedule_from_plain),
        (a_run(), run_to_plain, run_from_plain),
        (a_run(result={}), run_to_plain, run_from_plain),
        (full_run(), run_to_plain, run_from_plain),
        (an_entry(), audit_to_plain, audit_from_plain),
        (a_key(), key_to_plain, key_from_plain),
        (a_key(role=Role.ADMIN, expires_at=NOW, last_used_at=NOW), key_to_plain, key_from_plain),
        (LogEntry(at=NOW, message="x", level="error", number=3), log_to_plain, log_from_plain),
    ],
)
def test_json_round_trip(
    value: object, to_plain: Callable[[Any], object], from_plain: Callable[[object], object]
) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(value)))) == value


def rejected(how: Callable[[], object]) -> tuple[str | None, str]:
    with pytest.raises(InvalidInput) as caught:
        how()
    return caught.value.field, caught.value.code


@each_row(
    ("path", "value", "field"),
    [
        ("nonsense", 1, "nonsense"),
        ("name", 5, "name"),
        ("enabled", "yes", "enabled"),
        ("priority", 1.5, "priority"),
        ("priority", True, "priority"),
        ("labels", ["a"], "labels"),
        ("created_at", "yesterday", "created_at"),
        ("created_at", 12, "created_at"),
        ("created_at", "2030-01-01T00:00:00", "created_at"),
        ("created_at", "0001-01-01T00:00:00+14:00", "created_at"),
        ("policy.misfire", "maybe", "policy"),
        ("policy.nonsense", 1, "policy.nonsense"),
        ("policy.timeout", 10**40, "policy"),
        ("target.kind", "carrier pigeon", "target.kind"),
        ("target.url", None, "target.url"),
        ("target.expected_status", [True], "target"),
        ("target", None, "target"),
        ("owner.type", "nobody", "owner"),
    ],
)
def test_invalid_data_is_rejected_with_its_field(path: str, value: object, field: str) -> None:
    plain = json.loads(json.dumps(schedule_to_plain(full_schedule())))
    *outer, last = path.split(".")
    inner = plain
    for name in outer:
        inner = inner[name]
    inner[last] = value
    assert rejected(lambda: schedule_from_plain(plain))[0] == field


def test_old_rows_without_newer_fields_load() -> None:
    plain = schedule_to_plain(a_schedule())
    bare = {name: plain[name] for name in ("id", "trigger", "target", "created_at", "updated_at")}
    schedule = schedule_from_plain({**bare, "policy": {}})
    assert (schedule.namespace, schedule.enabled, schedule.version) == ("default", True, 1)
    assert schedule.labels == {}
    assert schedule.depends_on is None


def test_only_objects_are_accepted() -> None:
    for given in (None, [], "text", 3):
        with pytest.raises(InvalidInput, match="expected an object"):
            Reader(given)


def test_missing_field_is_named() -> None:
    assert rejected(lambda: Reader({}).text("name")) == ("name", "missing")


def test_times_keep_microseconds() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert to_micros(last) == 253402300799999999
    assert to_text(NOW + timedelta(microseconds=1)) == "2030-01-15T09:00:00.000001Z"
    assert moment("2030-01-15T11:00:00+02:00") == NOW
    assert rejected(lambda: moment("2030-01-15T09:00:00")) == (None, "naive_time")
