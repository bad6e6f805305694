"""Operations that will be removed announce it."""

from __future__ import annotations

from pathlib import Path

import httpx2
from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from chimes.web.api.route import NativeRoute, deprecated
from chimes.web.openapi import describe_api
from tests.web.rig import HOST, serving

CHANGES = (Path(__file__).parents[2] / "docs" / "api-changes.md").read_text(encoding="utf-8")


async def test_deprecated_operation_has_headers_and_is_marked_in_the_document() -> None:
    router = APIRouter(tags=["test"], route_class=NativeRoute)
    old = deprecated(since="2027-01-31", sunset="2028-01-31", successor="/api/v1/schedules")

    @router.get("/api/v1/old", **old)
    async def list_old() -> Response:
        """List what was."""
        return JSONResponse({"items": []})

    async with serving(compat=[router], documented=False) as rig:
        transport = httpx2.ASGITransport(app=rig.app)
        async with httpx2.AsyncClient(transport=transport, base_url=HOST) as client:
            answer = await client.get("/api/v1/old")
            current = await client.get("/api/v1/schedules")
        operation = describe_api(rig.app)["paths"]["/api/v1/old"]["get"]
    assert answer.status_code == 200
    assert answer.headers["Deprecation"] == "@1801353600"
    assert answer.headers["Sunset"] == "Mon, 31 Jan 2028 00:00:00 GMT"
    assert '</api/v1/schedules>; rel="successor-version"' in answer.headers["Link"]
    assert "Deprecation" not in current.headers
    assert operation["deprecated"] is True
    assert operation["x-deprecation"]["sunset"].startswith("2028-01-31")


async def test_every_deprecated_operation_is_in_the_list_of_changes() -> None:
    async with serving(documented=False) as rig:
        document = describe_api(rig.app)
    section = CHANGES.partition("## Deprecated operations")[2].partition("\n## ")[0]
    deprecated_operations = [
        f"{method.upper()} {path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if operation.get("deprecated")
    ]
    assert [each for each in deprecated_operations if each not in section] == []
    assert (section.strip() == "None.") == (not deprecated_operations)
    for operations in document["paths"].values():
        for operation in operations.values():
            assert not operation.get("deprecated") or operation["x-deprecation"]["sunset"]
