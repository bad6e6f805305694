"""Writes `src/chimes/schedules.schema.json`: the JSON Schema of files for `chimes apply`."""

from __future__ import annotations

import json
from pathlib import Path

from chimes.web.api.schemas import ScheduleFileIn

FILE = Path(__file__).parents[1] / "src" / "chimes" / "schedules.schema.json"


def schema_text() -> str:
    schema = ScheduleFileIn.model_json_schema(by_alias=True, mode="validation")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Schedules of Chimes",
    }
    return json.dumps(head | {k: v for k, v in schema.items() if k != "title"}, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema_text())
