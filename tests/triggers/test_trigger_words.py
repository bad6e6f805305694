"""Durations, moments and zones as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import process_time

import pytest
from cron_oracle import utc, zone_info
from hypothesis import given
from hypothesis import strategies as st

from chimes.errors import InvalidTrigger
from chimes.triggers import (
    format_duration_go,
    format_duration_iso,
    format_moment,
    parse_duration,
    parse_moment,
    parse_zone,
    zone_names,
)
from chimes.triggers.zones import Transitions, _rule_day
from tests.examples import examples
from tests.tables import each_row

SECOND = timedelta(seconds=1)


@each_row(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("5m0s", 300),
        (".5s", 0.5),
        ("1.s", 1),
        ("3000ns", 0.000003),
        ("10us", 0.00001),
        ("10µs", 0.00001),
        ("10μs", 0.00001),
        ("+90s", 90),
        (" 90s ", 90),
        ("PT1H30M", 5400),
        ("P1DT2H", 93600),
        ("P1W", 604800),
        ("PT0.25S", 0.25),
        ("PT1,5S", 1.5),
        ("pt5m", 300),
        ("P1D", 86400),
    ],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@each_row(
    ("text", "code"),
    [
        ("", "bad_duration"),
        ("5", "bad_duration"),
        ("1d", "bad_duration"),
        ("5 m", "bad_duration"),
        ("Xm", "bad_duration"),
        ("1h-5m", "bad_duration"),
        ("P", "bad_duration"),
        ("PT", "bad_duration"),
        ("P1M", "bad_duration"),
        ("P1Y", "bad_duration"),
        ("1500ns", "bad_duration"),
        ("٣s", "bad_duration"),
        ("9" * 60 + "h", "out_of_range"),
        ("9" * 70 + "h", "too_long"),
        ("0s", "out_of_range"),
        ("-1s", "out_of_range"),
        (5, "wrong_type"),
        (None, "wrong_type"),
        (timedelta(-1), "out_of_range"),
    ],
)
def test_invalid_durations_are_rejected(text: object, code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_duration(text, field="grace")
    assert (caught.value.code, caught.value.field) == (code, "grace")
    assert "grace" in caught.value.message


@pytest.mark.parametrize(("text", "word"), [("5", "5m"), ("1d", "24h"), ("P1M", "cron")])
def test_invalid_duration_has_a_hint(text: str, word: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_duration(text)
    assert word in caught.value.hint


def test_zero_and_negative_durations_if_allowed() -> None:
    assert parse_duration("0", allow_zero=True) == timedelta(0)
    assert parse_duration("-5s", allow_negative=True) == -5 * SECOND


@pytest.mark.parametrize(
    ("value", "iso", "go"),
    [
        (timedelta(hours=1, minutes=30), "PT1H30M", "1h30m0s"),
        (timedelta(minutes=5), "PT5M", "5m0s"),
        (timedelta(milliseconds=250), "PT0.25S", "250ms"),
        (timedelta(microseconds=1500), "PT0.0015S", "1.5ms"),
        (timedelta(microseconds=15), "PT0.000015S", "15µs"),
        (timedelta(seconds=1.5), "PT1.5S", "1.5s"),
        (timedelta(days=1, hours=2), "P1DT2H", "26h0m0s"),
        (timedelta(days=1), "P1D", "24h0m0s"),
        (timedelta(0), "PT0S", "0s"),
        (-90 * SECOND, "-PT1M30S", "-1m30s"),
    ],
)
def test_format_duration(value: timedelta, iso: str, go: str) -> None:
    assert format_duration_iso(value) == iso
    assert format_duration_go(value) == go


@given(st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)))
def test_duration_round_trip(value: timedelta) -> None:
    for text in (format_duration_iso(value), format_duration_go(value)):
        assert parse_duration(text, allow_zero=True, allow_negative=True) == value


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2030-02-10T09:00:00Z", None, utc(2030, 2, 10, 9)),
        ("2030-02-10t09:00:00z", None, utc(2030, 2, 10, 9)),
        ("2030-02-10 09:00:00+0700", None, utc(2030, 2, 10, 2)),
        ("2030-02-10T09:00:00.123456789-03:30", None, utc(2030, 2, 10, 12, 30, 0, 123456)),
        ("2030-02-10T09:00:00+07:00[Asia/Bangkok]", None, utc(2030, 2, 10, 2)),
        ("2030-02-10T09:00:00Z[!Asia/Bangkok]", None, utc(2030, 2, 10, 9)),
        ("2030-02-10T09:00:00[Asia/Bangkok]", None, utc(2030, 2, 10, 2)),
        ("2030-02-10T09:00", "Asia/Bangkok", utc(2030, 2, 10, 2)),
        ("2030-02-10T09:00", parse_zone("Asia/Bangkok"), utc(2030, 2, 10, 2)),
        ("2030-02-10T09:00[Asia/Bangkok]", "Asia/Bangkok", utc(2030, 2, 10, 2)),
    ],
)
def test_parse_moment(text: str, zone: object, expected: datetime) -> None:
    assert parse_moment(text, zone) == expected
    assert parse_moment(text, zone).tzinfo is UTC


@each_row(
    ("text", "zone", "code"),
    [
        ("2030-02-10T09:00:00", None, "no_zone"),
        ("2030-02-10T09:00:60Z", None, "leap_second"),
        ("2030-02-10T24:00:00Z", None, "bad_moment"),
        ("2030-02-10", None, "bad_moment"),
        ("tomorrow", None, "bad_moment"),
        ("2030-02-10T09:00:00Z" + " " * 200, None, "bad_moment"),
        ("2030-02-10T09:00:00+24:00", None, "bad_moment"),
        ("2030-02-10T09:00:00[Asia/Tokyo]", "Asia/Bangkok", "zone_mismatch"),
        ("2030-02-10T09:00:00+07:00[Asia/Tokyo]", None, "offset_mismatch"),
        ("2030-02-10T09:00:00[Mars/Base]", None, "unknown_zone"),
        ("9999-01-01T00:00:00Z", None, "out_of_range"),
        ("9998-12-31T23:00:00-05:00", None, "out_of_range"),
        ("1969-01-01T00:00:00Z", None, "out_of_range"),
        (20300210, None, "wrong_type"),
    ],
)
def test_invalid_moments_are_rejected(text: object, zone: str | None, code: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_moment(text, zone)
    assert (caught.value.code, caught.value.field) == (code, "at")


def test_format_moment() -> None:
    assert format_moment(utc(2030, 2, 10, 9)) == "2030-02-10T09:00:00Z"
    assert format_moment(utc(2030, 2, 10, 9, 0, 0, 5)) == "2030-02-10T09:00:00.000005Z"


@each_row(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "Europe/Moscow\0",
        "posixrules",
        "localtime",
        "Factory",
        "x" * 5000,
        "",
        "+07:00",
        "UTC+7",
        "7",
        "Z",
        "EST5EDT4",
        "Asia/Bangkock",
        "asia/bangkok",
        None,
        7,
    ],
)
def test_invalid_zones_are_rejected_quickly(name: object) -> None:
    start = process_time()
    with pytest.raises(InvalidTrigger) as caught:
        parse_zone(name)
    assert process_time() - start < 0.5
    assert caught.value.field == "timezone"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Asia/Bangkock", "did you mean Asia/Bangkok?"),
        ("asia/bangkok", "did you mean Asia/Bangkok?"),
        ("Bangkok", "did you mean Asia/Bangkok?"),
        ("Z", "did you mean UTC?"),
        ("nothing like it", None),
    ],
)
def test_unknown_zone_has_a_hint(name: str, hint: str | None) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_zone(name)
    assert caught.value.hint == hint


@pytest.mark.parametrize("name", ["+07:00", "UTC+7", "GMT-3", "7"])
def test_offset_as_zone_is_rejected_with_a_hint(name: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_zone(name)
    assert "IANA" in caught.value.hint


def test_zones_are_cached() -> None:
    assert parse_zone("Asia/Tokyo") is parse_zone("Asia/Tokyo")
    assert repr(parse_zone("Asia/Tokyo")) == "Zone('Asia/Tokyo')"
    assert len(zone_names()) > 590


@examples(300)
@given(st.sampled_from(sorted(zone_names())), st.integers(0, 7 * 10**9))
def test_offsets_match_zoneinfo(name: str, second: int) -> None:
    moment = datetime.fromtimestamp(second, UTC).astimezone(zone_info(name))
    assert parse_zone(name).offset_at(second) == moment.utcoffset() // SECOND


@examples(200)
@given(st.sampled_from(sorted(zone_names())), st.data())
def test_offsets_match_zoneinfo_at_each_change(name: str, data: st.DataObject) -> None:
    changes = parse_zone(name).near.instants
    if changes:
        change = data.draw(st.sampled_from(changes))
        for second in (change - 1, change):
            moment = datetime.fromtimestamp(second, UTC).astimezone(zone_info(name))
            assert parse_zone(name).offset_at(second) == moment.utcoffset() // SECOND


@pytest.mark.parametrize(
    ("rule", "year", "expected"),
    [
        ("M3.2.0", 2026, utc(2026, 3, 8)),
        ("M10.5.0", 2026, utc(2026, 10, 25)),
        ("M12.5.0", 2026, utc(2026, 12, 27)),
        ("J60", 2024, utc(2024, 3, 1)),
        ("J60", 2026, utc(2026, 3, 1)),
        ("J59", 2024, utc(2024, 2, 28)),
        ("59", 2024, utc(2024, 2, 29)),
        ("0", 2026, utc(2026, 1, 1)),
    ],
)
def test_posix_rule_days(rule: str, year: int, expected: datetime) -> None:
    assert utc(1970, 1, 1) + timedelta(days=_rule_day(rule)(year)) == expected


def test_posix_rule_with_all_parts() -> None:
    body = b"TZif2" + bytes(15)
    counts = (0, 0, 0, 0, 1, 4)
    block = body + b"".join(count.to_bytes(4, "big") for count in counts)
    block += (3600).to_bytes(4, "big") + b"\0\0" + b"LMT\0"
    data = block + block + b"\nAAA-1:30BBB-2:00:30,M3.2.0/1:30,J300/-2\n"
    changes = Transitions(data, 1971)
    assert changes.offsets == [3600, 7230, 5400, 7230, 5400]
    assert changes.instants[0] == int(utc(1970, 3, 8).timestamp())
    assert changes.instants[1] == int(utc(1970, 10, 26, 22).timestamp()) - 7230
