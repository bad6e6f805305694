"""Typed arguments of Python tasks: JSON in the store, Python values in the function."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel

from chimes.errors import InvalidInput
from chimes.targets.python import Context, Task, check, dump
from chimes.targets.python.arguments import bind, parameters_of
from chimes.targets.python.context import run_info_of
from tests.builders import NOW, a_run
from tests.tables import each_row

CONTEXT = Context(
    run_info_of(a_run(), "t", started_at=NOW, began=0.0, timeout=timedelta(seconds=9)),
    lambda level, message: None,
)


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class RunRequest(BaseModel):
    sku: str
    count: int
    api_key: str = ""


def a_task(function: Any, name: str = "t") -> Task:
    return Task(name=name, function=function)


def call_task(task: Task, args: dict[str, object]) -> Any:
    bound = bind(task, args, CONTEXT)
    return task.function(*bound.args, **bound.kwargs)


def of_type(annotation: object) -> Task:
    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = annotation
    return a_task(take)


@each_row(
    ("annotation", "value", "stored"),
    [
        (int, 3, 3),
        (float, 3, 3),
        (float, 1.5, 1.5),
        (str, "ä\n", "ä\n"),
        (bool, True, True),
        (None, None, None),
        (datetime, datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00Z"),
        (date, date(2026, 1, 2), "2026-01-02"),
        (timedelta, timedelta(minutes=90), "PT1H30M"),
        (
            UUID,
            UUID("12345678-1234-5678-1234-567812345678"),
            "12345678-1234-5678-1234-567812345678",
        ),
        (Decimal, Decimal("0.10"), "0.10"),
        (Colour, Colour.RED, "red"),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (RunRequest, RunRequest(sku="a", count=2), {"sku": "a", "count": 2, "api_key": ""}),
        (Optional[int], None, None),  # noqa: UP045 - both ways to write it
        (int | None, 4, 4),
        (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
        (dict[str, Decimal], {"a": Decimal(1)}, {"a": "1"}),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (set[int], {5}, [5]),
        (bytes, b"abc", "abc"),
        (Path, Path("/a/b"), "/a/b"),
        (Literal["a", "b"], "b", "b"),
        (Any, {"a": [1, None]}, {"a": [1, None]}),
        (object, "x", "x"),
    ],
    ids=str,
)
def test_argument_values_round_trip_through_json(
    annotation: object, value: object, stored: object
) -> None:
    task = of_type(annotation)
    dumped = dump(task, {"value": value})
    assert dumped == {"value": stored}
    assert type(dumped["value"]) is type(stored)
    back = call_task(task, dumped)
    assert back == value
    assert annotation is float or type(back) is type(value)


@each_row(
    ("annotation", "value", "said"),
    [
        (int, "5", 'must be int, got "5" (str): input should be a valid integer'),
        (int, True, "must be int, got true (bool)"),
        (int, 1.5, "must be int, got 1.5 (float)"),
        (str, 5, "must be str, got 5 (int)"),
        (bool, 1, "must be bool, got 1 (int)"),
        (datetime, "tomorrow", 'must be datetime.datetime, got "tomorrow" (str)'),
        (UUID, "x", "must be uuid.UUID"),
        (Colour, "blue", "Colour"),
        (Literal["a"], "b", "input should be 'a'"),
        (list[int], [1, "two"], 'must be list[int], got "two" (str) at [1]'),
        (Point, {"x": "1"}, "Point, got \"1\" (str) at ['x']"),
        (RunRequest, {"sku": "a"}, "at ['count']: field required"),
        (int, None, "must be int, got null (NoneType)"),
        (str, "x" * 500, None),
        (int, "y" * 500, "yyy…"),
    ],
    ids=str,
)
def test_error_of_a_wrong_value_names_the_expected_type(
    annotation: object, value: object, said: str | None
) -> None:
    task = of_type(annotation)
    if said is None:
        check(task, {"value": value})
        return
    with pytest.raises(InvalidInput) as caught:
        check(task, {"value": value})
    assert caught.value.field == "value"
    assert "task 't': argument 'value'" in caught.value.message
    assert said in caught.value.message
    assert len(caught.value.message) < 400


def test_argument_names_are_checked() -> None:
    def send(recipient: str, subject: str = "hi") -> None: ...

    task = a_task(send)
    with pytest.raises(InvalidInput, match=r"'recipient' \(str\) is missing"):
        check(task, {})
    with pytest.raises(InvalidInput, match=r"no argument 'recipent'; did you mean 'recipient'\?"):
        check(task, {"recipent": "a"})
    with pytest.raises(InvalidInput, match="it takes recipient, subject"):
        check(task, {"zzz": "a"})
    with pytest.raises(InvalidInput, match="it takes no arguments"):
        check(a_task(lambda: None), {"a": 1})


def test_secret_argument_values_are_not_in_errors() -> None:
    def login(password: int, order: RunRequest) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        check(a_task(login), {"password": "hunter22", "order": {}})
    assert "hunter22" not in caught.value.message
    with pytest.raises(InvalidInput) as caught:
        check(
            a_task(login),
            {"password": 1, "order": {"sku": "a", "count": 1, "api_key": ["hunter22"]}},
        )
    assert "hunter22" not in caught.value.message


def test_every_kind_of_parameter_is_bound() -> None:
    def first(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> object:
        return a, b, rest, c, more

    task = a_task(first)
    args: dict[str, object] = {"a": 1, "b": 2, "x": 9}
    assert call_task(task, args) == (1, 2, (), 3, {"x": 9})
    with pytest.raises(InvalidInput, match="'x' must be int"):
        check(task, args | {"x": "9"})


def test_context_parameter_is_injected() -> None:
    def by_name(context: int, a: int) -> object:
        return context, a

    def by_type(a: int, me: Context) -> object:
        return me, a

    def maybe(a: int, me: Context | None = None) -> object:
        return me, a

    def first(me: Context, /, a: int) -> object:
        return me, a

    for function in (by_name, by_type, maybe, first):
        task = a_task(function)
        assert call_task(task, {"a": 1}) == (CONTEXT, 1)
        assert list(parameters_of(function).named) == ["a"]
        for name in ("context", "me"):
            with pytest.raises(InvalidInput, match="has no argument"):
                check(task, {"a": 1, name: 2})


def test_methods_partials_and_callable_objects_can_be_tasks() -> None:
    class Mailer:
        def send(self, to: str) -> str:
            return to

        def __call__(self, to: str) -> str:
            return to

    @dataclass
    class Unhashable:
        greeting: str

        def __call__(self, to: str) -> str:
            return self.greeting + to

    def add(a: int, b: int) -> int:
        return a + b

    for function in (Mailer().send, Mailer(), Unhashable("")):
        assert call_task(a_task(function), {"to": "me"}) == "me"
        with pytest.raises(InvalidInput, match="'to' must be str"):
            check(a_task(function), {"to": 1})
    task = a_task(functools.partial(add, b=2))
    assert call_task(task, {"a": 1}) == 3
    with pytest.raises(InvalidInput, match="'a' must be int"):
        check(task, {"a": "1"})


def test_unsupported_signatures_are_rejected_on_declaration() -> None:
    class Opaque:
        pass

    def opaque(a: Opaque) -> Opaque:
        return a

    def unknown(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    def late(a: int, context: Context, /) -> None: ...

    opaque.__annotations__["a"] = Opaque
    with pytest.raises(InvalidInput, match=r"'a' of .*opaque\(\): .*Opaque cannot come from JSON"):
        a_task(opaque)
    with pytest.raises(InvalidInput, match="its type 'Nowhere' cannot be found"):
        a_task(unknown)
    with pytest.raises(InvalidInput, match="must come first"):
        a_task(late)
    with pytest.raises(InvalidInput, match="signature"):
        a_task(min)


def test_unresolvable_return_annotation_is_ignored() -> None:
    def fine(a: int) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return a

    assert call_task(a_task(fine), {"a": 1}) == 1


@pytest.mark.parametrize(
    "value", [object(), float("nan"), float("inf"), {1: object()}, "a\x00b", ["\ud800"], b"\xff"]
)
def test_values_that_are_not_json_are_rejected(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        dump(a_task(lambda value: value), {"value": value})
    assert caught.value.field == "value"


def test_circular_values_are_rejected() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="not JSON serializable"):
        dump(a_task(lambda value: value), {"value": loop})
