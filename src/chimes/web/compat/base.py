"""Router of a compatibility API: routes at the server root and its own error format."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from chimes.web.api.responses import problem
from chimes.web.problems import Renderer
from chimes.web.requests import check_query

#: An OpenAPI description, or a part of it.
Schema = dict[str, Any]


class CompatRoute(APIRoute):
    """Checks the query parameters before the handler."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check_query(request)
            return await handle(request)

        return checked


class CompatRouter(APIRouter):
    """Routes at the root of the server. `render` renders problems under one of `prefixes`, also
    those that arise before routing, such as an oversized body. `error_fields` are the texts of a
    rendered problem, for the documentation; None: a native problem."""

    def __init__(
        self,
        *,
        interface: str,
        prefixes: Sequence[str],
        render: Renderer,
        error_fields: Sequence[str] | None = None,
        not_json: int = 415,
        route_class: type[APIRoute] = CompatRoute,
    ) -> None:
        """`not_json`: status of a body that is not JSON."""
        super().__init__(tags=[interface], route_class=route_class)
        self.interface = interface
        self.prefixes = tuple(prefixes)
        self.render = render
        self._error_fields = error_fields
        self._not_json = not_json

    def add_api_route(
        self, path: str, endpoint: Callable[..., Any], *, methods: Any = None, **options: Any
    ) -> None:
        """Documents the errors of the route."""
        given: dict[int | str, dict[str, Any]] = options.pop("responses", None) or {}
        options["responses"] = self._errors(path, methods) | given
        super().add_api_route(path, endpoint, methods=methods, **options)

    def _errors(self, path: str, methods: Sequence[str]) -> dict[int | str, dict[str, Any]]:
        found = {
            422 if self._error_fields is None else 400: "The input is not valid",
            401: "A valid key is required",
            403: "The key does not have the right to do that",
            429: "Too many requests",
            503: "The store cannot answer at the moment",
        }
        if "{" in path:
            found[404] = "Not found, or not visible to the caller"
        if not {*methods} <= {"GET", "DELETE"}:
            found[409] = "Not possible in the current state"
            found[413] = "The body is too large"
            found[self._not_json] = "The body is not application/json"
        return {status: self._error(found[status]) for status in sorted(found)}

    def _error(self, description: str) -> dict[str, Any]:
        if self._error_fields is None:
            return problem(description)
        text: Schema = {"type": "string"}
        schema = {"type": "object", "properties": dict.fromkeys(self._error_fields, text)}
        return {"description": description, "content": {"application/json": {"schema": schema}}}


def query_parameter(
    name: str, description: str, *, required: bool = False, **schema: object
) -> Schema:
    """The OpenAPI description of a query parameter: text, unless `schema` has another type."""
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": {"type": "string", **schema},
    }


def object_schema(
    properties: Mapping[str, Schema], required: Sequence[str] = (), *, open: bool = False
) -> Schema:
    """`open`: other properties are ignored, else rejected."""
    found: Schema = {"type": "object", "properties": {**properties}}
    if required:
        found["required"] = [*required]
    return found if open else found | {"additionalProperties": False}


def request_body(schema: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}
