"""The OpenAPI document and the documentation page made from it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from chimes.model.checkpoint import CALLBACK_PATH
from chimes.web.api.responses import ProblemOut, problem

DESCRIPTION = (
    "Durable schedules become runs, exactly one per due slot. Times are in UTC (RFC 3339), "
    "durations in ISO 8601, errors are RFC 9457 problems."
)
_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, chm_…"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key gets the first response again.",
    "schema": {"type": "string", "pattern": "^[!-~]([ -~]{0,198}[!-~])?$"},
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the version to change; 412 if the resource has changed since.",
    "schema": {"type": "string"},
}
_KEY_IN_USE = problem("The first request with this Idempotency-Key has not been answered yet")
#: Operations that create something, and where their response has its id. Operations below the same
#: path take this id.
_CREATED: Mapping[str, str] = {
    "/api/v1/schedules": "/id",
    "/api/v1/runs": "/id",
    "/api/v1/keys": "/id",
    "/api/v1/users": "/name",
    "/api/v1/deliveries/test": "/id",
    "/jobs": "/id",
    "/schedules": "/item/id",
    "/tasks": "/task_id",
    "/knowledge-networks/{kn_id}/action-schedules": "/id",
    "/in/v1/knowledge-networks/{kn_id}/action-schedules": "/id",
}
Document = dict[str, Any]


def operation_id(route: APIRoute) -> str:
    return f"{route.tags[0]}_{route.name}" if route.tags else route.name


def describe_api(app: FastAPI) -> Document:
    document = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
    _, problems = models_json_schema(
        [(ProblemOut, "serialization")], ref_template="#/components/schemas/{model}"
    )
    schemas.update(problems["$defs"])
    document["components"]["securitySchemes"] = _SECURITY_SCHEMES
    document["security"] = [{"bearer": []}, {"key": []}, {}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _add_common_parts(path, method, operation)
    _add_links(document["paths"])
    _drop_unused(document, schemas)
    return document


def _add_common_parts(path: str, method: str, operation: Document) -> None:
    """Adds parameters and responses that all routes share."""
    responses = operation["responses"]
    # FastAPI's own: routes report invalid parameters with the other errors they document.
    if "HTTPValidationError" in json.dumps(responses.get("422", {})):
        del responses["422"]
    if not path.startswith("/api/v1/"):
        return
    if method == "post" and not path.startswith(CALLBACK_PATH):
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
        if operation["tags"] != ["time"]:  # computations, whose answers are not kept
            responses.setdefault("409", _KEY_IN_USE)
    if method in ("patch", "delete") and "412" in operation["responses"]:
        operation.setdefault("parameters", []).append(_IF_MATCH)


def _add_links(paths: Document) -> None:
    """Links from the creation of an object to the operations that take its id."""
    for collection, pointer in _CREATED.items():
        links: Document = {}
        for path, operations in paths.items():
            below = path.removeprefix(collection.removesuffix("/test"))
            if path == below or not below.startswith("/{"):
                continue
            name = below[2:].partition("}")[0]
            parameters = {f"path.{name}": f"$response.body#{pointer}"}
            if "{kn_id}" in collection:
                parameters["path.kn_id"] = "$request.path.kn_id"
            for operation in operations.values():
                operation_id = operation["operationId"]
                links[operation_id] = {"operationId": operation_id, "parameters": parameters}
        for status, response in paths[collection]["post"]["responses"].items() if links else ():
            if status.startswith("2"):
                response["links"] = links


def _drop_unused(document: Document, schemas: Document) -> None:
    """Removes schemas that no path refers to."""
    used = _references(document["paths"])
    unvisited = list(used)
    while unvisited:
        for name in _references(schemas[unvisited.pop()]) - used:
            used.add(name)
            unvisited.append(name)
    for name in schemas.keys() - used:
        del schemas[name]


def _references(part: Document | Sequence[object]) -> set[str]:
    return set(_REFERENCE.findall(json.dumps(part)))


# The documentation page: HTML rendered on the server, without scripts.

#: Placeholder in the samples for the address of the server.
_ADDRESS = "http://127.0.0.1:7100"
#: Host names that are safe in a shell command.
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.875rem/1.5 ui-monospace, monospace; }
pre { padding: 0.75rem; overflow-x: auto; border: 1px solid #8884; border-radius: 0.375rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: start; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; }
th { font-weight: 600; }
details { border-top: 1px solid #8884; padding: 0.5rem 0; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
nav a { margin-inline-end: 1rem; }
"""


