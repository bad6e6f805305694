"""Registry of an application's tasks, and the JSON Schema of their arguments."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from types import FunctionType

from chimes.errors import AlreadyExists, InvalidInput, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.policy import Backoff, OnLost, Overlap, Policy
from chimes.redaction import is_secret_name
from chimes.targets.python.arguments import Parameter, parameters_of
from chimes.targets.python.outcomes import to_json_value

NAME_LIMIT = 200
DEFAULT_TIMEOUT = timedelta(minutes=5)
DEFAULT_QUEUE = "default"
#: Python does not start with less address space.
MIN_MEMORY = 64 * 1024 * 1024

Function = Callable[..., object]


class Isolation(StrEnum):
    """Where a task's function runs."""

    #: On the event loop of the worker: for async functions.
    INLINE = "inline"
    #: In a thread of the worker: for sync functions. Cancellation is cooperative.
    THREAD = "thread"
    #: In a child process that can be killed: for CPU-bound, native or untrusted code.
    PROCESS = "process"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    name: str
    #: Sync or async; its parameters are the task's arguments.
    function: Function
    #: Extra attempts after the first.
    retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=5)
    backoff: Backoff | str = Backoff.FIXED
    timeout: timedelta = DEFAULT_TIMEOUT
    #: None: async functions inline, sync ones in a thread; `mode` is the effective value.
    isolation: Isolation | str | None = None
    #: Maximum number of concurrent runs of this task on all nodes.
    concurrency: int | None = None
    #: Only nodes that serve this queue execute the task.
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    #: TaskCoroutine with (context, TaskError) when a run is about to end failed or timed out.
    on_failure: Function | None = None
    on_lost: OnLost | str = OnLost.RETRY
    #: Bytes of address space; process isolation only.
    memory_limit: int | None = None
    #: Named limits of its runs.
    limits: tuple[str, ...] = ()
    #: Where a child process imports the application: `module:name` or `/a/script.py:name`.
    #: Empty: the path that the worker uses.
    app_path: str = ""
    #: Where its function runs.
    mode: Isolation = dataclass_field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, field="name")
        check_name(self.queue, field="queue")
        if not callable(self.function):
            raise InvalidInput(
                _("task {task!r}: the function is not callable", task=self.name),
                field="function",
            )
        if self.on_failure is not None and not callable(self.on_failure):
            raise InvalidInput(
                _("task {task!r}: on_failure is not callable", task=self.name),
                field="on_failure",
            )
        self._check_numbers()
        self._check_choices()
        default = Isolation.INLINE if self.is_async else Isolation.THREAD
        mode = default if self.isolation is None else Isolation(self.isolation)
        object.__setattr__(self, "mode", mode)
        self._check_isolation()
        # Raises for a signature that named arguments cannot satisfy.
        parameters_of(self.function)

    @property
    def is_async(self) -> bool:
        return is_async(self.function)

    def policy(self, base: Policy) -> Policy:
        """`base` with the options of the task."""
        own = replace(
            base,
            max_retries=self.retries,
            retry_backoff=self.retry_backoff,
            backoff=Backoff(self.backoff),
            timeout=self.timeout,
            on_lost=OnLost(self.on_lost),
            limits=self.limits,
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
            raise self._invalid("timeout", _("a timedelta of more than 0 seconds"), self.timeout)
        if not isinstance(self.retry_backoff, timedelta) or self.retry_backoff < zero:
            raise self._invalid("retry_backoff", _("a timedelta, not negative"), self.retry_backoff)
        least = {"retries": 0, "concurrency": 1, "memory_limit": MIN_MEMORY}
        for field, smallest in least.items():
            value: object = getattr(self, field)
            if value is None and field != "retries":
                continue
            if not isinstance(value, int) or value < smallest:
                raise self._invalid(
                    field, _("a whole number, {least} or more", least=smallest), value
                )
        if not isinstance(self.priority, int):
            raise self._invalid("priority", _("a whole number"), self.priority)

    def _check_choices(self) -> None:
        choices: dict[str, type[StrEnum]] = {"backoff": Backoff, "on_lost": OnLost}
        if self.isolation is not None:
            choices["isolation"] = Isolation
        for field, kind in choices.items():
            known = [str(each) for each in kind]
            value: object = getattr(self, field)
            if value not in known:
                raise self._invalid(field, " | ".join(known), repr(value))

    def _check_isolation(self) -> None:
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise InvalidInput(
                _(
                    "task {task!r}: a generator function cannot be a task; return a value",
                    task=self.name,
                ),
                field="function",
            )
        if self.is_async and self.mode is Isolation.THREAD:
            raise InvalidInput(
                _(
                    "task {task!r}: an async function must run inline or in a process",
                    task=self.name,
                ),
                field="isolation",
            )
        if self.memory_limit is not None and self.mode is not Isolation.PROCESS:
            raise InvalidInput(
                _("task {task!r}: memory_limit requires isolation='process'", task=self.name),
                field="memory_limit",
            )

    def _invalid(self, field: str, expected: str, given: object) -> InvalidInput:
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
    """Tasks by name; filled while the application is imported."""

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
                    one=_qualified_name(known.function),
                    other=_qualified_name(task.function),
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
    return _cached_is_async(function) if known else _is_async(function)


@lru_cache(maxsize=1024)
def _cached_is_async(function: Function) -> bool:
    """Cached because it is needed for every run and `inspect` is slow."""
    return _is_async(function)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function)
        and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    )


def check_name(name: str, *, field: str) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput(_("{field} must be a non-empty string", field=field), field=field)
    if len(name) > NAME_LIMIT:
        raise InvalidInput(
            _("{field} is longer than {most} characters", field=field, most=NAME_LIMIT),
            field=field,
        )
    if not name.isprintable() or any(char.isspace() for char in name):
        raise InvalidInput(
            _(
                "{field} {name!r} must not contain spaces or control characters",
                field=field,
                name=name,
            ),
            field=field,
        )
    return name


def _qualified_name(function: Function) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"


#: Nodes publish schemas with their capabilities. A longer one is not published, and its form
#: accepts raw JSON.
MAX_SCHEMA_LENGTH = 8 * 1024
_LONGEST_DESCRIPTION = 300
_SCALAR_NAMES: Mapping[type[object], str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def argument_schema(task: Task) -> dict[str, object]:
    """JSON Schema of the arguments, for forms. A type without a schema leaves its property
    unrestricted; a schema over the length limit is empty."""
    parameters = parameters_of(task.function)
    signature = inspect.signature(task.function)
    properties: dict[str, object] = {}
    for name, parameter in parameters.named.items():
        found = _property(parameter)
        default = signature.parameters[name].default
        if not parameter.required and not is_secret_name(name):
            found |= _default(default)
        properties[name] = found
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": [name for name, each in parameters.named.items() if each.required],
        "additionalProperties": parameters.var_keyword is not None,
    }
    if text := (inspect.getdoc(task.function) or "").partition("\n\n")[0]:
        schema["description"] = " ".join(text.split())[:_LONGEST_DESCRIPTION]
    return schema if len(json.dumps(schema)) <= MAX_SCHEMA_LENGTH else {}


def _property(parameter: Parameter) -> dict[str, object]:
    if parameter.scalar is not None:
        return {"type": _SCALAR_NAMES[parameter.scalar]}
    if parameter.adapter is None:
        return {}
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

    try:
        found: Mapping[str, object] = parameter.adapter.built().json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError, ValueError, TypeError):
        return {}
    return dict(found)


def _default(value: object) -> dict[str, object]:
    try:
        plain = to_json_value(value)
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return {}
    return {"default": plain}
