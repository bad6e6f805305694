"""English sentences of the describer."""

from __future__ import annotations

import re

from chimes.language.en_days import MONTHS, WEEKDAYS
from chimes.language.limits import DurationUnit
from chimes.language.rereading.grammar import Grammar

_NUMBERS = r"\d(?:[\d, ]|to|and)*?"
_STEPPED = r"every \d+\w\w (?:second|minute|hour) from \d+ to \d+"
_VALUES = rf"(?:second|minute)s? {_NUMBERS}|{_STEPPED}"
_HOURS = rf"hours? {_NUMBERS}|{_STEPPED}"
_DAY = "|".join(WEEKDAYS)
_TH = "(?:st|nd|rd|th)"
_NTH = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_MOMENT = rf"(?P<day>\d+) (?P<month>{'|'.join(MONTHS)}) (?P<year>\d+) at (?P<clock>[\d:.]+)"
_UNITS: tuple[DurationUnit, ...] = ("hour", "minute", "second", "millisecond", "microsecond")

GRAMMAR = Grammar(
    between="; ",
    to=" to ",
    name_to=" to ",
    weekdays=WEEKDAYS,
    months=MONTHS,
    units={f"{unit}{end}": unit for unit in _UNITS for end in ("", "s")},
    clock_units={"second": "second", "minute": "minute", "hour": "hour"},
    nth=_NTH,
    main=re.compile(
        rf"(?P<body>.+?)(?:, in (?:every (?P<step>\d+){_TH} year from )?"
        r"(?P<years>\d{4}(?:[\d, ]|to|and)*?))?, (?P<zone>\S+?)(?: time)?"
    ),
    splits=[
        re.compile(
            r"(?P<times>[Ee]very (?:\d+ )?(?:second|minute|hour)s?\b.*?)"
            r"(?:, (?P<days>(?:every|on) .+))?"
        ),
        re.compile(
            r"(?P<days>.+?),? "
            r"(?P<times>at (?:\d\d:|second|minute|every \d+\w\w (?:second|minute)).+)"
        ),
    ],
    at=re.compile(r"at \d\d:.+"),
    listed=re.compile(
        rf"(?:at (?P<which>{_VALUES}) of|"
        r"(?P<rate>[Ee]very (?:\d+ )?seconds?(?: from second \d+)?) in)"
        rf"(?: (?P<minutes>{_VALUES}) of)? (?:every hour|(?P<hours>{_HOURS}))"
    ),
    repeated=re.compile(
        r"[Ee]very (?:(?P<step>\d+) )?(?P<unit>second|minute|hour)s?"
        rf"(?: from (?P=unit) (?P<first>\d+))?(?: at (?P<at>{_VALUES}))?"
        rf"(?: from (?P<since>\d\d:\d\d))?(?: in (?P<hours>{_HOURS}))?"
        r"(?: (?P<stretches>from [\d:]+ to .+))?"
    ),
    stepped=re.compile(r"every (?P<step>\d+)\D+(?P<span>\d+ to \d+)"),
    of_seconds=re.compile("second"),
    dates=[
        (
            "step",
            rf"every (?P<step>\d+){_TH} day from the (?P<first>\d+){_TH} to the (?P<last>\d+){_TH}",
            0,
        ),
        ("nearest", rf"the weekday nearest the (?P<first>\d+){_TH}", 0),
        ("nearest_from_end", "the weekday nearest the last day", 0),
        ("nearest_from_end", "the weekday nearest the day before the last", 1),
        ("nearest_from_end", r"the weekday nearest the day (?P<first>\d+) days before the last", 0),
        ("from_end", "the last day", 0),
        ("from_end", "the day before the last", 1),
        ("from_end", r"the day (?P<first>\d+) days before the last", 0),
        ("last_working", "the last weekday", 0),
        ("days", rf"the (?P<first>\d+){_TH} to the (?P<last>\d+){_TH}", 0),
        ("day", rf"the (?P<first>\d+){_TH}", 0),
    ],
    special=rf"the (?:(?P<nth>{'|'.join(_NTH)})|last) (?P<day>{_DAY})",
    working=re.compile(r"(?:[Ee]very|\ba) weekday"),
    both="if that is",
    once=re.compile(rf"Once, on [A-Z][a-z]+ {_MOMENT}, (?P<zone>\S+?)(?: time)?"),
    every=re.compile(
        rf"Every (?P<step>.+?)(?:, counted from {_MOMENT} UTC)?"
        r"(?:, each run up to (?P<jitter>.+) later)?"
    ),
    whole_days=re.compile(r"(\d+) days of 24 hours"),
    since=re.compile(rf"from {_MOMENT}(?P<utc> UTC)? on"),
    until=re.compile(rf"until {_MOMENT}(?P<utc> UTC)?"),
    once_only="only once",
    at_most=re.compile(r"at most (\d+) times"),
    rules=re.compile(r"clock changes as in (\w+)"),
    excepting=re.compile(
        r"except (?P<days>.+?)(?:, then on the (?P<then>next|previous) business day)?"
    ),
    following="next",
    holidays=re.compile(r"on public holidays of (\S+)"),
    window=re.compile(
        r"on (?P<days>[A-Za-z, ]+?)"
        r"(?: from (?P<start>[\d:]+) to (?P<end>[\d:]+)(?: of the next day)?)?(?=, on | and on |$)"
    ),
)
