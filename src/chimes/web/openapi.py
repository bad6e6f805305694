"""The OpenAPI document and the documentation page made from it."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.checkpoint import CALLBACK_PATH
from chimes.web.api import field_docs
from chimes.web.api.agent_callbacks import PipelineEnd
from chimes.web.api.responses import HealthOut, JsonObjects, ProblemOut, ReadinessOut, problem
from chimes.web.api.schemas import Trigger

DESCRIPTION = (
    "Durable schedules become runs, exactly one per due slot. Times are in UTC (RFC 3339), "
    "durations in ISO 8601, errors are RFC 9457 problems."
)
COMPAT_DESCRIPTION = (
    "A compatibility API for clients of an older system. It translates requests and adds no "
    "behaviour; new clients use the native API, /openapi.json."
)
#: Name of the document of the native API.
NATIVE = "chimes"
NATIVE_PREFIXES = ("/api/v1/", "/health", "/ready", "/metrics")
_REF = "#/components/schemas/"
_REFERENCE = re.compile(f'"{_REF}([^"]+)"')
#: Names of objects by the type of their values.
_MAPS = {"string": "StringMap", "integer": "IntegerMap"}
#: Examples by format or type.
_SAMPLES: Mapping[str, object] = {
    "date-time": field_docs.MOMENT,
    "duration": "PT10S",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
}
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
#: Models that routes name in references.
_REFERRED = (ProblemOut, HealthOut, ReadinessOut, PipelineEnd, JsonObjects, Trigger)


def operation_id(route: APIRoute) -> str:
    """The name of the handler; compatibility APIs use short names, which need their tag."""
    native = not route.tags or str(route.path).startswith(NATIVE_PREFIXES)
    return route.name if native else f"{route.tags[0]}_{route.name}"


def describe_api(app: FastAPI) -> Document:
    """The document of the native API."""
    return describe_apis(app)[NATIVE]


def describe_apis(app: FastAPI) -> dict[str, Document]:
    """The documents by name: `chimes`, then one per compatibility API."""
    whole = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    schemas: Document = whole.setdefault("components", {}).setdefault("schemas", {})
    _, shared = models_json_schema(
        [(model, "serialization") for model in _REFERRED],
        ref_template="#/components/schemas/{model}",
    )
    schemas.update(shared["$defs"])
    whole["components"]["securitySchemes"] = _SECURITY_SCHEMES
    whole["security"] = [{"bearer": []}, {"key": []}, {}]
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            _add_common_parts(path, method, operation)
    interfaces: Mapping[str, str] = app.state.compat_paths
    documents = {}
    for name in (NATIVE, *dict.fromkeys(interfaces.values())):
        paths = {p: each for p, each in whole["paths"].items() if interfaces.get(p, NATIVE) == name}
        if not paths:
            continue  # The dashboard is not documented.
        document = copy.deepcopy({**whole, "paths": paths})
        if name != NATIVE:
            document["info"]["title"] = f"{app.title}: {name} API"
            document["info"]["description"] = COMPAT_DESCRIPTION
        _add_links(document["paths"])
        documents[name] = _described(document) if name == NATIVE else document
        _drop_unused(documents[name])
    return documents


def merged(documents: Mapping[str, Document]) -> Document:
    """One document with the operations and schemas of all."""
    first, *others = documents.values()
    found = copy.deepcopy(first)
    for each in others:
        found["paths"] |= each["paths"]
        found["components"]["schemas"] |= each["components"]["schemas"]
    return found


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


def _drop_unused(document: Document) -> None:
    """Removes schemas that no path refers to."""
    schemas = document["components"]["schemas"]
    used = _references([document["paths"], document["components"].get("responses")])
    unvisited = list(used)
    while unvisited:
        for name in _references(schemas[unvisited.pop()]) - used:
            used.add(name)
            unvisited.append(name)
    for name in schemas.keys() - used:
        del schemas[name]


def _references(part: Document | Sequence[object]) -> set[str]:
    return set(_REFERENCE.findall(json.dumps(part)))


# What generated clients need: short names, named objects, descriptions and examples.


def _described(document: Document) -> Document:
    schemas = document["components"]["schemas"]
    short = {name: name.removesuffix("Out") for name in schemas}
    text = _REFERENCE.sub(lambda found: f'"{_REF}{short[found[1]]}"', json.dumps(document))
    document = json.loads(text)
    schemas = {short[name]: each for name, each in document["components"]["schemas"].items()}
    assert len(schemas) == len(short), "two schemas have the same name without Out"
    document["components"]["schemas"] = schemas = dict(sorted(schemas.items()))
    unions = {
        str(schema["oneOf"]): name for name, schema in schemas.items() if "discriminator" in schema
    }
    for name, schema in schemas.items():
        _drop_titles(schema)
        schema["title"] = name
        for field in schema.get("properties", {}).values():
            _name_inline(field, unions)
        _describe_schema(name, schema)
    for operations in document["paths"].values():
        for operation in operations.values():
            _describe_operation(operation)
    _name_errors(document)
    samples = _Samples(schemas)
    for name, schema in schemas.items():
        if "enum" not in schema and name != "JsonValue":
            schema["examples"] = [samples.of_schema(name)]
    return document


def _describe_schema(name: str, schema: Document) -> None:
    schema.setdefault("description", field_docs.SCHEMAS.get(name, ""))
    for field, kind in schema.get("properties", {}).items():
        doc = _field_doc(name, field)
        if doc is not None and not kind.get("description"):
            kind["description"] = doc.description
        example = None if doc is None else doc.example
        if example is not None and "const" not in kind:
            kind["examples"] = [example]


def _field_doc(schema: str, field: str) -> field_docs.Doc | None:
    rows = field_docs.FIELDS
    return rows.get(f"{schema}.{field}") or rows.get(field)


def _describe_operation(operation: Document) -> None:
    operation["summary"] = operation["description"].partition(". ")[0].rstrip(".")
    for parameter in operation.get("parameters", ()):
        _drop_titles(parameter["schema"])
        _drop_null(parameter["schema"])
        doc = field_docs.PARAMETERS.get(parameter["name"])
        if doc is not None:
            parameter.setdefault("description", doc.description)
            if doc.example is not None:
                parameter.setdefault("example", doc.example)
        # FastAPI repeats the description in the schema.
        parameter["schema"].pop("description", None)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["schema"].pop("title", None)
        _drop_null(content["schema"])


def _name_errors(document: Document) -> None:
    """Errors that many operations have become components, which are read once."""
    named: Document = {}
    for operations in document["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            for status, response in responses.items():
                if "application/problem+json" in response.get("content", {}):
                    name = HTTPStatus(int(status)).name.title().replace("_", "")
                    if named.setdefault(name, response) == response:
                        responses[status] = {"$ref": f"#/components/responses/{name}"}
    document["components"]["responses"] = dict(sorted(named.items()))


def _drop_null(schema: Document) -> None:
    """An omitted parameter or body is not null; generators would send null instead of no body."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])


