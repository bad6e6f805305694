"""Tasks of an application: the decorated function, and how runs of it are enqueued."""

from __future__ import annotations

import functools
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    overload,
)

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import RunId, id_namespace, manual_run_id
from chimes.model.policy import Backoff, OnLost, Policy
from chimes.model.run import Run
from chimes.model.target import TaskTarget
from chimes.model.validation import check_name, check_priority
from chimes.sdk.arguments import (
    Duration,
    Moment,
    parse_owner,
    to_datetime,
    to_duration,
    to_enum,
    to_names,
)
from chimes.sdk.handles import RunHandle
from chimes.services.runs import RunRequest, build_run
from chimes.targets.python.arguments import dump, load_result, parameters_of
from chimes.targets.python.context import Context
from chimes.targets.python.registry import DEFAULT_QUEUE, DEFAULT_TIMEOUT, Function, Task

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar

if TYPE_CHECKING:
    from chimes.runtime.composition import Runtime

#: Namespace of the name-based UUIDs that identify runs with a key.
KEY_NAMESPACE = uuid.UUID("5f0d2d5e-0e0b-5e7c-8f43-6a0f2b0c9d21")
P = ParamSpec("P")
Q = ParamSpec("Q")
#: What a run of the task returns.
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
#: What a call of the function returns: R, or a coroutine of R.
C = TypeVar("C", default=Any)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnqueueOptions:
    """Options of one enqueue, which override those of the task."""

    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    owner: Owner | None = None
    #: The caller's own connection or session, with a transaction open.
    connection: object = None


class TaskOptions(TypedDict, total=False):
    """Options of `@app.task(...)`; docs/python.md describes each."""

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
    limits: Iterable[str]


#: Enqueues a run; implemented by the application.
Submit = Callable[[RunRequest, EnqueueOptions], Awaitable[RunHandle]]


