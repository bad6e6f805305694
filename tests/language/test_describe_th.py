"""Triggers in Thai."""

from __future__ import annotations

from chimes.language import describe, note_in_words, warnings_in_words
from chimes.triggers import Cron, Every, Once
from tests.language.golden import ROWS, Row
from tests.tables import each_row


@each_row("row", ROWS, ids=lambda row: row.name)
def test_triggers_in_words(row: Row) -> None:
    assert describe(row.trigger, "th-TH") == row.words["th"]


WARNINGS = [
    ("0 9 * * *", []),
    (
        "0 0 13 * 5",
        [
            "นับวันที่ตรงกับวันที่หรือวันในสัปดาห์อย่างใดอย่างหนึ่ง ไม่ต้องตรงทั้งสองอย่าง "
            "หากต้องการให้ตรงทั้งสองอย่าง ให้ขึ้นต้นช่องใดช่องหนึ่งด้วย *"
        ],
    ),
    (
        "0 0 */2 * MON",
        [
            "นับเฉพาะวันที่ตรงทั้งวันที่และวันในสัปดาห์",
            "รอบทุก 2 วัน เริ่มนับใหม่ทุกเดือน ช่วงรอยต่อจึงห่างไม่เท่าช่วงอื่น",
        ],
    ),
    ("*/7 * * * *", ["รอบทุก 7 นาที เริ่มนับใหม่ทุกชั่วโมง ช่วงรอยต่อจึงห่างกัน 4 นาที"]),
    (
        "* 9 * * *",
        ["ทำงานทุกนาทีในชั่วโมงเหล่านี้ วันละ 60 ครั้ง หากต้องการชั่วโมงละครั้ง ให้ใส่ 0 ในช่องนาที"],
    ),
    ("*/10 * * * * *", ["ทำงานวันละ 8640 ครั้ง"]),
    ("0 0 31 * *", ["ไม่ทำงานในเดือนที่ไม่มีวันที่ 31"]),
    ("0 0 29 2 *", ["ทำงานเฉพาะปีอธิกสุรทิน"]),
]


@each_row(("expression", "words"), WARNINGS, ids=[row[0] for row in WARNINGS])
def test_warnings(expression: str, words: list[str]) -> None:
    assert list(warnings_in_words(Cron(expression), "th")) == words


def test_a_moment_in_a_gap_is_warned_about() -> None:
    trigger = Once("2027-03-14T02:30:00", timezone="America/New_York")
    assert warnings_in_words(trigger, "th") == (note_in_words("moved_by_gap", "th"),)


# A year of the other calendar would be read as such.
def test_a_year_says_which_calendar_it_is_of() -> None:
    assert "ค.ศ. 2030" in describe(Once("2030-02-10T09:00:00Z"), "th")
    assert "ค.ศ. 2026" in describe(Every("1h", anchor="2026-01-01T00:00:00Z"), "th")
    assert "ค.ศ. 2028" in describe(Cron("0 0 9 ? * MON 2028"), "th")
