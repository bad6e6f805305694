"""Registry of tasks: names, options, policy, queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import AlreadyExists, InvalidInput, NotFound
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.targets.python import Isolation, PythonTask, Registry, Task
from tests.tables import each_row


def plain() -> None: ...


async def awaited() -> None: ...


def a_task(**given: Any) -> Task:
    return Task(**({"name": "mail", "function": plain} | given))


def test_registry_returns_tasks_by_name() -> None:
    registry = Registry()
    first = registry.add(a_task())
    second = registry.add(a_task(name="flow/step"))
    assert registry.get("mail") is first
    assert registry.names == ("mail", "flow/step")
    assert list(registry) == [first, second]
    assert "mail" in registry
    assert len(registry) == 2


def test_duplicate_task_name_is_rejected() -> None:
    registry = Registry()
    registry.add(a_task())
    with pytest.raises(AlreadyExists, match=r"'mail': .*plain and .*awaited"):
        registry.add(a_task(function=awaited))


def test_unknown_task_name_suggests_the_nearest() -> None:
    registry = Registry()
    registry.add(a_task())
    with pytest.raises(NotFound, match=r"'mial' here; did you mean 'mail'\?"):
        registry.get("mial")
    with pytest.raises(NotFound, match=r"'other' here$"):
        registry.get("other")


@pytest.mark.parametrize(
    "name", ["", "two words", "a\tb", "a\nb", "a\x00", "x" * 201, "a\u2028b", 5]
)
def test_invalid_task_names_are_rejected(name: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        a_task(name=name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("name", ["a", "mail.send", "flow/step", "ส่ง", "送信", "x" * 200, "a:b"])
def test_valid_task_names(name: str) -> None:
    assert a_task(name=name).name == name


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@each_row(
    ("given", "field"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": None}, "retries"),
        ({"retries": "3"}, "retries"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": 5}, "timeout"),
        ({"retry_backoff": timedelta(seconds=-1)}, "retry_backoff"),
        ({"backoff": "linear"}, "backoff"),
        ({"on_lost": "cry"}, "on_lost"),
        ({"isolation": "vm"}, "isolation"),
        ({"function": awaited, "isolation": "thread"}, "isolation"),
        ({"concurrency": 0}, "concurrency"),
        ({"queue": "two words"}, "queue"),
        ({"priority": "high"}, "priority"),
        ({"function": 5}, "function"),
        ({"function": generator}, "function"),
        ({"function": async_generator}, "function"),
        ({"on_failure": "mail me"}, "on_failure"),
        ({"memory_limit": 10**9}, "memory_limit"),
        ({"memory_limit": 1000, "isolation": "process"}, "memory_limit"),
    ],
)
def test_error_of_an_invalid_option_names_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=r"mail|queue") as caught:
        a_task(**given)
    assert caught.value.field == field


class Sender:
    async def __call__(self) -> None: ...

    async def send(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "isolation", "mode"),
    [
        (plain, None, Isolation.THREAD),
        (plain, "inline", Isolation.INLINE),
        (plain, "process", Isolation.PROCESS),
        (awaited, None, Isolation.INLINE),
        (awaited, Isolation.PROCESS, Isolation.PROCESS),
        (Sender(), None, Isolation.INLINE),
        (Sender().send, None, Isolation.INLINE),
    ],
)
def test_isolation_mode_of_a_function(
    function: Any, isolation: str | None, mode: Isolation
) -> None:
    assert a_task(function=function, isolation=isolation).mode is mode


def test_task_options_override_the_policy() -> None:
    base = Policy(misfire=Misfire.SKIP, overlap=Overlap.ALLOW)
    task = a_task(
        retries=3,
        retry_backoff=timedelta(seconds=2),
        backoff="exponential",
        timeout=timedelta(seconds=7),
        on_lost="stop",
    )
    assert task.policy(base) == Policy(
        misfire=Misfire.SKIP,
        overlap=Overlap.ALLOW,
        max_retries=3,
        retry_backoff=timedelta(seconds=2),
        backoff=Backoff.EXPONENTIAL,
        timeout=timedelta(seconds=7),
        on_lost=OnLost.STOP,
    )
    assert task.policy(base).backoff is Backoff.EXPONENTIAL
    assert a_task().policy(base).timeout == timedelta(minutes=5)
    limited = a_task(concurrency=4).policy(base)
    assert limited.concurrency_key == "task:mail"
    assert limited.concurrency_limit == 4
    assert limited.overlap is Overlap.QUEUE


async def test_capabilities_are_the_tasks_of_the_nodes_queues() -> None:
    registry = Registry()
    registry.add(a_task(name="a"))
    registry.add(a_task(name="b", queue="slow"))
    assert PythonTask(registry).capabilities == {"task:a", "task:b"}
    assert PythonTask(registry, queues=["slow"]).capabilities == {"task:b"}
    assert PythonTask(registry, queues=[]).capabilities == frozenset()
    runner = PythonTask(registry, queues=["default"])
    assert runner.kind == "task"
    await runner.open()
    registry.add(a_task(name="c"))
    registry.add(a_task(name="d", queue="slow"))
    assert runner.capabilities == {"task:a", "task:c"}, "tasks declared while the node runs count"
    await runner.close()