def docs_router(app: FastAPI) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    # Built on first use, when all routes are registered, and in a thread, because it would block
    # the event loop and delay due schedules.
    @cache
    def document() -> Document:
        return describe_api(app)

    @cache
    def docs_page() -> str:
        return "".join(_page(document()))

    @router.get("/openapi.json")
    async def openapi() -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(document))

    @router.get("/")
    async def start(request: Request) -> RedirectResponse:
        """Redirects browsers to the dashboard if it is enabled, other clients to /docs."""
        is_browser = "text/html" in request.headers.get("accept", "")
        prefixes = [prefix for prefix, _ in app.state.renderers]
        return RedirectResponse(
            "/ui/" if is_browser and "/ui" in prefixes else "/docs", status_code=307
        )

    @router.get("/docs")
    async def docs(request: Request) -> HTMLResponse:
        page = await asyncio.to_thread(docs_page)
        return HTMLResponse(page.replace(_ADDRESS, escape(_address_of(request))))

    @router.get("/docs/style.css")
    async def style() -> Response:
        return Response(STYLE, media_type="text/css", headers={"Cache-Control": "max-age=3600"})

    return router


def _address_of(request: Request) -> str:
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host}" if _PLAIN_HOST.fullmatch(host) else _ADDRESS


def _page(document: Document) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])} API</title>"
    yield '<link rel="stylesheet" href="/docs/style.css"></head><body>'
    yield f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
    yield f"<p>{escape(info['description'])}</p>"
    groups: dict[str, list[tuple[str, str, Document]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append((method.upper(), path, operation))
    yield '<nav><a href="/openapi.json">openapi.json</a>'
    for tag in groups:
        yield f'<a href="#{escape(tag)}">{escape(tag)}</a>'
    yield '<a href="#schemas">schemas</a></nav>'
    for tag, entries in groups.items():
        yield f'<h2 id="{escape(tag)}">{escape(tag.capitalize())}</h2>'
        for method, path, operation in entries:
            yield from _operation(method, path, operation, document)
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema(name, schema)
    yield "</body></html>"


def _operation(method: str, path: str, operation: Document, document: Document) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary>'
    yield f'<span class="method">{method}</span><code>{escape(path)}</code></summary>'
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    if parameters := operation.get("parameters"):
        yield "<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>"
        for each in parameters:
            yield f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
            yield f"<td>{_type(each['schema'])}</td>"
            yield f"<td>{escape(each.get('description', ''))}</td></tr>"
        yield "</table>"
    body = _body_schema(operation)
    if body is not None:
        yield f"<p>Body: {_type(body)}</p>"
    yield f"<pre>{escape(_curl(method, path, body, document))}</pre>"
    yield "<table><tr><th>Status</th><th></th><th>Body</th></tr>"
    for status, response in sorted(operation["responses"].items()):
        content = response.get("content", {})
        types = ", ".join(_type(kind.get("schema", {})) for kind in content.values())
        yield f"<tr><td>{escape(status)}</td><td>{escape(response.get('description', ''))}</td>"
        yield f"<td>{types}</td></tr>"
    yield "</table></details>"


def _schema(name: str, schema: Document) -> Iterator[str]:
    yield f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    if "enum" in schema:
        yield f"<p>{escape(', '.join(str(word) for word in schema['enum']))}</p>"
    if properties := schema.get("properties"):
        required = schema.get("required", ())
        yield "<table><tr><th>Field</th><th>Type</th><th></th></tr>"
        for field, kind in properties.items():
            needed = " (required)" if field in required else ""
            yield f"<tr><td><code>{escape(field)}</code>{needed}</td><td>{_type(kind)}</td>"
            yield f"<td>{escape(kind.get('description', ''))}</td></tr>"
        yield "</table>"
    if examples := schema.get("examples"):
        yield f"<pre>{escape(json.dumps(examples[0], indent=2))}</pre>"
    yield "</details>"


def _type(schema: Document) -> str:
    """A short HTML description of a schema, with links to named schemas."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(_type(each) for each in choices)
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "title" in schema and schema.get("type") == "object" and "properties" in schema:
        return f"{escape(schema['title'])} ({escape(', '.join(schema['properties']))})"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind: Any = schema.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return escape(" ".join(word for word in (words, schema.get("format", "")) if word))


def _body_schema(operation: Document) -> Document | None:
    content = operation.get("requestBody", {}).get("content", {})
    schema: Document | None = content.get("application/json", {}).get("schema")
    return schema


def _curl(method: str, path: str, body: Document | None, document: Document) -> str:
    line = f"curl -X {method} {_ADDRESS}{path}"
    if body is None:
        return line
    return f"{line} \\\n  -H 'Content-Type: application/json' \\\n  -d '{_example(body, document)}'"


def _example(schema: Document, document: Document) -> str:
    named = schema.get("anyOf", [schema])[0]
    if "$ref" in named:
        named = document["components"]["schemas"].get(named["$ref"].rpartition("/")[2], {})
    if examples := named.get("examples"):
        return json.dumps(examples[0])
    required = {name: named["properties"][name] for name in named.get("required", ())}
    example = {name: (kind.get("examples") or ["…"])[0] for name, kind in required.items()}
    return json.dumps(example, ensure_ascii=False)
