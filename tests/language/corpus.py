"""`corpus_*.jsonl`: what people say, and what it must be read as (TIME "Words").

A row has `trigger` and `task`, or `missing`: what must be asked; `told` is whom the task says to
tell (UX A.4). The expectations were written by hand from TIME.md. All were said on a Monday at nine
in the morning in Bangkok.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from chimes.language import Told
from chimes.triggers import Trigger, parse_moment, trigger_from_dict


class Row(NamedTuple):
    lang: str
    text: str
    now: datetime
    timezone: str
    trigger: Trigger | None
    task: str
    missing: tuple[str, ...]
    told: tuple[Told, ...]


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
        tuple(Told(**each) for each in given.get("told", ())),
    )


_HERE = Path(__file__).parent
ROWS = [
    _row(lang, line)
    for lang in ("th", "en", "zh")
    for line in (_HERE / f"corpus_{lang}.jsonl").read_text(encoding="utf-8").splitlines()
]
READ = [row for row in ROWS if row.trigger is not None]
ASKED = [row for row in ROWS if row.trigger is None]
#: Whom to tell, in words; half of them only look like it.
TOLD = [
    _row(json.loads(line)["lang"], line)
    for line in (_HERE / "corpus_told.jsonl").read_text(encoding="utf-8").splitlines()
]
