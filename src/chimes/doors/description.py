"""The OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from chimes.doors.api.outputs import PROBLEM_REF, ProblemOut

ABOUT = (
    "Durable schedules become runs, exactly one per due slot. Times are answered in UTC "
    "(RFC 3339), durations as ISO 8601; errors are RFC 9457 problems."
)
_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, chm_…"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request twice is done once; the second gets the first answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that the change is meant for; 412 when it is no longer the one.",
    "schema": {"type": "string"},
}
Document = dict[str, Any]


def operation_name(route: APIRoute) -> str:
    return f"{route.tags[0]}_{route.name}" if route.tags else route.name


def describe_api(app: FastAPI) -> Document:
    document = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
    _, problems = models_json_schema(
        [(ProblemOut, "serialization")], ref_template="#/components/schemas/{model}"
    )
    schemas.update(problems["$defs"])
    document["components"]["securitySchemes"] = _KEYS
    document["security"] = [{"bearer": []}, {"key": []}, {}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    _drop_unused(document, schemas)
    return document


def _complete(path: str, method: str, operation: Document) -> None:
    """What holds for all routes and is not said by each."""
    invalid = operation["responses"].get("422", {})
    if "HTTPValidationError" in json.dumps(invalid):
        invalid["content"] = {"application/problem+json": {"schema": PROBLEM_REF}}
    if not path.startswith("/api/v1/"):
        return
    if method == "post":
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    if method in ("patch", "delete") and "412" in operation["responses"]:
        operation.setdefault("parameters", []).append(_IF_MATCH)


def _drop_unused(document: Document, schemas: Document) -> None:
    """Models that only an inner type of a field mentions are nobody's business."""
    wanted = _named_in(document["paths"])
    waiting = list(wanted)
    while waiting:
        for name in _named_in(schemas[waiting.pop()]) - wanted:
            wanted.add(name)
            waiting.append(name)
    for name in schemas.keys() - wanted:
        del schemas[name]


def _named_in(part: Document | Sequence[object]) -> set[str]:
    return set(_REFERENCE.findall(json.dumps(part)))
