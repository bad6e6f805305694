"""Triggers as values: equality, dicts, bounds and invalid input."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from datetime import datetime, timedelta
from time import process_time

import pytest
from cron_oracle import utc

import chimes.triggers
from chimes.errors import InvalidTrigger
from chimes.triggers import Cron, Every, Once, trigger_from_dict
from tests.tables import each_row

BOUNDS = {
    "start_at": "2026-01-01T00:00:00Z",
    "end_at": "2027-01-01T00:00:00Z",
    "max_runs": 5,
    "exclude": [
        {"dates": ["2026-12-25"]},
        {"holidays": "US-NY", "on_excluded": "previous"},
        {"weekly": [{"days": ["SUN", "SAT"], "from": "00:00", "to": "24:00"}]},
    ],
}
DICTS = [
    {"kind": "cron", "expression": "0 9 * * *"},
    {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"} | BOUNDS,
    {"kind": "cron", "expression": "0 0 9 ? * MON", "dialect": "quartz", "dst": "vixie"},
    {
        "kind": "cron",
        "expression": "CRON_TZ=Asia/Tokyo @every 5m",
        "anchor": "2026-01-01T00:00:00Z",
    },
    {"kind": "every", "every": "PT5M"},
    {"kind": "every", "every": "PT1H30M", "anchor": "2026-01-01T00:00:00.5Z", "jitter": "PT5S"}
    | BOUNDS,
    {"kind": "once", "at": "2030-02-10T09:00:00", "timezone": "Asia/Bangkok"},
    {"kind": "once", "at": "2030-02-10T02:00:00Z"} | BOUNDS,
]


@pytest.mark.parametrize("given", DICTS, ids=lambda each: str(each["kind"]))
def test_trigger_round_trips_through_a_dict(given: dict[str, object]) -> None:
    trigger = trigger_from_dict(given)
    written = trigger.to_dict()
    assert trigger_from_dict(json.loads(json.dumps(written))) == trigger
    if given.get("anchor") != "2026-01-01T00:00:00.5Z":
        assert written == given
    else:
        assert written == given | {"anchor": "2026-01-01T00:00:00.500000Z"}


@pytest.mark.parametrize("given", DICTS, ids=lambda each: str(each["kind"]))
def test_triggers_are_frozen_values(given: dict[str, object]) -> None:
    one, other = trigger_from_dict(given), trigger_from_dict(given)
    assert one == other
    assert hash(one) == hash(other)
    assert one is not other
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one
    assert replace(one, max_runs=7) != one
    assert replace(one, max_runs=7).max_runs == 7
    with pytest.raises(FrozenInstanceError):
        one.max_runs = 5
    assert not hasattr(one, "__dict__")
    assert eval(repr(one).split("(")[0]).__name__ == type(one).__name__


def test_equal_triggers_compare_equal() -> None:
    assert Cron(" 0  9 * * * ") == Cron("0 9 * * *")
    assert Every("90s") == Every(timedelta(seconds=90)) == Every("PT1M30S")
    assert Cron("0 9 * * *") != Every("90s")
    assert Cron("0 9 * * *", start_at=utc(2026, 1, 1)) == Cron(
        "0 9 * * *", start_at="2026-01-01T07:00:00+07:00"
    )


def test_local_bounds_are_in_the_zone_of_the_trigger() -> None:
    trigger = Cron("0 9 * * *", timezone="Asia/Bangkok", start_at="2026-01-01T00:00:00")
    assert trigger.start_at == utc(2025, 12, 31, 17)


@pytest.mark.parametrize(
    "trigger",
    [
        Cron("0 * * * *", start_at=utc(2026, 1, 1, 3), end_at=utc(2026, 1, 1, 5)),
        Every("1h", start_at=utc(2026, 1, 1, 3), end_at=utc(2026, 1, 1, 5)),
    ],
    ids=["cron", "every"],
)
def test_bounds_are_inclusive(trigger: Cron | Every) -> None:
    fires = trigger.fires(utc(2025, 1, 1), 9)
    assert [fire.at.hour for fire in fires] == [3, 4, 5]
    assert trigger.previous_before(utc(2030, 1, 1)) == utc(2026, 1, 1, 5)
    assert trigger.previous_before(utc(2026, 1, 1, 4, 30)) == utc(2026, 1, 1, 4)
    assert trigger.previous_before(utc(2026, 1, 1, 3)) is None
    assert trigger.next_after(utc(2026, 1, 1, 5)) is None
    assert trigger.fires(utc(2025, 1, 1), 0) == []
    assert len(trigger.fires(utc(2025, 1, 1), 2)) == 2


def test_once_out_of_bounds() -> None:
    trigger = Once("2030-02-10T02:00:00Z", end_at=utc(2029, 1, 1))
    assert trigger.next_after(utc(2026, 1, 1)) is None
    assert trigger.previous_before(utc(2031, 1, 1)) is None


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 5, None])  # noqa: DTZ001
def test_times_must_be_aware(moment: object) -> None:
    for trigger in (Cron("0 9 * * *"), Every("5m", jitter="1s"), Once("2030-02-10T02:00:00Z")):
        for ask in (trigger.next_after, trigger.previous_before, trigger.anchored):
            with pytest.raises(InvalidTrigger):
                ask(moment)
    with pytest.raises(InvalidTrigger) as caught:
        Every("5m", jitter="1s").jitter_for("id", moment)
    assert caught.value.field == "slot"


MINUTELY = {"kind": "cron", "expression": "* * * * *"}


@each_row(
    ("given", "field", "code"),
    [
        (None, None, "wrong_type"),
        ([], None, "wrong_type"),
        ("cron", None, "wrong_type"),
        ({}, "kind", "missing_key"),
        ({"kind": 5}, "kind", "missing_key"),
        ({"kind": ["cron"]}, "kind", "missing_key"),
        ({"kind": "crom"}, "kind", "unknown_kind"),
        ({"kind": "cron"}, "expression", "missing_key"),
        ({"kind": "every"}, "every", "missing_key"),
        ({"kind": "once"}, "at", "missing_key"),
        ({"kind": "cron", "expression": 5}, "expression", "wrong_type"),
        ({"kind": "cron", "expression": None}, "expression", "wrong_type"),
        (MINUTELY | {"timezon": "UTC"}, "timezon", "unknown_key"),
        (MINUTELY | {"timezone": 7}, "timezone", "wrong_type"),
        (MINUTELY | {"timezone": None}, "timezone", "wrong_type"),
        (MINUTELY | {"dialect": "perl"}, "dialect", "bad_choice"),
        (MINUTELY | {"dialect": []}, "dialect", "wrong_type"),
        (MINUTELY | {"dst": "vixi"}, "dst", "bad_choice"),
        (MINUTELY | {"anchor": "2026-01-01T00:00:00Z"}, "anchor", "unknown_key"),
        (MINUTELY | {"max_runs": 0}, "max_runs", "out_of_range"),
        (MINUTELY | {"max_runs": True}, "max_runs", "wrong_type"),
        (MINUTELY | {"max_runs": 1.5}, "max_runs", "wrong_type"),
        (MINUTELY | {"max_runs": 2**60}, "max_runs", "out_of_range"),
        (MINUTELY | {"start_at": 5}, "start_at", "wrong_type"),
        (MINUTELY | {"start_at": "9999-01-01T00:00:00Z"}, "start_at", "out_of_range"),
        (MINUTELY | {"start_at": "soon"}, "start_at", "bad_moment"),
        (
            {
                "kind": "every",
                "every": "5m",
                "start_at": "2027-01-01T00:00:00Z",
                "end_at": "2026-01-01T00:00:00Z",
            },
            "end_at",
            "out_of_range",
        ),
        ({"kind": "every", "every": 300}, "every", "wrong_type"),
        ({"kind": "every", "every": "5m", 5: 5}, "5", "unknown_key"),
        ({"kind": "every", "every": "5m", "timezone": "UTC"}, "timezone", "unknown_key"),
        ({"kind": "once", "at": {}}, "at", "wrong_type"),
        ({"kind": "cron", "expression": "@every 0s"}, "expression", "out_of_range"),
        ({"kind": "cron", "expression": "@every Xm"}, "expression", "bad_duration"),
    ],
)  # fmt: skip
def test_invalid_dicts_are_rejected(given: object, field: str | None, code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict(given)
    assert (caught.value.field, caught.value.code) == (field, code)
    assert caught.value.message


def test_hints_name_the_nearest_key() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict({"kind": "cron", "expression": "* * * * *", "timezon": "UTC"})
    assert caught.value.hint == "did you mean timezone?"
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict({"kind": "evry", "every": "5m"})
    assert caught.value.hint == "did you mean every?"


BAD_EXPRESSIONS = [
    "",
    "   ",
    "x" * 10_000,
    ",".join(["1"] * 2000) + " * * * *",
    "0-59/1," * 2000 + " * * * *",
    "*/0 * * * *",
    "1-99999999 * * * *",
    "@reboot",
    "@every",
    "@every ",
    "@hourly 5",
    "🕐 * * * *",
    "٣ * * * *",
    "* * * *",
    "* * * * * * * *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 32 * *",
    "* * * 0 *",
    "* * * 13 *",
    "* * * * 8",
    "* * * FOO *",
    "* * * * JAN",
    "JAN * * * *",
    "*/60 * * * *",
    "* * * * */8",
    "*-5 * * * *",
    "-5 * * * *",
    "5- * * * *",
    "5-6-7 * * * *",
    "/5 * * * *",
    "5/ * * * *",
    "*/5/5 * * * *",
    "1,,2 * * * *",
    ",1 * * * *",
    "? * * * *",
    "* ? * * *",
    "* * ?/2 * *",
    "* * 1,? * *",
    "L * * * *",
    "* * 0W * *",
    "* * 32W * *",
    "* * 1-5W * *",
    "* * WL * *",
    "* * L-31 * *",
    "* * L-2,99 * *",
    "* * * * 1#0",
    "* * * * 1#6",
    "* * * * 8#1",
    "* * * * 8L",
    "* * * * 5,L",
    "* * * * FOOL",
    "* * * * FOO#1",
    "0 0 0 ? * ? *",
    "0 0 0 1 * 2 *",
    "0 0 0 1 * ? 1969",
    "0 0 0 1 * ? 2200",
    "0 0 0 1 * ? 2030-2020",
    "0 0 0 1 * ? */230",
    "0 0 0 ? * 0 *",
    "CRON_TZ=Asia/Tokyo",
    "TZ= * * * * *",
    "TZ=Nowhere * * * * *",
    "TZ=../../etc/passwd * * * * *",
]


@each_row("expression", BAD_EXPRESSIONS, ids=lambda text: text[:20])
def test_invalid_expressions_are_rejected_quickly(expression: str) -> None:
    start = process_time()
    with pytest.raises(InvalidTrigger) as caught:
        Cron(expression)
    assert caught.value.code
    # Generous: a search through years would take far longer.
    assert process_time() - start < 2
    assert caught.value.field == "expression"
    assert caught.value.code != "invalid"
    assert 10 < len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("expression", "dialect"),
    [
        ("* * * * * *", "unix"),
        ("* * * * *", "seconds"),
        ("0 0 0 ? * * *", "seconds"),
        ("* * * * *", "quartz"),
        ("0 0 0 * * *", "quartz"),
        ("0 0 0 1 * *", "quartz"),
        ("0 0 0 * * 2", "quartz"),
        ("0 0 0 ? * 8", "quartz"),
        ("0 0 0 ? * ?", "quartz"),
        ("0 0 0 ? * 5-6,L", "quartz"),
    ],
)
def test_expressions_invalid_in_their_dialect(expression: str, dialect: str) -> None:
    with pytest.raises(InvalidTrigger):
        Cron(expression, dialect=dialect)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["* * * * *"]])
def test_expression_must_be_text(expression: object) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Cron(expression)
    assert (caught.value.field, caught.value.code) == ("expression", "wrong_type")


def test_message_names_field_value_and_range() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        Cron("61 * * * *")
    assert caught.value.message == (
        "The minute field '61' is wrong: 61 is out of range; allowed are 0–59"
    )
    with pytest.raises(InvalidTrigger) as caught:
        Cron("0 0 * * FRY")
    assert caught.value.message == (
        "The day-of-week field 'FRY' is wrong: 'FRY' is not a name; allowed are 0–7 or SUN…SAT"
    )


def test_exported_names() -> None:
    for name in chimes.triggers.__all__:
        assert getattr(chimes.triggers, name) is not None
    assert isinstance(Cron("0 9 * * *"), chimes.triggers.Trigger)


def test_package_imports_no_heavy_modules() -> None:
    code = "import sys, chimes.triggers; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"holidays", "tzdata", "zoneinfo", "difflib", "hashlib", "json", "asyncio", "pydantic"}
    assert not heavy & set(done.stdout.split())
