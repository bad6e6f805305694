"""Streams lists as CSV or NDJSON files."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable

from starlette.responses import Response, StreamingResponse

from chimes.web.dashboard.core.page_request import PageRequest

#: Limit of rows in one file, and rows per query.
MAX_EXPORTED, EXPORT_BATCH = 100_000, 500
_MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}
#: Spreadsheets execute cells that start with one of these as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def file_response(
    request: PageRequest, name: str, suffix: str, parts: AsyncIterator[str]
) -> Response:
    """Streams `parts` as a download named after the list and the current time."""
    filename = f"{name}-{request.now:%Y%m%dT%H%M%SZ}.{suffix}"
    return StreamingResponse(
        parts,
        media_type=_MEDIA_TYPES[suffix],
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


def csv_cell(value: object) -> str:
    """Returns the text of a cell, escaped so that no spreadsheet executes it as a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    # Spreadsheets ignore spaces before a formula.
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) or text[:1] in _FORMULA else text


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()
