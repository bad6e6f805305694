"""Chinese sentences of the describer."""

from __future__ import annotations

import re

from chimes.language.rereading.grammar import Grammar
from chimes.language.zh_days import WEEKDAYS
from chimes.language.zh_times import UNITS

_NUMBERS = r"\d[\d、至和]*"
_VALUES = rf"第{_NUMBERS}[分秒](?:（每隔\d+(?:分钟|秒)）)?"
_HOURS = r"\d+点[\d点、至和]*(?<=点)"
_STRETCHES = r"[\d:]+至[\d:、至和]+"
_RATE = r"每(?:隔(?P<step>\d+))?(?P<unit>小时|分钟|秒)(?:，从第(?P<first>\d+)[分秒]起)?"
_TIMES = r"(?:\d\d:\d\d|\d+点|每(?:隔\d+)?(?:小时|分钟|秒))"
_DAY = "|".join(WEEKDAYS)
_NTH = {"第一个": 1, "第二个": 2, "第三个": 3, "第四个": 4, "第五个": 5}
_MOMENT = r"(?P<year>\d+)年(?P<month>\d+月)(?P<day>\d+)日(?:周.)? (?P<clock>[\d:.]+)"

GRAMMAR = Grammar(
    between="；",
    to="[点号年]?至",
    name_to="至",
    weekdays=WEEKDAYS,
    months=tuple(f"{month}月" for month in range(1, 13)),
    units={word: unit for unit, word in UNITS.items()},
    clock_units={"秒": "second", "分钟": "minute", "小时": "hour"},
    nth=_NTH,
    main=re.compile(
        r"(?P<body>.+?)(?:，仅限(?P<years>\d+年[\d年、至和]*)(?:（每(?P<step>\d+)年）)?)?"
        r"，(?P<zone>[A-Za-z0-9_/+-]+) 时间"
    ),
    splits=[
        re.compile(rf"(?P<days>)(?P<times>{_TIMES}.*)"),
        re.compile(rf"(?P<days>.+?)[ ，]?(?P<times>{_TIMES}.*)"),
    ],
    at=re.compile(r"\d\d:[\d:、和]+"),
    listed=re.compile(
        rf"(?:每小时|(?P<hours>{_HOURS}))(?:的(?P<minutes>{_VALUES}))?"
        rf"(?:的(?P<which>{_VALUES})|，(?P<rate>每(?:隔\d+)?秒(?:，从第\d+秒起)?))"
    ),
    repeated=re.compile(
        rf"(?:(?P<since>\d\d:\d\d)起，|(?P<hours>{_HOURS})，|(?P<stretches>{_STRETCHES})，)?"
        rf"{_RATE}(?:的(?P<at>{_VALUES}))?"
    ),
    stepped=re.compile(r"第(?P<span>\d+至\d+).（每隔(?P<step>\d+)\D+）"),
    of_seconds=re.compile("秒"),
    dates=[
        ("step", r"(?P<first>\d+)号至(?P<last>\d+)号（每(?P<step>\d+)天）", 0),
        ("nearest", r"最接近(?P<first>\d+)号的工作日", 0),
        ("nearest_from_end", r"最接近(?:倒数第(?P<end>\d+)天|最后一天)的工作日", 0),
        ("from_end", r"倒数第(?P<end>\d+)天|最后一天", 0),
        ("last_working", "最后一个工作日", 0),
        ("days", r"(?P<first>\d+)号至(?P<last>\d+)号", 0),
        ("day", r"(?P<first>\d+)号", 0),
    ],
    special=rf"(?:(?P<nth>{'|'.join(_NTH)})|最后一个)(?P<day>{_DAY})",
    working=re.compile("(?<!最后一个)(?<!的)工作日|(?<=月的)工作日"),
    both="（仅限",
    once=re.compile(rf"仅一次，{_MOMENT}，(?P<zone>[A-Za-z0-9_/+-]+) 时间"),
    every=re.compile(
        rf"每隔?(?P<step>.+?)(?:，从{_MOMENT}（UTC 时间）起计)?(?:，每次最多延后(?P<jitter>.+))?"
    ),
    whole_days=re.compile(r"(\d+)天（每天按24小时计）"),
    since=re.compile(rf"自{_MOMENT}(?P<utc>（UTC 时间）)?起"),
    until=re.compile(rf"至{_MOMENT}(?P<utc>（UTC 时间）)?止"),
    once_only="只运行一次",
    at_most=re.compile(r"最多(\d+)次"),
    rules=re.compile(r"时钟调整按 (\w+) 的规则处理"),
    excepting=re.compile(r"(?P<days>.+)除外(?:，(?P<then>顺延至下一个工作日|提前至上一个工作日))?"),
    following="顺延至下一个工作日",
    holidays=re.compile(r"(\S+) 的公共假日"),
    window=re.compile(r"(?P<days>[^\d]+?)(?:全天| (?P<start>[\d:]+)至(?:次日)?(?P<end>[\d:]+))"),
)
