"""No input causes a 500, and a refused request changes nothing."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.web.rig import Rig, definition, serving

FULL = definition(
    id="x",
    policy={"misfire": "one", "timeout": "5s", "max_retries": 2},
    labels={"a": "b"},
    priority=1,
    enabled=True,
    depends_on={"schedule_id": "base", "within": "1h"},
    trigger={"kind": "every", "every": "1h", "anchor": "2030-01-15T00:00:00Z", "max_runs": 3},
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["", "1h", "PT1S", "2030-02-01T00:00:00Z", "* * * * *", "UTC", "http://a.b/", "cron", "***"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for name, item in value.items():
            found += places(item, (*path, name))
    return found


def put(body: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    inside: Any = changed
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    return changed


async def sent(method: str, path: str, body: object) -> None:
    async with serving() as rig:
        await rig.create(id="base")
        await check(rig, method, path, json.dumps(body))


async def check(rig: Rig, method: str, path: str, text: str) -> None:
    before = await rig.snapshot()
    answer = await rig.client.request(
        method,
        path,
        content=text.encode("utf-8", "surrogatepass"),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert await rig.snapshot() == before


@examples(150)
@given(st.sampled_from(places(FULL)), json_values)
def test_random_value_in_a_definition(path: tuple[Any, ...], value: object) -> None:
    asyncio.run(sent("POST", "/api/v1/schedules", put(FULL, path, value)))


@examples(100)
@given(st.sampled_from(places(FULL)), json_values)
def test_random_value_in_a_change(path: tuple[Any, ...], value: object) -> None:
    body = {path[0]: put(FULL, path, value)[path[0]]}
    asyncio.run(sent("PATCH", "/api/v1/schedules/base", body))


@examples(100)
@given(
    st.sampled_from(
        [
            "schedules",
            "preview",
            "explain",
            "keys",
            *(
                f"schedules/base/{action}"
                for action in ("pause", "resume", "run", "skip", "move", "reschedule", "backfill")
            ),
        ]
    ),
    json_values
    | st.fixed_dictionaries(
        {},
        optional={
            "to": json_values,
            "from": json_values,
            "until": json_values,
            "trigger": json_values,
            "count": json_values,
            "expression": json_values,
            "name": json_values,
            "role": st.sampled_from(["admin", "viewer"]) | json_values,
        },
    ),
)
def test_random_json_body(path: str, body: object) -> None:
    asyncio.run(sent("POST", f"/api/v1/{path}", body))