def _drop_titles(schema: object) -> None:
    """Removes titles that pydantic derives from names: they say nothing, and some generators name
    types by them."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for key, each in schema.items():
            if key != "examples":
                _drop_titles(each)
    elif isinstance(schema, list):
        for each in schema:
            _drop_titles(each)


def _name_inline(schema: Any, unions: Mapping[str, str]) -> None:
    """Replaces objects without properties, and unions that have a name, by references, so that
    generated clients have no types without a name."""
    if isinstance(schema, list):
        for each in schema:
            _name_inline(each, unions)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and "properties" not in schema:
        values = schema.pop("additionalProperties", True)
        del schema["type"]
        kind = values.get("type") if isinstance(values, dict) else None
        schema["$ref"] = _REF + _MAPS.get(str(kind), "JsonObject")
    elif "discriminator" in schema:
        del schema["discriminator"]
        schema["$ref"] = _REF + unions[str(schema.pop("oneOf"))]
        schema.pop("description", None)
    for key in ("anyOf", "oneOf", "items"):
        _name_inline(schema.get(key), unions)


class _Samples:
    """Examples of schemas, built from the examples of their fields."""

    def __init__(self, schemas: Document) -> None:
        self._schemas = schemas

    def of_schema(self, name: str) -> object:
        schema = self._schemas[name]
        if name in field_docs.EXAMPLES:
            return field_docs.EXAMPLES[name]
        if "properties" not in schema or "examples" in schema:
            return self._of(schema)
        properties = schema["properties"]
        chosen = list(properties)
        if name.endswith(("In", "Patch", "Trigger")):  # requests
            chosen = schema.get("required") or [f for f in chosen if "examples" in properties[f]]
        return {field: self._of(properties[field]) for field in chosen}

    def _of(self, schema: Document) -> object:
        for key in ("examples", "enum"):
            if key in schema:
                return schema[key][0]
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if "$ref" in schema:
            return self.of_schema(schema["$ref"].removeprefix(_REF))
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return None if {"type": "null"} in choices else self._of(choices[0])
        if schema.get("type") == "array":
            return [self._of(schema["items"])]
        if schema.get("type") == "object":
            return {}
        return _SAMPLES.get(schema.get("format") or schema.get("type", ""), "text")


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
    def documents() -> dict[str, Document]:
        return describe_apis(app)

    @cache
    def docs_page() -> str:
        return "".join(_page(documents()))

    @router.get("/openapi.json")
    async def openapi() -> JSONResponse:
        return JSONResponse((await asyncio.to_thread(documents))[NATIVE])

    @router.get("/openapi/{name}.json")
    async def openapi_of(name: str) -> JSONResponse:
        found = await asyncio.to_thread(documents)
        if name not in found:
            raise NotFound(_("the documents are {names}", names=", ".join(found)))
        return JSONResponse(found[name])

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


def _page(documents: Mapping[str, Document]) -> Iterator[str]:
    document = merged(documents)
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
    for name in documents:
        yield f'<a href="/openapi/{escape(name)}.json">{escape(name)}.json</a>'
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
        if "$ref" in response:
            response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
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
