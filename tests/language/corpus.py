"""Phrases in three languages with the expected result of parsing them (`corpus_*.jsonl`).

A row has `trigger` and `task`, or `missing`: the parts that need clarification. `recipients` lists
the recipients that the phrase names. The expectations were written by hand, not taken from the
parser.
The reference time of all rows is a Monday at 09:00 in Bangkok.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from chimes.language import NamedRecipient
from chimes.triggers import Trigger, parse_moment, trigger_from_dict


class Row(NamedTuple):
    lang: str
    text: str
    now: datetime
    timezone: str
    trigger: Trigger | None
    task: str
    missing: tuple[str, ...]
    recipients: tuple[NamedRecipient, ...]


def _row(lang: str, line: str) -> Row:
    given = json.loads(line)
    trigger = given.get("trigger")
    return Row(
        lang,
        given["text"],
        parse_moment(given["now"]),
        given["timezone"],
        None if trigger is None else trigger_from_dict(trigger),
        given.get("task", ""),
        tuple(given.get("missing", ())),
        tuple(NamedRecipient(**each) for each in given.get("recipients", ())),
    )


_HERE = Path(__file__).parent
ROWS = [
    _row(lang, line)
    for lang in ("th", "en", "zh")
    for line in (_HERE / f"corpus_{lang}.jsonl").read_text(encoding="utf-8").splitlines()
]
CLEAR = [row for row in ROWS if row.trigger is not None]
UNCLEAR = [row for row in ROWS if row.trigger is None]
#: Phrases about recipients; half of them name none.
WITH_RECIPIENTS = [
    _row(json.loads(line)["lang"], line)
    for line in (_HERE / "corpus_recipients.jsonl").read_text(encoding="utf-8").splitlines()
]
