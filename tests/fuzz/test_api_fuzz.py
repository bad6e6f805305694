"""Random requests to `chimes serve`, generated from its OpenAPI document by Schemathesis.

No response is a 5xx, every status, content type and body is as documented, and a request that
violates the document is refused. `CHIMES_FUZZ_SEED=7` generates other requests; the seed is in the
output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from chimes.web.openapi import merged
from tests.fuzz.documents import mostly_valid
from tests.system.node import Node

SEED = int(os.environ.get("CHIMES_FUZZ_SEED", "1"))
TOKEN = "token-of-the-administrator-0123456789"
#: The native API and every compatibility API.
DOCUMENTS = ("chimes", "ksana", "catbird", "eventnative", "softnix", "kweaver")
ROLES = ("viewer", "member", "operator", "admin")
#: Nothing is called: the only address that callbacks may use refuses connections.
NOWHERE = "127.0.0.1:9"
#: A document cannot say which requests are valid (time zones, cron expressions, rules between
#: fields), and two documented paths can match one request (`/schedules/parse`).
EXCLUDED = "positive_data_acceptance,allow_header_conformance"
#: Only links of the document: those that are guessed connect everything with everything.
CONFIG = """
[phases.stateful.inference]
algorithms = []

[checks.negative_data_rejection]
# 413: a list with too many elements may also be too large a body.
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""


class Api:
    """The API of a node, for a key of one role."""

    def __init__(self, node: Node, role: str) -> None:
        self.node = node
        self.url = f"http://127.0.0.1:{node.port}"
        documents = {name: node.get(f"/openapi/{name}.json") for name in DOCUMENTS}
        self.document: dict[str, Any] = merged(documents)
        # A stream that does not end: tests/web/test_events_api.py.
        del self.document["paths"]["/api/v1/events"]
        for operations in self.document["paths"].values():
            for operation in operations.values():
                _accept_null(operation.get("requestBody", {}))
        key = TOKEN if role == "admin" else self._key(role)
        self.headers = {"Authorization": f"Bearer {key}"}
        if role == "admin":
            self.headers["X-Internal-Token"] = TOKEN

    def _key(self, role: str) -> str:
        answer = self.node.call(
            "POST",
            "/api/v1/keys",
            {"name": role, "role": role},
            {"Authorization": f"Bearer {TOKEN}"},
        )
        assert answer.status == 201, answer
        key: str = answer.json["key"]
        return key

    def fuzz(self, directory: Path, *options: str, within: float) -> None:
        """Runs Schemathesis by the document as it is."""
        document = directory / "openapi.json"
        document.write_text(json.dumps(self.document))
        config = directory / "schemathesis.toml"
        config.write_text(CONFIG)
        headers = [
            part for name, value in self.headers.items() for part in ("-H", f"{name}:{value}")
        ]
        found = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", config),
                *("run", document, "--url", self.url, *headers, "--seed", str(SEED)),
                *("--exclude-checks", EXCLUDED, "--generation-database", "none", "--no-color"),
                *("--request-timeout", "60", "--suppress-health-check", "all", "--no-shrink"),
                *options,
            ],
            capture_output=True,
            text=True,
            timeout=within,
            cwd=directory,
        )
        print(f"seed {SEED}")
        assert found.returncode == 0, found.stdout[:20000] + found.stderr[-5000:]

    def follow_links(self, *, examples: int, below: str = "/") -> Counter[str]:
        """Creates objects and calls every operation that takes their ids, DELETE last. Counts the
        successful calls of each operation. `below`: only paths with this prefix."""
        document = mostly_valid(self.document)
        document["paths"] = {
            path: item for path, item in document["paths"].items() if path.startswith(below)
        }
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=self.url)
        found = [each.ok() for each in schema.get_all_operations()]
        operations = {each.definition.raw["operationId"]: each for each in found}
        succeeded: Counter[str] = Counter()
        for name, operation in operations.items():
            if links := _links(operation.definition.raw):
                self._follow(operations, name, links, examples, succeeded)
        print(f"seed {SEED}, successful calls: {dict(succeeded)}")
        return succeeded

    def _follow(
        self,
        operations: dict[str, Any],
        creation: str,
        links: dict[str, Any],
        examples: int,
        succeeded: Counter[str],
    ) -> None:
        order = sorted(links, key=lambda each: operations[each].method.upper() == "DELETE")

        # All requests are generated before the first is sent: what is generated must not depend on
        # responses.
        strategies = [
            operations[name].as_strategy(generation_mode=GenerationMode.POSITIVE)
            for name in (creation, *order)
        ]

        def call(name: str, case: Any) -> Any:
            answer = case.call_and_validate(
                headers=self.headers, excluded_checks=[positive_data_acceptance], timeout=60
            )
            succeeded[name] += answer.status_code < 300
            return answer

        @seed(SEED)
        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        )
        @given(st.tuples(*strategies))
        def follow(cases: tuple[Any, ...]) -> None:
            first, *others = cases
            answer = call(creation, first)
            for link, case in zip(order, others, strict=True) if answer.status_code < 300 else ():
                path = {
                    parameter.removeprefix("path."): first.path_parameters["kn_id"]
                    if value.startswith("$request.path")
                    else _at(answer.json(), value)
                    for parameter, value in links[link]["parameters"].items()
                }
                case.path_parameters = {**(case.path_parameters or {}), **path}
                call(link, case)

        follow()


