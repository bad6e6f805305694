"""RRule against python-dateutil and brute force."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from dateutil.rrule import rrulestr

from chimes import RRule
from chimes.errors import InvalidTrigger
from chimes.triggers import Trigger, trigger_from_dict
from chimes.triggers.values import place
from chimes.triggers.zones import parse_zone
from tests.tables import each_row

STEP = timedelta(microseconds=1)
ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Chatham",
    "America/Santiago",
    "Asia/Bangkok",
)


SUB_DAILY = ("HOURLY", "MINUTELY", "SECONDLY")


def fires(trigger: Trigger, after: datetime, count: int) -> list[datetime]:
    return [fire.at for fire in trigger.fires(after, count)]


def check_inverse(trigger: Trigger, found: list[datetime]) -> None:
    """`previous_before` undoes `next_after`, also between the fires."""
    for one, other in pairwise(found):
        assert trigger.previous_before(other) == one, (one, other)
        middle = one + (other - one) / 2
        assert trigger.next_after(middle) == other
        assert trigger.previous_before(middle + STEP) == one
        assert trigger.previous_before(one + STEP) == one
    if len(found) > 1:
        assert trigger.count_between(found[0], found[-1]) == len(found)


class Rules:
    """Random rules that RFC 5545 allows and that dateutil understands as we do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, values: range, most: int = 3) -> str:
        chosen = self.random.sample(list(values), self.random.randint(1, min(most, len(values))))
        return ",".join(map(str, chosen))

    def signed(self, values: range, most: int = 3) -> str:
        chosen = self.some(values, most).split(",")
        return ",".join(self.random.choice(("", "-")) + each for each in chosen)

    def weekdays(self) -> str:
        names = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
        return ",".join(self.random.sample(names, self.random.randint(1, 5)))

    def numbered(self, most: int) -> str:
        terms = self.weekdays().split(",")[:3]
        numbers = [each for each in range(-most, most + 1) if each]
        return ",".join(f"{self.random.choice(numbers)}{each}" for each in terms)

    def likely(self, share: float) -> bool:
        return self.random.random() < share

    def rule(self, freq: str) -> str:
        parts = [f"FREQ={freq}"]
        if self.likely(0.5):
            parts.append(f"INTERVAL={self.random.choice((2, 3, 4, 5, 7, 10))}")
        if self.likely(0.25):
            parts.append(f"BYMONTH={self.some(range(1, 13), 5)}")
        if freq == "YEARLY":
            match self.random.randrange(6):
                case 0:
                    parts.append(f"BYWEEKNO={self.some(range(1, 53))}")
                    parts += [f"BYDAY={self.weekdays()}"] if self.likely(0.7) else []
                case 1:
                    parts.append(f"BYYEARDAY={self.signed(range(1, 367))}")
                case 2:
                    monthly = any(each.startswith("BYMONTH") for each in parts)
                    parts.append(f"BYDAY={self.numbered(4 if monthly else 40)}")
                case 3:
                    parts.append(f"BYMONTHDAY={self.signed(range(1, 32))}")
                case 4:
                    parts.append(f"BYDAY={self.weekdays()}")
                case _:
                    pass
        elif freq == "MONTHLY":
            if self.likely(0.4):
                parts.append(f"BYMONTHDAY={self.signed(range(1, 32), 5)}")
            if self.likely(0.4):
                by = self.numbered(5) if self.likely(0.5) else self.weekdays()
                parts.append(f"BYDAY={by}")
        elif self.likely(0.5):
            parts.append(f"BYDAY={self.weekdays()}")
        if freq not in ("YEARLY", "MONTHLY", "WEEKLY") and self.likely(0.2):
            parts.append(f"BYMONTHDAY={self.signed(range(1, 32), 9)}")
        if self.likely(0.3):
            parts.append(f"BYHOUR={self.some(range(24))}")
        if self.likely(0.3):
            parts.append(f"BYMINUTE={self.some(range(60))}")
        if self.likely(0.15):
            parts.append(f"BYSECOND={self.some(range(60))}")
        if self.likely(0.2) and any(each.startswith("BY") for each in parts):
            parts.append(f"BYSETPOS={self.signed(range(1, 5), 2)}")
        if self.likely(0.2):
            parts.append(f"WKST={self.random.choice(('SU', 'MO', 'WE'))}")
        if self.likely(0.2):
            parts.append(f"COUNT={self.random.randint(1, 40)}")
        elif self.likely(0.2):
            year, month = self.random.randint(2021, 2032), self.random.randint(1, 12)
            parts.append(f"UNTIL={year}{month:02d}15T120000")
        self.random.shuffle(parts)
        return ";".join(parts)

    def start(self) -> datetime:
        day = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=self.random.randrange(900))
        return day.replace(
            hour=self.random.randrange(24), minute=self.random.choice((0, 30, 59)), tzinfo=None
        )


