"""Quotas and rate limits across nodes: real processes on one store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import pytest

from tests.system.conftest import Start
from tests.system.node import Answer, Node

pytestmark = pytest.mark.timeout(120)
ROOT = {"X-API-Key": "root-token"}
DAILY = {"task": "news", "schedule_type": "cron", "cron_expr": "0 9 * * *"}


def nodes_with_keys(start: Start, store: str, **more: str) -> list[Node]:
    return [start(store, CHIMES_ADMIN_TOKEN="root-token", **more) for _ in range(2)]


def member(node: Node, owner: str) -> dict[str, str]:
    body = {"name": "x", "role": "member", "owner": {"type": "user", "id": owner}}
    made = node.call("POST", "/api/v1/keys", body, ROOT)
    assert made.status == 201, made
    return {"X-API-Key": made.json["key"]}


def call_concurrently(nodes: list[Node], count: int, ask: Callable[[Node], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(16) as pool:
        turns = cycle(nodes)
        waiting = [pool.submit(ask, next(turns)) for _ in range(count)]
        return [each.result() for each in waiting]


def test_quota_is_shared_by_all_nodes(sqlite: str, start: Start) -> None:
    nodes = nodes_with_keys(start, sqlite, CHIMES_REQUESTS_PER_SECOND="1000")
    anna = member(nodes[0], "anna")
    answers = call_concurrently(
        nodes, 40, lambda node: node.call("POST", "/schedules", DAILY, anna)
    )
    codes = sorted(answer.status for answer in answers)
    assert codes == [200] * 20 + [409] * 20
    refused = next(answer for answer in answers if answer.status == 409)
    assert refused.json["quota"] == "active_schedules"
    listed = nodes[1].call("GET", "/schedules", headers=anna).json["items"]
    assert len(listed) == 20
    report = nodes[0].call("GET", "/api/v1/audit/verify", headers=ROOT).json
    assert report["ok"] is True
    # One key and twenty schedules; refused requests may be audited as well.
    assert 21 < report["checked"] <= 41


def test_rate_limit_is_shared_by_all_nodes(sqlite: str, start: Start) -> None:
    nodes = nodes_with_keys(start, sqlite, CHIMES_REQUESTS_PER_SECOND="2")
    anna = member(nodes[0], "anna")
    began = time.monotonic()
    answers = call_concurrently(
        nodes, 200, lambda node: node.call("GET", "/schedules", headers=anna)
    )
    took = time.monotonic() - began
    passed = sum(answer.status == 200 for answer in answers)
    assert 4 <= passed <= 4 + 2 * took + 1
    late = next(answer for answer in answers if answer.status == 429)
    headers = {name.lower(): value for name, value in late.headers.items()}
    assert int(headers["retry-after"]) >= 1
    assert (headers["ratelimit-limit"], headers["ratelimit-remaining"]) == ("4", "0")
