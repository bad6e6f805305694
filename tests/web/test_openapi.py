"""The OpenAPI documents: what generated clients need."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from chimes.web.api import field_docs
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.openapi import describe_api
from tests.web.rig import serving

Document = dict[str, Any]
REF = "#/components/schemas/"


@pytest.fixture(scope="module")
def document() -> Document:
    async def describe() -> Document:
        async with serving(documented=False) as rig:
            return describe_api(rig.app)

    return asyncio.run(describe())


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


async def test_everything_is_described_by_a_row_that_is_used(document: Document) -> None:
    """A row for a new field belongs in `chimes.web.api.field_docs`, if its model has none."""
    missing: list[str] = []
    used: set[str] = set()
    for name, schema in document["components"]["schemas"].items():
        missing += [] if schema.get("description") else [name]
        for field, kind in schema.get("properties", {}).items():
            missing += [] if kind.get("description") else [f"{name}.{field}"]
            used |= {name, field, f"{name}.{field}"}
        used.add(name)
    for name, operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            used.add(parameter["name"])
            if not parameter.get("description"):
                missing.append(f"{name} {parameter['name']}")
    assert not missing, " ".join(missing)
    rows = {*field_docs.FIELDS, *field_docs.SCHEMAS, *field_docs.EXAMPLES, *field_docs.PARAMETERS}
    assert rows - used == set()


async def test_every_operation_has_valid_examples(document: Document) -> None:
    schemas = document["components"]["schemas"]
    wrong: list[str] = []
    for name, schema in schemas.items():
        validator = jsonschema_rs.validator_for({**schema, "components": {"schemas": schemas}})
        for example in schema.get("examples", ()):
            wrong += [
                f"{name}{''.join(f'/{part}' for part in error.instance_path)}: {error.message}"
                for error in validator.iter_errors(example)
            ]
    assert wrong == []
    for name, operation in _operations(document):
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [
            response.get("content", {})
            for status, response in operation["responses"].items()
            if status.startswith("2")
        ]
        for each in contents:
            for kind, content in each.items():
                # The body of a webhook is any JSON.
                if kind == "application/json" and content["schema"]:
                    found = content["schema"]["$ref"].removeprefix(REF)
                    assert schemas[found]["examples"], name


async def test_examples_of_requests_are_accepted(document: Document) -> None:
    """Of those that need no other object."""
    paths = [
        "/api/v1/schedules",
        "/api/v1/runs",
        "/api/v1/preview",
        "/api/v1/explain",
        "/api/v1/parse",
        "/api/v1/keys",
        "/api/v1/me/filters",
    ]
    schemas = document["components"]["schemas"]
    async with serving() as rig:
        for path in paths:
            content = document["paths"][path]["post"]["requestBody"]["content"]
            (name,) = re.findall(f"{REF}(.+)", content["application/json"]["schema"]["$ref"])
            example = schemas[name]["examples"][0]
            if path == "/api/v1/runs":
                example = example | {"target": schemas["HttpTargetIn"]["examples"][0]}
            answer = await rig.client.post(path, json=example)
            assert answer.status_code < 300, (path, example, answer.text)
            if path == "/api/v1/keys":
                rig.client.headers["Authorization"] = f"Bearer {answer.json()['key']}"


def _unnamed(schema: Any, where: str) -> Iterator[str]:
    if isinstance(schema, dict):
        if "properties" in schema or "additionalProperties" in schema or "discriminator" in schema:
            yield where
        for key in ("anyOf", "oneOf", "allOf", "items"):
            yield from _unnamed(schema.get(key), where)
    elif isinstance(schema, list):
        for each in schema:
            yield from _unnamed(each, where)


async def test_objects_and_unions_have_names(document: Document) -> None:
    found: list[str] = []
    for name, schema in document["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            found += _unnamed(kind, f"{name}.{field}")
    for name, operation in _operations(document):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                found += _unnamed(content.get("schema"), name)
    assert found == []
    schemas = document["components"]["schemas"]
    kinds = {"cron", "every", "once", "any", "rrule", "business_day", "sun"}
    kinds |= {"webhook", "run_end", "file", "sql"}
    assert set(schemas["Trigger"]["discriminator"]["mapping"]) == kinds
    assert schemas["ScheduleIn"]["properties"]["trigger"]["$ref"] == f"{REF}Trigger"
    assert schemas["Schedule"]["properties"]["target"]["$ref"] == f"{REF}Target"
    assert not [name for name in schemas if name.endswith("Out")]


async def test_operation_ids_are_verbs_of_one_document(document: Document) -> None:
    ids = [operation["operationId"] for _name, operation in _operations(document)]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)+", each)] == []


async def test_compatibility_apis_have_documents_of_their_own() -> None:
    async with serving(routers=[ksana_router, catbird_router]) as rig:
        native = (await rig.client.get("/openapi.json")).json()
        assert (await rig.client.get("/openapi/chimes.json")).json() == native
        ksana = (await rig.client.get("/openapi/ksana.json")).json()
        catbird = (await rig.client.get("/openapi/catbird.json")).json()
        unknown = await rig.client.get("/openapi/cron.json")
    assert "/jobs" in ksana["paths"]
    assert [*catbird["paths"]] == ["/api/schedules"]
    assert not {*native["paths"]} & {*ksana["paths"], *catbird["paths"]}
    for each in (native, ksana, catbird):
        named = set(re.findall(f'"{REF}([^"]+)"', json.dumps(each)))
        assert named == set(each["components"]["schemas"])
    assert unknown.status_code == 404
    assert "chimes, ksana, catbird" in unknown.json()["detail"]