class EnqueueMethod(Protocol[P, R_co]):
    """The type of `enqueue`: the arguments of the task, and a handle on its result."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R_co]: ...


class _AnyValue:
    """Accepted only by a first parameter that accepts every value."""


class _TypedEnqueue:
    """Selects the type of `enqueue`: the arguments of the function, without a context that comes
    first, because the worker supplies it. A first parameter that accepts every value could be the
    context or not: arguments of such a task are not checked."""

    @overload
    def __get__(
        self, task: Enqueuer[Concatenate[_AnyValue, Q], R], owner: object
    ) -> EnqueueMethod[..., R]: ...

    @overload
    def __get__(
        self, task: Enqueuer[Concatenate[Context, Q], R], owner: object
    ) -> EnqueueMethod[Q, R]: ...

    @overload
    def __get__(self, task: Enqueuer[P, R], owner: object) -> EnqueueMethod[P, R]: ...

    def __get__(self, task: object, owner: object) -> object:
        raise NotImplementedError  # for type checkers only


class Enqueuer(Generic[P, R]):
    """A task with fixed enqueue options."""

    def __init__(self, task: Task, submit: Submit, options: EnqueueOptions | None = None) -> None:
        self.task = task
        self._submit = submit
        self._options = options or EnqueueOptions()

    @property
    def has_connection(self) -> bool:
        """Whether it enqueues in a transaction of the caller."""
        return self._options.connection is not None

    def with_connection(self, connection: object) -> Enqueuer[P, R]:
        """The same options, in the transaction of this connection."""
        options = replace(self._options, connection=connection)
        return Enqueuer(self.task, self._submit, options)

    if TYPE_CHECKING:
        # A method could not leave out the context.
        enqueue = _TypedEnqueue()
    else:

        async def enqueue(self, *args: object, **kwargs: object) -> RunHandle[R]:
            """Enqueues one run. The arguments are validated here; the context is not passed, the
            worker supplies it."""
            return await self.enqueue_with(_bind_arguments(self.task, args, kwargs))

    async def enqueue_with(self, arguments: Mapping[str, object]) -> RunHandle[R]:
        """Enqueues a run with arguments by name. InvalidInput if the task cannot take them."""
        request = RunRequest(
            target=TaskTarget(name=self.task.name, args=dump(self.task, arguments)),
            policy=self.task.policy(Policy()),
            name=self.task.name,
            priority=self.task.priority,
        )
        handle = await self._submit(request, self._options)
        return handle.converted(functools.partial(load_result, self.task.function))


class AppTask(Enqueuer[P, R], Generic[P, R, C]):
    """A task of an application. Calling it calls the plain function."""

    __wrapped__: Callable[P, C]

    def __init__(self, task: Task, function: Callable[P, C], submit: Submit) -> None:
        functools.update_wrapper(self, function)
        super().__init__(task, submit)
        self._function = function

    @property
    def name(self) -> str:
        return self.task.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"

    def options(
        self,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        priority: int | None = None,
        key: str | None = None,
        owner: Owner | str | None = None,
        connection: object = None,
    ) -> Enqueuer[P, R]:
        """`await task.options(delay="5m").enqueue(...)`.

        `key`: de-duplicates; while a run with this key exists, enqueuing returns that run.
        `connection`: a SQLAlchemy connection or session, or a connection of asyncpg, psycopg or
        sqlite3, with an open transaction on the store's database; the run exists if and when that
        commits.
        """
        options = enqueue_options(
            delay=delay, at=at, priority=priority, key=key, owner=owner, connection=connection
        )
        return Enqueuer(self.task, self._submit, options)


class TaskDecorator(Protocol):
    """`@app.task(...)`: makes a task of an async or sync function."""

    # `Coroutine[None, None, R]`: an Any in the type of the task would make that of `enqueue` Any.
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AppTask[P, R, Coroutine[None, None, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> AppTask[P, R, R]: ...


def build_task(
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
    limits: Iterable[str] = (),
) -> Task:
    """The task of a function. InvalidInput names the option that is invalid."""
    task_name = name or str(getattr(function, "__name__", ""))
    try:
        check_name(task_name)
    except InvalidInput as error:
        raise InvalidInput(
            _(
                "{name!r} cannot be the name of a task: {why}",
                name=task_name,
                why=error.message,
            ),
            field="name",
        ) from None
    check_priority(priority)
    return Task(
        name=task_name,
        function=function,
        retries=retries,
        retry_backoff=to_duration(retry_backoff, "retry_backoff"),
        backoff=to_enum(Backoff, backoff, "backoff"),
        timeout=to_duration(timeout, "timeout", allow_zero=False),
        isolation=isolation,
        concurrency=concurrency,
        queue=queue,
        priority=priority,
        on_failure=on_failure,
        on_lost=to_enum(OnLost, on_lost, "on_lost"),
        memory_limit=memory_limit,
        limits=to_names(limits, "limits"),
    )


def enqueue_options(
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    priority: int | None = None,
    key: str | None = None,
    owner: Owner | str | None = None,
    connection: object = None,
) -> EnqueueOptions:
    if delay is not None and at is not None:
        raise InvalidInput(_("give either delay or at, not both"), field="at", code="both")
    if key == "":
        raise InvalidInput(_("key must not be empty; leave it out instead"), field="key")
    return EnqueueOptions(
        delay=None if delay is None else to_duration(delay, "delay"),
        at=None if at is None else to_datetime(at, "at"),
        priority=priority,
        key=key,
        owner=None if owner is None else parse_owner(owner),
        connection=connection,
    )


def _bind_arguments(
    task: Task, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Arguments by name, because that is how they are stored."""
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
    bound = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name in bound:
            raise InvalidInput(
                _("task {task!r}: argument {name!r} is given twice", task=task.name, name=name),
                field=name,
                code="twice",
            )
    return bound | dict(kwargs)


async def enqueue(runtime: Runtime, request: RunRequest, options: EnqueueOptions) -> RunId:
    """Enqueues a run and returns its id, or that of the existing run with the same key."""
    if options.connection is not None:
        # Imports SQLAlchemy's ORM, which other enqueues and nodes do not need.
        from chimes.sdk.transactions import enqueue_in_transaction

        return await enqueue_in_transaction(
            runtime, options.connection, functools.partial(_requested_run, request, options)
        )
    store = runtime.services.store
    run = _requested_run(request, options, await store.now())
    return (await store.add_runs([run]))[0].id


def _requested_run(request: RunRequest, options: EnqueueOptions, now: datetime) -> Run:
    if options.priority is not None:
        request = replace(request, priority=options.priority)
    if options.at is not None:
        request = replace(request, at=options.at)
    if options.delay is not None:
        request = replace(request, at=now + options.delay)
    run_id = manual_run_id(now)
    if options.key is not None:
        # The same key of the same task is the same run, on every node, as long as it is retained.
        name = f"{id_namespace(request.namespace)}\0{request.target.requirement}\0{options.key}"
        run_id = RunId(str(uuid.uuid5(KEY_NAMESPACE, name)))
    return build_run(request, options.owner or request.owner or SYSTEM_OWNER, run_id, now)
