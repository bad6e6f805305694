"""Runs as files, for spreadsheets and programs; pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping

from chimes.doors.api.wire_runs import run_out
from chimes.model.run import Run
from chimes.redaction import masked_result

COLUMNS = (
    "id",
    "schedule_id",
    "schedule_name",
    "namespace",
    "owner",
    "origin",
    "status",
    "attempt",
    "planned_at",
    "created_at",
    "started_at",
    "finished_at",
    "duration_ms",
    "lag_ms",
    "node",
    "error",
    "reason",
    "retry_of",
    "parent_id",
    "step",
)
#: Spreadsheets take a cell that begins so for a formula, and would carry it out.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(value: object) -> str:
    """Text that no spreadsheet carries out (S55); numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    # Spreadsheets leave out blanks before a formula.
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) or text[:1] in _FORMULA else text


def csv_head() -> str:
    return _csv([COLUMNS])


def csv_lines(runs: Iterable[Run], lang: str) -> str:
    return _csv([_cells(run, lang) for run in runs])


def json_lines(runs: Iterable[Run], lang: str) -> str:
    """One object a line, as the API shows them, without secrets in results: files travel."""
    return "".join(f"{json.dumps(run_shown(run, lang), ensure_ascii=False)}\n" for run in runs)


def run_shown(run: Run, lang: str) -> Mapping[str, object]:
    """As the API has it, for people to read: of the result, what its names say is secret is
    hidden."""
    masked = None if run.result is None else masked_result(run.result)
    return {**run_out(run, lang), "result": masked}


def _cells(run: Run, lang: str) -> list[str]:
    shown = run_out(run, lang) | {"owner": str(run.owner)}
    return [cell(shown[name]) for name in COLUMNS]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()