def _accept_null(body: dict[str, Any]) -> None:
    """Documents that null is the same as no body, which clients need not know."""
    if not body.get("required", False):
        for content in body.get("content", {}).values():
            content["schema"] = {"anyOf": [content["schema"], {"type": "null"}]}


def _links(operation: dict[str, Any]) -> dict[str, Any]:
    for status, response in operation["responses"].items():
        if status.startswith("2") and "links" in response:
            links: dict[str, Any] = response["links"]
            return links
    return {}


def _at(body: Any, pointer: str) -> str:
    """The value at `$response.body#/a/b`."""
    for name in pointer.partition("#/")[2].split("/"):
        body = body[name]
    assert isinstance(body, str), body
    return body


@pytest.fixture(params=["sqlite", "postgresql"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "sqlite":
        store = f"sqlite:///{tmp_path}/chimes.db"
    else:
        store = request.getfixturevalue("postgres_url")
    node = Node(
        store,
        tmp_path,
        CHIMES_ADMIN_TOKEN=TOKEN,
        CHIMES_INTERNAL_TOKEN=TOKEN,
        CHIMES_REQUESTS_PER_SECOND="100000",
        CHIMES_MAX_ACTIVE_PER_OWNER="0",
        CHIMES_MAX_SCHEDULES_PER_OWNER="100000",
        CHIMES_EGRESS_ALLOW=NOWHERE,
        CHIMES_EGRESS_ONLY=NOWHERE,
        CHIMES_LOG_LEVEL="error",
    )
    try:
        yield node.start()
        assert node.stop() == 0
        assert "Traceback" not in node.output, node.output
    finally:
        node.close()


def test_linked_operations_keep_to_the_document(node: Node) -> None:
    succeeded = Api(node, "admin").follow_links(examples=3, below="/api/v1/schedules")
    assert succeeded["create_schedule"], succeeded
    assert succeeded["delete_schedule"], succeeded


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", ROLES)
def test_random_requests_keep_to_the_document(node: Node, role: str, tmp_path: Path) -> None:
    api = Api(node, role)
    api.fuzz(tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "15", within=1700)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_boundary_values_keep_to_the_document(node: Node, tmp_path: Path) -> None:
    """Of every field: about 6,000 requests."""
    Api(node, "admin").fuzz(tmp_path, "--phases", "coverage", within=1700)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", ROLES)
def test_long_sequences_keep_to_the_document(node: Node, role: str) -> None:
    succeeded = Api(node, role).follow_links(examples=40)
    creates = role in ("member", "admin")
    assert bool(succeeded["create_schedule"]) is creates, succeeded
    if role == "admin":
        assert not [name for name in succeeded if name.endswith("delete") and not succeeded[name]]