def expected(rule: str, start: datetime, count: int) -> list[datetime] | None:
    """The first fires as naive wall times; None if dateutil does not find as many soon: it would
    go on to the year 9999."""
    parts = dict(each.split("=") for each in rule.split(";"))
    ends = start + timedelta(days=365 * (2 if parts["FREQ"] in SUB_DAILY else 40))
    most = min(count, int(parts.pop("COUNT", count)))
    known_end = parts.get("UNTIL")
    parts["UNTIL"] = min(known_end or "9", f"{ends:%Y%m%dT%H%M%S}")
    text = ";".join(f"{key}={value}" for key, value in parts.items())
    try:
        known: Any = rrulestr(f"RRULE:{text}", dtstart=start)
    except ValueError:
        # Nothing ever matches.
        return None
    found = list(islice(known, most))
    return found if len(found) == most or parts["UNTIL"] == known_end else None


def compare(freq: str, seed: int, count: int = 12) -> bool:
    """Whether the rule was compared, in a zone without clock changes and, if it is daily or rarer,
    in one with them."""
    rules = Rules(seed)
    rule, start = rules.rule(freq), rules.start()
    if freq in SUB_DAILY and ("BYMONTHDAY" in rule or "BYSETPOS" in rule):
        # Rare coincidences are for brute force.
        return False
    walls = expected(rule, start, count)
    if walls is None:
        return False
    plain = RRule(rule, dtstart=start, timezone="UTC")
    wanted = [each.replace(tzinfo=UTC) for each in walls]
    before = start.replace(tzinfo=UTC) - timedelta(days=1)
    assert fires(plain, before, count) == wanted, rule
    check_inverse(plain, wanted)
    if freq not in SUB_DAILY:
        zone = rules.random.choice(ZONES)
        local = RRule(rule, dtstart=start, timezone=zone)
        placed = sorted({place(each, parse_zone(zone))[0] for each in walls})
        assert fires(local, before, len(placed)) == placed, (rule, zone)
        check_inverse(local, placed)
        assert trigger_from_dict(local.to_dict()) == local
    return True


@pytest.mark.parametrize(
    "freq", ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
)
def test_rules_fire_as_in_dateutil(freq: str) -> None:
    compared = sum(compare(freq, seed) for seed in range(45))
    assert compared > 12


