"""The tasks that an application offers, by name."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from types import FunctionType

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from chimes.errors import AlreadyExists, InvalidInput, NotFound
from chimes.i18n import _
from chimes.model.change import replace
from chimes.model.policy import Backoff, OnLost, Overlap, Policy
from chimes.redaction import is_secret_name
from chimes.targets.python.arguments import parameters_of

NAME_LIMIT = 200
DEFAULT_TIMEOUT = timedelta(minutes=5)
DEFAULT_QUEUE = "default"
#: A megabyte of address space more or less decides nothing; below this Python does not start.
SMALLEST_MEMORY = 64 * 1024 * 1024

Function = Callable[..., object]


class Isolation(StrEnum):
    """Where a task's function runs."""

    #: On the event loop of the worker: for async functions.
    INLINE = "inline"
    #: In a thread of the worker: for sync functions. It can be asked to stop, not made to.
    THREAD = "thread"
    #: In a process of its own that can be killed: for CPU-heavy, native or doubtful code.
    PROCESS = "process"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    name: str
    #: Sync or async; its parameters are the task's arguments.
    function: Function
    #: Extra attempts after the first (C14).
    retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=5)
    backoff: Backoff | str = Backoff.FIXED
    timeout: timedelta = DEFAULT_TIMEOUT
    #: None: async functions inline, sync ones in a thread. `mode` is what it comes to.
    isolation: Isolation | str | None = None
    #: How many runs of this task may be under way on all nodes together.
    concurrency: int | None = None
    #: Only nodes that serve this queue offer the task.
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    #: Called with (context, TaskError) when a run is about to end failed or timed out.
    on_failure: Function | None = None
    on_lost: OnLost | str = OnLost.RETRY
    #: Bytes of address space, under process isolation only.
    memory_limit: int | None = None
    #: Where a process of its own finds the task again: `module:name` or `/a/script.py:name`.
    #: Empty: the worker's own path of the app.
    app_path: str = ""

    def __post_init__(self) -> None:
        checked_name(self.name, field="name")
        checked_name(self.queue, field="queue")
        if not callable(self.function):
            raise InvalidInput(
                _("task {task!r}: the function cannot be called", task=self.name),
                field="function",
            )
        if self.on_failure is not None and not callable(self.on_failure):
            raise InvalidInput(
                _("task {task!r}: on_failure cannot be called", task=self.name),
                field="on_failure",
            )
        self._check_numbers()
        self._check_choices()
        self._check_isolation()
        # Fails for a signature that no arguments by name could fill.
        parameters_of(self.function)

    @property
    def mode(self) -> Isolation:
        if self.isolation is not None:
            return Isolation(self.isolation)
        return Isolation.INLINE if self.is_async else Isolation.THREAD

    @property
    def is_async(self) -> bool:
        return is_async(self.function)

    def policy(self, base: Policy) -> Policy:
        """`base` with what the task says about itself."""
        own = replace(
            base,
            max_retries=self.retries,
            retry_backoff=self.retry_backoff,
            backoff=Backoff(self.backoff),
            timeout=self.timeout,
            on_lost=OnLost(self.on_lost),
        )
        if self.concurrency is None:
            return own
        return replace(
            own,
            concurrency_key=f"task:{self.name}",
            max_concurrent_runs=self.concurrency,
            overlap=Overlap.QUEUE,
        )

    def _check_numbers(self) -> None:
        zero = timedelta()
        if not isinstance(self.timeout, timedelta) or self.timeout <= zero:
            raise self._wrong("timeout", _("a timedelta of more than 0 seconds"), self.timeout)
        if not isinstance(self.retry_backoff, timedelta) or self.retry_backoff < zero:
            raise self._wrong("retry_backoff", _("a timedelta, not negative"), self.retry_backoff)
        least = {"retries": 0, "concurrency": 1, "memory_limit": SMALLEST_MEMORY}
        for field, smallest in least.items():
            value: object = getattr(self, field)
            if value is None and field != "retries":
                continue
            if not isinstance(value, int) or value < smallest:
                raise self._wrong(
                    field, _("a whole number, {least} or more", least=smallest), value
                )
        if not isinstance(self.priority, int):
            raise self._wrong("priority", _("a whole number"), self.priority)

    def _check_choices(self) -> None:
        choices: dict[str, type[StrEnum]] = {"backoff": Backoff, "on_lost": OnLost}
        if self.isolation is not None:
            choices["isolation"] = Isolation
        for field, kind in choices.items():
            known = [str(each) for each in kind]
            value: object = getattr(self, field)
            if value not in known:
                raise self._wrong(field, " | ".join(known), repr(value))

    def _check_isolation(self) -> None:
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise InvalidInput(
                _(
                    "task {task!r}: a generator is no task; return a value, do not yield",
                    task=self.name,
                ),
                field="function",
            )
        if self.is_async and self.mode is Isolation.THREAD:
            raise InvalidInput(
                _("task {task!r}: an async function runs inline or in a process", task=self.name),
                field="isolation",
            )
        if self.memory_limit is not None and self.mode is not Isolation.PROCESS:
            raise InvalidInput(
                _("task {task!r}: memory_limit needs isolation='process'", task=self.name),
                field="memory_limit",
            )

    def _wrong(self, field: str, expected: str, given: object) -> InvalidInput:
        return InvalidInput(
            _(
                "task {task!r}: {field} must be {expected}, not {given}",
                task=self.name,
                field=field,
                expected=expected,
                given=given,
            ),
            field=field,
        )


