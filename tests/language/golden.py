"""`golden.txt`: triggers and their sentences in three languages, side by side.

A block is a cron expression, or a trigger as JSON, and a line for each language.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from chimes.triggers import Cron, Trigger, trigger_from_dict


class Row(NamedTuple):
    name: str
    trigger: Trigger
    words: dict[str, str]


def _row(block: str) -> Row:
    name, *lines = block.splitlines()
    trigger = trigger_from_dict(json.loads(name)) if name.startswith("{") else Cron(name)
    return Row(name, trigger, dict(line.strip().split(" ", 1) for line in lines))


ROWS = [_row(block) for block in (Path(__file__).parent / "golden.txt").read_text().split("\n\n")]
