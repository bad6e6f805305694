"""Triggers in Chinese."""

from __future__ import annotations

from chimes.language import describe, note_in_words, warnings_in_words
from chimes.triggers import Cron, Once
from tests.language.golden import ROWS, Row
from tests.tables import each_row


@each_row("row", ROWS, ids=lambda row: row.name)
def test_triggers_in_words(row: Row) -> None:
    assert describe(row.trigger, "zh-CN") == row.words["zh"]
    assert describe(row.trigger, "zh-Hans") == row.words["zh"]


WARNINGS = [
    ("0 9 * * *", []),
    (
        "0 0 13 * 5",
        [
            "日期或星期有一个符合就运行，不要求两者同时符合；"
            "若要两者同时符合，请让其中一个字段以 * 开头"
        ],
    ),
    (
        "0 0 */2 * MON",
        [
            "只有日期和星期同时符合的日子才运行",
            "2天的间隔每月重新计算，因此交界处的间隔不同",
        ],
    ),
    ("0 0 1 */5 *", ["5个月的间隔每年重新计算，交界处的间隔为2个月"]),
    (
        "* 9 * * *",
        ["在这些小时内每分钟都运行，每天60次；若要每小时一次，请在分钟字段填 0"],
    ),
    ("*/10 * * * * *", ["每天运行8640次"]),
    ("0 0 31 * *", ["没有31号的月份不运行"]),
    ("0 0 29 2 *", ["只在闰年运行"]),
]


@each_row(("expression", "words"), WARNINGS, ids=[row[0] for row in WARNINGS])
def test_warnings(expression: str, words: list[str]) -> None:
    assert list(warnings_in_words(Cron(expression), "zh")) == words


def test_a_moment_in_a_gap_is_warned_about() -> None:
    trigger = Once("2027-03-14T02:30:00", timezone="America/New_York")
    assert warnings_in_words(trigger, "zh") == (note_in_words("moved_by_gap", "zh"),)


# Who works on other days than Monday to Friday must not be told that these are working days.
def test_working_days_are_monday_to_friday_exactly() -> None:
    assert describe(Cron("0 9 * * 1-5"), "zh") == "工作日 09:00，UTC 时间"
    assert describe(Cron("0 9 * * 1-6"), "zh") == "每周一至周六 09:00，UTC 时间"
