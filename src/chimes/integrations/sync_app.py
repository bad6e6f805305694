"""An SDK application for synchronous code: its event loop runs in a thread of this process."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from chimes.errors import ChimesError
from chimes.i18n import _
from chimes.model.run import Run, RunStatus
from chimes.sdk.app import Chimes
from chimes.sdk.arguments import Duration
from chimes.sdk.handles import RunHandle
from chimes.sdk.tasks import Enqueuer
from chimes.targets.python.context import Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncRunHandle(Generic[R]):
    """A `RunHandle` whose methods block."""

    def __init__(self, handle: RunHandle[R], app: SyncApp) -> None:
        self.id = handle.id
        self.aio = handle
        self._app = app

    def __repr__(self) -> str:
        return f"SyncRunHandle({self.id!r})"

    def result(self, timeout: Duration | None = None) -> R:
        """As `RunHandle.result`."""
        return self._app.call(self.aio.result(timeout))

    def status(self) -> RunStatus:
        return self._app.call(self.aio.status())

    def run(self) -> Run:
        return self._app.call(self.aio.run())

    def cancel(self) -> bool:
        return self._app.call(self.aio.cancel())


class SyncApp:
    """Opens the application in a thread with the first call, and closes it at the exit of the
    process. Every process has a thread of its own, also after a fork.

    `load` is called once, when the application is needed."""

    def __init__(self, load: Callable[[], Chimes]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    @cached_property
    def app(self) -> Chimes:
        return self._load()

    @overload
    def enqueue(
        self, task: Enqueuer[Concatenate[Context, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRunHandle[R]: ...

    @overload
    def enqueue(
        self, task: Enqueuer[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRunHandle[R]: ...

    def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]:
        """Enqueues a run of a task, or of `task.options(...)`. With `options(connection=…)`, e.g.
        `db.session` of Flask-SQLAlchemy, the run exists if its transaction commits."""
        task = self.join_transaction(task)
        if not task.has_connection:
            return SyncRunHandle(self.call(task.enqueue(*args, **kwargs)), self)
        self.open()
        coroutine = task.enqueue(*args, **kwargs)
        try:
            # In this thread: other threads may not use its connection.
            coroutine.send(None)
        except StopIteration as ended:
            return SyncRunHandle(cast("RunHandle[Any]", ended.value), self)
        coroutine.close()
        raise ChimesError(_("only a synchronous connection can be used in synchronous code"))

    def join_transaction(self, task: Enqueuer[Any, Any]) -> Enqueuer[Any, Any]:
        """The task with the connection of the framework's current transaction, if it has one."""
        return task

    def run_handle(self, run_id: str) -> SyncRunHandle[object]:
        """A handle on a run from its id."""
        return SyncRunHandle(self.app.run_handle(run_id), self)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine in the thread of the application and returns its result."""
        try:
            loop = self.open()
        except BaseException:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def open(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                if self._loop is not None:
                    # A fork copied the state of the parent, but not its thread.
                    self.app.detach()
                self._start()
            assert self._loop is not None
            return self._loop

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="chimes", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.app.open(), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            raise
        self._loop, self._thread, self._pid = loop, thread, os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Closes the store and ends the thread; the next call opens it again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None or self._pid != os.getpid():
                return
            self._loop = self._thread = None
            atexit.unregister(self.close)
            asyncio.run_coroutine_threadsafe(self.app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timedelta(seconds=5).total_seconds())
            if not loop.is_running():
                loop.close()
