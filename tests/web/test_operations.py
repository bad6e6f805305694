"""The operations of the HTTP APIs, with the names that clients use.

A difference is a change of the public contract. If it is intended, write the new lines to
`operations.txt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from fastapi import APIRouter

from chimes.telegram.routes import telegram_router
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.eventnative.routes import eventnative_router
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.compat.kweaver.routes import kweaver_router
from chimes.web.compat.softnix.routes import softnix_router
from chimes.web.openapi import describe_apis, merged
from chimes.web.requests import WebContext
from tests.web.rig import serving

OPERATIONS = Path(__file__).parent / "operations.txt"


def _telegram(context: WebContext) -> APIRouter:
    return telegram_router(context, Mock(), Mock(), secret="x", webhook=True)


def _fields(document: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    """Names of the fields of a JSON body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if reference := schema.get("$ref"):
        schema = document["components"]["schemas"][reference.rsplit("/", 1)[1]]
    return sorted(schema.get("properties", {}))


def _lines(document: dict[str, Any]) -> list[str]:
    lines = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = sorted(each["name"] for each in operation.get("parameters", ()))
            fields = _fields(document, operation)
            parts = [f"{path} {method.upper()} {operation['operationId']}"]
            parts += [f"parameters={','.join(parameters)}"] if parameters else []
            parts += [f"fields={','.join(fields)}"] if fields else []
            lines.append(" ".join([*parts, f"status={','.join(sorted(operation['responses']))}"]))
    return sorted(lines)


async def test_operations_are_unchanged() -> None:
    routers = [
        ksana_router, catbird_router, eventnative_router, softnix_router, kweaver_router, _telegram
    ]  # fmt: skip
    async with serving(routers=routers) as rig:
        found = _lines(merged(describe_apis(rig.app)))
    assert found == OPERATIONS.read_text().splitlines()
