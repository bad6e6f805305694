"""Tasks of Celery workers, over RabbitMQ or Redis.

The task is sent with the run id as its id. How the result is followed depends on the result
backend of the workers, which `result_backend` of the connection names:

- `rpc://`, the default on RabbitMQ: workers send results to the queue in `reply_to`. Chimes makes
  a durable queue for each run before the hand-over, so that another node can read the result after
  a crash. A result is read without being removed; the queue is deleted once the end is stored, and
  expires by itself if that does not happen.
- a URL (`redis://…`, the default on Redis): results are polled there by task id.

Celery's client blocks, so calls run in a few threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from celery import Celery
from celery.exceptions import CeleryError
from kombu.entity import Queue
from kombu.exceptions import KombuError, OperationalError

from chimes.config.connections import Connection
from chimes.i18n import _
from chimes.model.target import CeleryTarget
from chimes.targets.base import TargetError
from chimes.targets.engines.port import Engine, Job, JobEnd, JobReport, unreachable

T = TypeVar("T")
RPC = "rpc://"
_THREADS = 8
#: Seconds for one exchange with the broker or the result backend.
_SECONDS = 10.0
#: Milliseconds that the queue of a result stays after its last use, in addition to the timeout.
_KEPT = 24 * 3600 * 1000
#: Messages that are read from the queue of a result at a time.
_BATCH = 100
_ENDS = {
    "SUCCESS": JobEnd.SUCCEEDED,
    "FAILURE": JobEnd.FAILED,
    "REVOKED": JobEnd.CANCELED,
    "IGNORED": JobEnd.FAILED,
    "REJECTED": JobEnd.FAILED,
}
_ERRORS = (CeleryError, KombuError, OperationalError, OSError, ValueError)


class CeleryEngine(Engine):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        url = connection.url
        on_redis = url.startswith("redis")
        backend = connection.result_backend or (url if on_redis else RPC)
        self._rpc = backend.startswith("rpc")
        if self._rpc and on_redis:
            raise TargetError(
                "bad_connection",
                _("{name}: rpc:// needs RabbitMQ; name a result backend", name=connection.name),
            )
        # Without a backend: that of Celery would subscribe to the result of every task.
        self._app = self._build_app(url, "disabled://")
        self._results = None if self._rpc else self._build_app(url, backend)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="celery")

    @staticmethod
    def _build_app(url: str, backend: str) -> Any:
        app = Celery("chimes", broker=url, backend=backend, set_as_current=False)
        timeouts = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
        if url.startswith("redis"):
            transport: dict[str, object] = dict(timeouts)
        else:
            # RabbitMQ confirms every task before `send_task` returns.
            transport = {"confirm_publish": True, "read_timeout": _SECONDS}
        app.conf.update(
            broker_transport_options=transport,
            broker_connection_timeout=_SECONDS,
            broker_pool_limit=_THREADS,
            task_publish_retry=False,
            task_serializer="json",
            result_serializer="json",
            accept_content=["json"],
            result_accept_content=["json"],
            result_backend_transport_options={"retry_policy": {"timeout": _SECONDS}},
            redis_socket_timeout=_SECONDS,
            redis_socket_connect_timeout=_SECONDS,
            result_backend_always_retry=False,
        )
        return app

    async def check(self) -> str:
        def connect() -> str:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, timeout=_SECONDS)
            workers = self._app.control.ping(timeout=1.0)
            names = sorted(name for each in workers or () for name in each)
            return ", ".join(names)

        names = await self._call(connect)
        return (
            _("broker answers; workers: {names}", names=names)
            if names
            else _("broker answers; no worker")
        )

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(*_ERRORS):
            self._app.close()

    async def submit(self, job: Job) -> bool:
        target = cast(CeleryTarget, job.target)
        options: dict[str, object] = {}
        if queue := target.queue or self.connection.queue:
            options["queue"] = queue

        def send() -> None:
            if self._rpc:
                with self._app.pool.acquire(block=True, timeout=_SECONDS) as connection:
                    self._result_queue(job)(connection.default_channel).declare()
                options["reply_to"] = _queue_name(job.id)
            self._app.send_task(
                target.task,
                args=list(target.args),
                kwargs=dict(target.kwargs),
                task_id=job.id,
                **options,
            )

        await self._call(send)
        return True

    async def poll(self, job: Job) -> JobReport:
        meta = await self._call(partial(self._read_queue if self._rpc else self._read_backend, job))
        status = str(meta.get("status") or "PENDING")
        end = _ENDS.get(status)
        if end is JobEnd.SUCCEEDED:
            return JobReport(status=status, end=end, value=_plain(meta.get("result")))
        return JobReport(status=status, end=end, error=_error(meta.get("result")) if end else "")

    async def cancel(self, job: Job) -> None:
        await self._call(partial(self._app.control.revoke, job.id, terminate=True))

    async def release(self, job_id: str) -> None:
        if not self._rpc:
            return

        def delete() -> None:
            with self._app.pool.acquire(block=True, timeout=_SECONDS) as connection:
                connection.default_channel.queue_delete(_queue_name(job_id))

        with contextlib.suppress(TargetError):
            await self._call(delete)

    def _read_backend(self, job: Job) -> dict[str, Any]:
        assert self._results is not None
        return dict(self._results.backend.get_task_meta(job.id))

    def _read_queue(self, job: Job) -> dict[str, Any]:
        """The end of the task, or the last state before. The end stays in the queue."""
        last: dict[str, Any] = {}
        with self._app.pool.acquire(block=True, timeout=_SECONDS) as connection:
            channel = connection.channel()
            try:
                queue = self._result_queue(job)(channel)
                queue.declare()
                for _each in range(_BATCH):
                    message = queue.get(no_ack=False)
                    if message is None:
                        break
                    last = json.loads(message.body)
                    if last.get("status") in _ENDS:
                        message.requeue()
                        break
                    message.ack()
            finally:
                channel.close()
        return last

    @staticmethod
    def _result_queue(job: Job) -> Queue:
        name = _queue_name(job.id)
        kept = int(job.seconds * 1000) + _KEPT
        return Queue(
            name, exchange=None, routing_key=name, durable=True, queue_arguments={"x-expires": kept}
        )

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except _ERRORS as error:
            raise unreachable(self.connection, error) from None
        except Exception as error:
            # The clients of brokers raise errors of their own.
            raise unreachable(self.connection, error) from None


def _queue_name(job_id: str) -> str:
    return f"chimes.result.{job_id}"


def _plain(value: object) -> object:
    """Workers may use another serializer than JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def _error(result: object) -> str:
    """Of the queue: `{exc_type, exc_message, …}`; of a backend: an exception."""
    if isinstance(result, dict):
        message = result.get("exc_message")
        if isinstance(message, list | tuple):
            message = ", ".join(str(each) for each in message)
        return f"{result.get('exc_type', '')}: {message or ''}".strip(": ")
    if isinstance(result, BaseException):
        return f"{type(result).__name__}: {result}".strip(": ")
    return "" if result is None else str(result)
