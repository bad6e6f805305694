"""Routers of compatibility APIs: own error format, shared middleware."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotAllowed
from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from chimes.web.compat.base import CompatRouter
from chimes.web.middleware import BODY_LIMIT
from chimes.web.problems import Problem
from chimes.web.requests import authenticate, read_json
from tests.builders import ALICE
from tests.web.rig import serving


def render_problem(request: Request, problem: Problem) -> Response:
    status = 406 if problem.code == "not_json" else problem.status
    headers = dict(problem.headers)
    return JSONResponse({"error": problem.code, "said": problem.detail}, status, headers)


def toy_router() -> CompatRouter:
    router = CompatRouter(interface="toy", prefixes=["/toys"], render=render_problem)

    @router.post("/toys")
    async def make(request: Request) -> object:
        await authenticate(request, interface="toy", accepts=("X-Admin-Token", "?token"))
        body = await read_json(request)
        if body == {"no": "way"}:
            raise NotAllowed()
        raise InvalidInput("not like this", field="toy", code="odd")

    return router


async def test_errors_are_rendered_in_the_format_of_the_api() -> None:
    async with serving(compat=[toy_router()]) as rig:
        for path, send, status, code in (
            ("/toys", {"json": {}}, 422, "odd"),
            ("/toys", {"content": b"{}"}, 406, "not_json"),
            ("/toys", {"content": b" " * (BODY_LIMIT + 1)}, 413, "body_too_large"),
            ("/toys", {"json": {}, "headers": {"Origin": "null"}}, 403, "foreign_origin"),
            ("/toys/unknown", {"json": {}}, 404, "not_found"),
        ):
            answer = await rig.client.post(path, **send)
            assert (answer.status_code, answer.json()["error"]) == (status, code)
        assert (await rig.client.get("/toys")).json()["error"] == "method_not_allowed"
        elsewhere = await rig.client.post("/toysoldiers", json={})
        assert elsewhere.headers["content-type"] == "application/problem+json"


async def test_keys_are_accepted_only_where_the_api_declares_them() -> None:
    async with serving(compat=[toy_router()], fixed_keys=["secret-token"]) as rig:
        for send, status in (
            ({"params": {"token": "secret-token"}}, 422),
            ({"headers": {"X-Admin-Token": "secret-token"}}, 422),
            ({"headers": {"Authorization": "Bearer secret-token"}}, 401),
            ({}, 401),
        ):
            answer = await rig.client.post("/toys", json={}, **send)
            assert answer.status_code == status
        assert answer.headers["www-authenticate"]


async def test_rejected_request_is_audited() -> None:
    async with serving(compat=[toy_router()]) as rig:
        key = (await rig.key(Role.VIEWER, ALICE))["Authorization"].split()[1]
        answer = await rig.client.post("/toys", json={"no": "way"}, headers={"X-Admin-Token": key})
        assert answer.status_code == 403
        [note] = await rig.store.list_audit(AuditQuery(verb="refused"))
        assert (note.interface, note.object_id, note.allowed) == ("toy", "POST /toys", False)