class Registry:
    """Filled while an application is imported; looked up while it runs."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, task: Task) -> Task:
        known = self._tasks.get(task.name)
        if known is not None:
            raise AlreadyExists(
                _(
                    "two tasks are named {name!r}: {one} and {other}; "
                    "give one of them another name",
                    name=task.name,
                    one=_where(known.function),
                    other=_where(task.function),
                )
            )
        self._tasks[task.name] = task
        return task

    def get(self, name: str) -> Task:
        task = self._tasks.get(name)
        if task is None:
            near = difflib.get_close_matches(name, self._tasks, n=1)
            raise NotFound(
                _(
                    "there is no task named {name!r} here; did you mean {near!r}?",
                    name=name,
                    near=near[0],
                )
                if near
                else _("there is no task named {name!r} here", name=name)
            )
        return task

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(tuple(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks


def is_async(function: Function) -> bool:
    """Also for partials and for objects whose `__call__` is async."""
    known = isinstance(function, (FunctionType, Hashable))
    return _known_async(function) if known else _is_async(function)


@lru_cache(maxsize=1024)
def _known_async(function: Function) -> bool:
    """Asked for every run, and `inspect` takes its time."""
    return _is_async(function)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function)
        and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    )


def checked_name(name: str, *, field: str) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput(_("{field} must be a text that is not empty", field=field), field=field)
    if len(name) > NAME_LIMIT:
        raise InvalidInput(
            _("{field} is longer than {most} characters", field=field, most=NAME_LIMIT),
            field=field,
        )
    if not name.isprintable() or any(char.isspace() for char in name):
        raise InvalidInput(
            _(
                "{field} {name!r} must have no spaces and no control characters",
                field=field,
                name=name,
            ),
            field=field,
        )
    return name


def _where(function: Function) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"


# @@ What a task can be called with, as JSON Schema: for forms of people who do not see its code.

#: Nodes tell it with what they offer; a longer one is not told, and its arguments are JSON.
LONGEST_SCHEMA = 8 * 1024
_LONGEST_DESCRIPTION = 300


def schema_of(task: Task) -> dict[str, object]:
    """An object with a property for each argument. A type that has no schema leaves its property
    open; one that is too long as a whole is empty."""
    parameters = parameters_of(task.function)
    signature = inspect.signature(task.function)
    properties: dict[str, object] = {}
    for name, parameter in parameters.named.items():
        found = _property(parameter.adapter)
        default = signature.parameters[name].default
        if not parameter.required and not is_secret_name(name):
            found |= _default(default)
        properties[name] = found
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": [name for name, each in parameters.named.items() if each.required],
        "additionalProperties": parameters.rest is not None,
    }
    if text := (inspect.getdoc(task.function) or "").partition("\n\n")[0]:
        schema["description"] = " ".join(text.split())[:_LONGEST_DESCRIPTION]
    return schema if len(json.dumps(schema)) <= LONGEST_SCHEMA else {}


def _property(adapter: TypeAdapter[object] | None) -> dict[str, object]:
    if adapter is None:
        return {}
    try:
        found: Mapping[str, object] = adapter.json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError, ValueError, TypeError):
        return {}
    return dict(found)


def _default(value: object) -> dict[str, object]:
    try:
        plain = to_jsonable_python(value)
        json.dumps(plain, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError):
        return {}
    return {"default": plain}
