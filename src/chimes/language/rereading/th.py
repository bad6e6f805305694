"""Thai sentences of the describer."""

from __future__ import annotations

import re

from chimes.language.rereading.grammar import Grammar
from chimes.language.th_days import MONTHS, WEEKDAYS
from chimes.language.th_times import UNITS

_NUMBERS = r"\d[\d, ถึงและ]*?"
_STEPPED = r"ทุก \d+ (?:วินาที|นาที) ตั้งแต่(?:วินาที|นาที)ที่ \d+ ถึง \d+"
_VALUES = rf"(?:ที่)?(?:วินาที|นาที)ที่ {_NUMBERS}|{_STEPPED}"
_HOURS = rf"ชั่วโมงที่ {_NUMBERS}"
_TIMES = r"(?:เวลา \d|ทุก(?: \d+ )?(?:วินาที|นาที|ชั่วโมง)|ที่(?:วินาที|นาที)ที่)"
_DAY = "|".join(WEEKDAYS)
_NTH = {"แรก": 1, "ที่สอง": 2, "ที่สาม": 3, "ที่สี่": 4, "ที่ห้า": 5}
_MOMENT = (
    rf"วัน[^ ]*ที่ (?P<day>\d+) (?P<month>{'|'.join(MONTHS)}) ค\.ศ\. (?P<year>\d+) "
    r"เวลา (?P<clock>[\d:.]+) น\."
)

GRAMMAR = Grammar(
    between="; ",
    to=" ถึง ",
    name_to="ถึง",
    weekdays=WEEKDAYS,
    months=MONTHS,
    units={word: unit for unit, word in UNITS.items()},
    clock_units={"วินาที": "second", "นาที": "minute", "ชั่วโมง": "hour"},
    nth=_NTH,
    main=re.compile(
        r"(?P<body>.+?)(?: เฉพาะ(?:ทุก (?P<step>\d+) ปี ตั้งแต่)?ปี ค\.ศ\. (?P<years>\d[\d, ถึงและ]*?))?"
        r" ตามเวลา (?P<zone>\S+)"
    ),
    splits=[
        re.compile(rf"(?P<days>)(?P<times>{_TIMES}.*)"),
        re.compile(rf"(?P<days>.+?) (?P<times>{_TIMES}.*)"),
    ],
    at=re.compile(r"เวลา .+ น\."),
    listed=re.compile(
        rf"(?:(?P<which>{_VALUES}) ของ|"
        r"(?P<rate>ทุก(?: \d+ )?วินาที(?: ตั้งแต่วินาทีที่ \d+)?) ใน)"
        rf"(?:(?P<minutes>{_VALUES}) ของ)?(?:ทุกชั่วโมง|(?P<hours>{_HOURS}))"
    ),
    repeated=re.compile(
        r"ทุก(?: (?P<step>\d+) )?(?P<unit>วินาที|นาที|ชั่วโมง)"
        rf"(?: ตั้งแต่(?P=unit)ที่ (?P<first>\d+))?(?: (?P<at>{_VALUES}))?"
        rf"(?: ตั้งแต่ (?P<since>[\d:]+) น\.)?(?: ใน(?P<hours>{_HOURS}))?"
        r"(?: (?P<stretches>ตั้งแต่ [\d:]+ น\. ถึง .+))?"
    ),
    stepped=re.compile(r"ทุก (?P<step>\d+) \D+(?P<span>\d+ ถึง \d+)"),
    of_seconds=re.compile("วินาที"),
    dates=[
        ("step", r"ทุก (?P<step>\d+) วัน ตั้งแต่วันที่ (?P<first>\d+) ถึง (?P<last>\d+)", 0),
        ("nearest", r"วันทำการที่ใกล้วันที่ (?P<first>\d+) ที่สุด", 0),
        ("nearest_from_end", r"วันทำการที่ใกล้ (?:(?P<first>\d+) วันก่อน)?วันสุดท้ายที่สุด", 0),
        ("from_end", r"(?:(?P<first>\d+) วันก่อน)?วันสุดท้าย", 0),
        ("last_working", "วันทำการสุดท้าย", 0),
        ("days", r"(?P<first>\d+) ถึง (?P<last>\d+)", 0),
        ("day", r"(?P<first>\d+)", 0),
    ],
    special=rf"(?P<day>{_DAY})(?:(?P<nth>{'|'.join(_NTH)})|สุดท้าย)",
    working=re.compile("วันทำการ(?!สุดท้าย|ที่ใกล้)"),
    both="เฉพาะที่ตรงกับ",
    once=re.compile(rf"ครั้งเดียว {_MOMENT} ตามเวลา (?P<zone>\S+)"),
    every=re.compile(
        rf"ทุก ?(?P<step>.+?)(?: นับจาก{_MOMENT} ตามเวลา UTC)?"
        r"(?: แต่ละครั้งช้าได้ไม่เกิน (?P<jitter>.+))?"
    ),
    whole_days=re.compile(r"(\d+) วัน \(วันละ 24 ชั่วโมง\)"),
    since=re.compile(rf"ตั้งแต่{_MOMENT}(?P<utc> ตามเวลา UTC)? เป็นต้นไป"),
    until=re.compile(rf"จนถึง{_MOMENT}(?P<utc> ตามเวลา UTC)?"),
    once_only="ครั้งเดียวเท่านั้น",
    at_most=re.compile(r"ไม่เกิน (\d+) ครั้ง"),
    rules=re.compile(r"เมื่อปรับนาฬิกาให้ใช้กฎของ (\w+)"),
    excepting=re.compile(r"ยกเว้น(?P<days>.+?)(?: โดยเลื่อนไปวันทำการ(?P<then>ถัดไป|ก่อนหน้า))?"),
    following="ถัดไป",
    holidays=re.compile(r"วันหยุดราชการของ (\S+)"),
    window=re.compile(
        r"(?P<days>.+?)(?:ทั้งวัน| เวลา (?P<start>[\d:]+) ถึง (?P<end>[\d:]+) น\.(?: ของวันถัดไป)?)"
    ),
)
