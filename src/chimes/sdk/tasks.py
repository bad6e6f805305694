"""What `@app.task` makes of a function: still the function, and a way to have it run."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, ParamSpec, TypedDict, TypeVar

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model.access import Owner, OwnerType
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.model.target import TaskTarget
from chimes.model.validation import check_name
from chimes.sdk.arguments import Duration, Moment, duration_of, moment_of, word_of
from chimes.sdk.handles import RunHandle
from chimes.services.run_requests import RunRequest
from chimes.services.validation import check_priority
from chimes.targets.python.arguments import dump, parameters_of
from chimes.targets.python.registry import DEFAULT_QUEUE, DEFAULT_TIMEOUT, Function, Task

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnqueueOptions:
    """How one enqueue differs from what the task says."""

    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    owner: Owner | None = None
    #: The caller's own connection or session, with a transaction open.
    connection: object = None


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes; docs/python.md says what each means."""

    name: str
    retries: int
    retry_backoff: Duration
    backoff: str
    timeout: Duration
    isolation: str | None
    concurrency: int | None
    queue: str
    priority: int
    on_failure: Function | None
    on_lost: str
    memory_limit: int | None


#: Puts a run into the queue: the application's business.
Submit = Callable[[RunRequest, EnqueueOptions], Awaitable[RunHandle]]


class AppTask(Generic[P, R]):
    """A task of an application. Called, it is the plain function."""

    __wrapped__: Callable[P, R]

    def __init__(self, task: Task, function: Callable[P, R], submit: Submit) -> None:
        functools.update_wrapper(self, function)
        self.task = task
        self._function = function
        self._submit = submit

    @property
    def name(self) -> str:
        return self.task.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"

    async def enqueue(self, *args: object, **kwargs: object) -> RunHandle:
        """Have it run once, as soon as a worker is free. The arguments are checked here; the
        `context` is not one of them."""
        return await Enqueuer(self.task, self._submit).enqueue(*args, **kwargs)

    def options(
        self,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        priority: int | None = None,
        key: str | None = None,
        owner: Owner | str | None = None,
        connection: object = None,
    ) -> Enqueuer:
        """`await task.options(delay="5m").enqueue(...)`.

        `key`: as long as a run with this key is kept, another enqueue answers with that run.
        `connection`: a SQLAlchemy connection or session, or an asyncpg connection, with an open
        transaction on the database of the store: the run is there if and when it commits.
        """
        options = read_options(
            delay=delay, at=at, priority=priority, key=key, owner=owner, connection=connection
        )
        return Enqueuer(self.task, self._submit, options)


class Enqueuer:
    """A task with the options of one enqueue, or of several."""

    def __init__(self, task: Task, submit: Submit, options: EnqueueOptions | None = None) -> None:
        self._task = task
        self._submit = submit
        self._options = options or EnqueueOptions()

    async def enqueue(self, *args: object, **kwargs: object) -> RunHandle:
        return await self.enqueue_with(named_arguments(self._task, args, kwargs))

    async def enqueue_with(self, arguments: Mapping[str, object]) -> RunHandle:
        return await self._submit(order_of(self._task, arguments), self._options)


def task_of(
    function: Function,
    *,
    name: str = "",
    retries: int = 0,
    retry_backoff: Duration = timedelta(seconds=5),
    backoff: str = Backoff.FIXED,
    timeout: Duration = DEFAULT_TIMEOUT,
    isolation: str | None = None,
    concurrency: int | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    on_failure: Function | None = None,
    on_lost: str = OnLost.RETRY,
    memory_limit: int | None = None,
) -> Task:
    """InvalidInput names what is wrong."""
    chosen = name or str(getattr(function, "__name__", ""))
    try:
        check_name(chosen)
    except InvalidInput as error:
        raise InvalidInput(
            _(
                "{name!r} cannot be the name of a task: {why}",
                name=chosen,
                why=error.message,
            ),
            field="name",
        ) from None
    check_priority(priority)
    return Task(
        name=chosen,
        function=function,
        retries=retries,
        retry_backoff=duration_of(retry_backoff, "retry_backoff"),
        backoff=word_of(Backoff, backoff, "backoff"),
        timeout=duration_of(timeout, "timeout", allow_zero=False),
        isolation=isolation,
        concurrency=concurrency,
        queue=queue,
        priority=priority,
        on_failure=on_failure,
        on_lost=word_of(OnLost, on_lost, "on_lost"),
        memory_limit=memory_limit,
    )


def order_of(task: Task, arguments: Mapping[str, object]) -> RunRequest:
    """InvalidInput if the task cannot be called with these."""
    return RunRequest(
        target=TaskTarget(name=task.name, args=dump(task, arguments)),
        policy=task.policy(Policy()),
        name=task.name,
        priority=task.priority,
    )


def read_options(
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    priority: int | None = None,
    key: str | None = None,
    owner: Owner | str | None = None,
    connection: object = None,
) -> EnqueueOptions:
    if delay is not None and at is not None:
        raise InvalidInput(_("either delay or at, not both"), field="at", code="both")
    if key == "":
        raise InvalidInput(_("a key is not empty; leave it out instead"), field="key")
    return EnqueueOptions(
        delay=None if delay is None else duration_of(delay, "delay"),
        at=None if at is None else moment_of(at, "at"),
        priority=priority,
        key=key,
        owner=None if owner is None else owner_of(owner),
        connection=connection,
    )


def named_arguments(
    task: Task, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Arguments are stored by name: those that were given by position get theirs."""
    names = list(parameters_of(task.function).named)
    if len(args) > len(names):
        raise InvalidInput(
            counted(
                "task {task!r} takes {count} argument ({names}), not {given}",
                "task {task!r} takes {count} arguments ({names}), not {given}",
                len(names),
                task=task.name,
                names=", ".join(names),
                given=len(args),
            )
            if names
            else _(
                "task {task!r} takes no arguments, not {given}", task=task.name, given=len(args)
            ),
            code="too_many",
        )
    found = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name in found:
            raise InvalidInput(
                _("task {task!r}: argument {name!r} is given twice", task=task.name, name=name),
                field=name,
                code="twice",
            )
    return found | dict(kwargs)


def owner_of(given: Owner | str) -> Owner:
    """An Owner, or `user:alice`, `chat:42`, `system:default`."""
    if isinstance(given, Owner):
        return given
    kind, separator, name = given.partition(":")
    if not separator or not name or kind not in set(OwnerType):
        raise InvalidInput(
            _(
                "an owner is written user:NAME, chat:NAME or system:NAME, not {given!r}",
                given=given,
            ),
            field="owner",
            code="bad_owner",
        )
    return Owner(type=OwnerType(kind), id=name)
