"""Runs that other engines execute: a node is killed between hand-over and result, and another one
follows. One task over there, one result here."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers import RABBITMQ, shared
from tests.servers.redis_places import empty_redis_url
from tests.system.conftest import Start
from tests.system.engines import celery_worker, dask_cluster
from tests.system.node import Node, wait_until
from tests.system.test_crashes import SHORT_LEASE, STEADY


def write_connections(file: Path, **connections: dict[str, Any]) -> dict[str, str]:
    file.write_text(yaml.safe_dump({"connections": connections}))
    file.chmod(0o600)
    return {"CHIMES_CONFIG": str(file)}


def start_run(node: Node, target: dict[str, Any], **policy: Any) -> str:
    answer = node.call("POST", "/api/v1/runs", {"target": target, "policy": policy})
    assert answer.status == 202, answer.text
    return str(answer.json["id"])


def ended(node: Node, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = node.get(f"/api/v1/runs/{run_id}")
        return found if found["finished_at"] else None

    try:
        return wait_until(look, f"the end of {run_id}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {lines_of(node, run_id)}") from None


def lines_of(node: Node, run_id: str) -> list[str]:
    return [each["message"] for each in node.get(f"/api/v1/runs/{run_id}/logs")["items"]]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "engines", [("rabbit",), pytest.param(("cache", "grid"), marks=pytest.mark.long)], ids="-".join
)
def test_killed_node_leaves_one_task_over_there_and_another_node_gets_its_result(
    engines: tuple[str, ...], sqlite: str, start: Start, tmp_path: Path
) -> None:
    """Celery over RabbitMQ; Celery over Redis and Dask."""
    with ExitStack() as stack:
        connections, targets = {}, {}
        for name in engines:
            connections[name], targets[name] = _ENGINES[name](stack, tmp_path)
        file = write_connections(tmp_path / "chimes.yaml", **connections)
        first = start(sqlite, **SHORT_LEASE, **file)
        runs = {name: start_run(first, each, timeout="3m") for name, each in targets.items()}
        for name, run_id in runs.items():
            begun = tmp_path / f"{run_id}.begun"
            wait_until(begun.exists, f"{name} begins: {first.output}")
            wait_for_line(first, run_id, "Handed over")
        first.kill()
        second = start(sqlite, **STEADY, **file)
        for run_id in runs.values():
            wait_for_line(second, run_id, "Following")
        (tmp_path / "go").touch()
        for name, run_id in runs.items():
            run = ended(second, run_id)
            assert (run["status"], run["attempt"]) == ("succeeded", 2), (name, run)
            assert run["result"]["value"] == {"name": run_id, "times": 1}, name
            assert run["result"]["id"] == run_id
        if "rabbit" in runs:
            # Nothing is kept over there once the end is stored.
            rabbit = connections["rabbit"]["url"]
            wait_until(lambda: not _result_queue_exists(rabbit, runs["rabbit"]), "a deleted queue")


def wait_for_line(node: Node, run_id: str, text: str) -> None:
    wait_until(lambda: any(text in each for each in lines_of(node, run_id)), f"the line {text!r}")


#: A connection and a target whose function waits for the test.
Prepared = tuple[dict[str, Any], dict[str, Any]]


def _rabbit(stack: ExitStack, directory: Path) -> Prepared:
    url, queue = shared(RABBITMQ).url, f"jobs-{secrets.token_hex(4)}"
    stack.enter_context(celery_worker(url, "rpc://", directory / "rabbit.log", queue))
    target = {"task": "tests.wait", "args": [str(directory), "{{run_id}}"]}
    return (
        {"kind": "celery", "url": url, "queue": queue},
        {"kind": "celery", "connection": "rabbit"} | target,
    )


def _cache(stack: ExitStack, directory: Path) -> Prepared:
    url, queue = empty_redis_url().partition("?")[0], f"jobs-{secrets.token_hex(4)}"
    stack.enter_context(celery_worker(url, url, directory / "redis.log", queue))
    given = {"directory": str(directory), "name": "{{run_id}}"}
    return (
        {"kind": "celery", "url": url, "queue": queue},
        {"kind": "celery", "connection": "cache", "task": "tests.wait", "kwargs": given},
    )


def _grid(stack: ExitStack, directory: Path) -> Prepared:
    url = stack.enter_context(dask_cluster(directory / "dask.log"))
    target = {"connection": "grid", "args": [str(directory), "{{run_id}}"]}
    function = "tests.system.engine_tasks:wait_and_count"
    return {"kind": "dask", "url": url}, {"kind": "dask", "function": function} | target


_ENGINES = {"rabbit": _rabbit, "cache": _cache, "grid": _grid}


def _result_queue_exists(url: str, run_id: str) -> bool:
    from amqp.exceptions import NotFound
    from kombu import Connection

    with Connection(url) as connection:
        try:
            connection.channel().queue_declare(f"chimes.result.{run_id}", passive=True)
        except NotFound:
            return False
        return True