@each_row(
    ("rule", "dtstart", "zone", "after", "wanted"),
    [
        # A lost time fires at the change, a repeated one the first time only.
        (
            "FREQ=DAILY",
            "2026-03-06T02:30:00",
            "America/New_York",
            "2026-03-07T00:00:00Z",
            ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            "FREQ=DAILY",
            "2026-10-31T01:30:00",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        # Several lost times are one fire.
        (
            "FREQ=DAILY;BYHOUR=2;BYMINUTE=0,15,30,45",
            "2026-03-08T00:00:00",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            ["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"],
        ),
        # Hourly rules and faster ones count elapsed time.
        (
            "FREQ=HOURLY;INTERVAL=6",
            "2026-03-07T00:30:00",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            [
                "2026-03-08T05:30:00Z",
                "2026-03-08T11:30:00Z",
                "2026-03-08T17:30:00Z",
                "2026-03-08T23:30:00Z",
            ],
        ),
        (
            "FREQ=HOURLY",
            "2026-11-01T00:30:00",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            ["2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"],
        ),
        # Every other hour counted in Berlin meets 9 o'clock in summer only.
        (
            "FREQ=HOURLY;INTERVAL=2;BYHOUR=9",
            "2026-01-01T10:00:00",
            "Europe/Berlin",
            "2026-01-01T00:00:00Z",
            ["2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"],
        ),
        # Half an hour: BYMINUTE is the wall clock, the count goes on.
        (
            "FREQ=HOURLY;BYMINUTE=0,45",
            "2026-04-04T13:00:00Z",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T15:30:00Z"],
        ),
        # DTSTART fires only if it matches; a date as UNTIL includes that day.
        (
            "FREQ=WEEKLY;BYDAY=TU;UNTIL=20260120",
            "2026-01-05T23:30:00",
            "Europe/Berlin",
            "2026-01-01T00:00:00Z",
            ["2026-01-06T22:30:00Z", "2026-01-13T22:30:00Z", "2026-01-20T22:30:00Z"],
        ),
        (
            "FREQ=HOURLY;INTERVAL=12;UNTIL=20260102",
            "2026-01-01T20:00:00",
            "America/New_York",
            "2026-01-01T00:00:00Z",
            ["2026-01-02T01:00:00Z", "2026-01-02T13:00:00Z", "2026-01-03T01:00:00Z"],
        ),
        # The last workday of the quarter, and leap days.
        (
            "FREQ=MONTHLY;BYMONTH=3,6,9,12;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "2026-01-01T18:00:00",
            "UTC",
            "2026-01-01T00:00:00Z",
            ["2026-03-31T18:00:00Z", "2026-06-30T18:00:00Z", "2026-09-30T18:00:00Z"],
        ),
        (
            "FREQ=YEARLY",
            "2024-02-29T00:00:00",
            "UTC",
            "2024-03-01T00:00:00Z",
            ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"],
        ),
        # Weekdays with and without a number are a union.
        (
            "FREQ=MONTHLY;BYDAY=1FR,MO",
            "2026-06-01T00:00:00",
            "UTC",
            "2026-06-01T00:00:00Z",
            ["2026-06-05T00:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z"],
        ),
    ],
)
def test_rules_in_zones(rule: str, dtstart: str, zone: str, after: str, wanted: list[str]) -> None:
    trigger = RRule(rule, dtstart=dtstart, timezone=zone)
    moments = [datetime.fromisoformat(each) for each in wanted]
    assert fires(trigger, datetime.fromisoformat(after), len(wanted)) == moments
    check_inverse(trigger, moments)


def test_dates_are_added_and_removed() -> None:
    trigger = RRule(
        "FREQ=DAILY;COUNT=6",
        dtstart="2026-03-06T02:30:00",
        timezone="America/New_York",
        # The second is in the gap; the third is a whole day, the fourth no fire.
        exdates=[
            "2026-03-07T07:30:00Z",
            "2026-03-08T02:30:00",
            "2026-03-10",
            "2026-03-11T05:00:00",
        ],
        rdates=["2026-03-20", "2026-03-09T12:00:00", "2026-03-09T02:30:00", "2026-03-10T08:00:00"],
    )
    found = fires(trigger, datetime(2026, 1, 1, tzinfo=UTC), 20)
    assert [f"{each:%d %H:%M}" for each in found] == [
        "06 07:30",
        "09 06:30",
        "09 16:00",
        "10 12:00",
        "11 06:30",
        "20 06:30",
    ]
    check_inverse(trigger, found)
    assert trigger_from_dict(trigger.to_dict()) == trigger


def test_moment_searches_agree_with_every_second() -> None:
    """Rules below a day against all instants of two days at a clock change."""
    rules = (
        "FREQ=HOURLY;BYMINUTE=10,50;BYSECOND=0,30",
        "FREQ=HOURLY;INTERVAL=3;BYMINUTE=0,59;BYSETPOS=-1",
        "FREQ=MINUTELY;INTERVAL=7;BYHOUR=0,1,2,3;BYDAY=SU",
        "FREQ=MINUTELY;INTERVAL=45;BYSECOND=5,10;BYSETPOS=1,-1",
        "FREQ=SECONDLY;INTERVAL=1000;BYMONTHDAY=5,-3",
    )
    for zone in ("Australia/Lord_Howe", "Europe/Berlin"):
        known = parse_zone(zone)
        start = (
            datetime(2026, 4, 4, tzinfo=UTC)
            if "Howe" in zone
            else datetime(2026, 3, 28, tzinfo=UTC)
        )
        for rule in rules:
            trigger = RRule(rule, dtstart=start, timezone=zone)
            parts = dict(each.split("=") for each in rule.split(";"))
            found = fires(trigger, start - STEP, 3000)
            found = [each for each in found if each < start + timedelta(days=2)]
            assert found, (rule, zone)
            check_inverse(trigger, found)
            for each in found:
                local = each + timedelta(seconds=known.offset_at(int(each.timestamp())))
                for key, value in (
                    ("BYHOUR", local.hour),
                    ("BYMINUTE", local.minute),
                    ("BYSECOND", local.second),
                ):
                    assert key not in parts or str(value) in parts[key].split(","), (rule, each)
    assert len(fires(RRule("FREQ=MINUTELY;INTERVAL=7", dtstart=start), start - STEP, 9)) == 9


@each_row(
    ("changes", "field", "code"),
    [
        ({"rule": "INTERVAL=2"}, "rule", "missing_key"),
        ({"rule": "FREQ=FORTNIGHTLY"}, "rule", "bad_choice"),
        ({"rule": "FREQ=DAILY;INTERVAL=0"}, "rule", "out_of_range"),
        ({"rule": "FREQ=DAILY;BYMONTH=13"}, "rule", "out_of_range"),
        ({"rule": "FREQ=DAILY;BYMONTHDAY=0"}, "rule", "out_of_range"),
        ({"rule": "FREQ=DAILY;BYSECOND=60"}, "rule", "out_of_range"),
        ({"rule": "FREQ=DAILY;BYDAY=XX"}, "rule", "bad_weekday"),
        ({"rule": "FREQ=WEEKLY;BYDAY=2TU"}, "rule", "contradiction"),
        ({"rule": "FREQ=MONTHLY;BYWEEKNO=2"}, "rule", "contradiction"),
        ({"rule": "FREQ=DAILY;BYYEARDAY=2"}, "rule", "contradiction"),
        ({"rule": "FREQ=WEEKLY;BYMONTHDAY=2"}, "rule", "contradiction"),
        ({"rule": "FREQ=DAILY;BYSETPOS=1"}, "rule", "contradiction"),
        ({"rule": "FREQ=DAILY;COUNT=2;UNTIL=20300101"}, "rule", "contradiction"),
        ({"rule": "FREQ=DAILY;COUNT=2;COUNT=3"}, "rule", "duplicate"),
        ({"rule": "FREQ=DAILY;UNTIL=20301301"}, "rule", "bad_moment"),
        ({"rule": "FREQ=DAILY;BYEASTER=1"}, "rule", "unknown_key"),
        ({"rule": "FREQ=DAILY;"}, None, None),
        ({"rule": "rrule:freq=daily"}, None, None),
        ({"rule": ""}, "rule", "bad_rule"),
        ({"rule": 5}, "rule", "wrong_type"),
        ({"dtstart": "soon"}, "dtstart", "bad_moment"),
        ({"dtstart": "2026-01-01"}, None, None),
        ({"dtstart": "2026-01-01T00:00:00.5"}, "dtstart", "out_of_range"),
        ({"timezone": "+01:00"}, "timezone", "unknown_zone"),
        ({"exdates": ["never"]}, "exdates[0]", "bad_moment"),
        ({"exdates": "2026-01-01"}, "exdates", "wrong_type"),
        ({"rdates": ["2026-02-30"]}, "rdates[0]", "bad_moment"),
        ({"interval": 2}, "interval", "unknown_key"),
    ],
)
def test_bad_rules_name_their_field(
    changes: dict[str, object], field: str | None, code: str | None
) -> None:
    body = {"kind": "rrule", "rule": "FREQ=DAILY", "dtstart": "2026-01-01T09:00:00", **changes}
    if field is None:
        assert trigger_from_dict(body).next_after(datetime(2026, 1, 1, tzinfo=UTC)) is not None
        return
    with pytest.raises(InvalidTrigger) as caught:
        trigger_from_dict(body)
    assert (caught.value.field, caught.value.code) == (field, code), caught.value


def test_a_rule_that_never_matches_ends_soon() -> None:
    start = "2026-01-01T00:00:00"
    for rule in ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2"):
        trigger = RRule(rule, dtstart=start, timezone="Europe/Berlin")
        assert trigger.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None
        assert trigger.previous_before(datetime(2026, 1, 1, tzinfo=UTC)) is None
