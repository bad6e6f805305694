"""Functions on the workers of a Dask cluster (a distributed scheduler).

A function is submitted under the job id as its key, and its future is published under the same
name: the scheduler keeps it when the node that submitted it dies, and another node finds it there.
Chimes imports none of the functions. The return value travels as JSON text, so that no object of
the cluster is unpickled here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import types
from typing import Any, cast

from distributed import Client as DaskClient
from distributed import wait

from chimes.config.connections import Connection
from chimes.i18n import _
from chimes.model.target import DaskTarget
from chimes.targets.engines.port import Engine, Job, JobEnd, JobReport, unreachable

_SECONDS = 10.0
#: Seconds that one poll waits for the end.
_WAIT = 1.0


def _call_by_name(path, args, kwargs):  # type: ignore[no-untyped-def] # runs on a Dask worker
    import importlib
    import json

    module, _colon, names = path.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    try:
        value = found(*args, **kwargs)  # type: ignore[operator]
    except Exception as error:
        # Errors of the application may not be importable here.
        raise RuntimeError(f"{type(error).__name__}: {error}") from None
    return json.dumps(value, default=str)


#: Belongs to no module, so that it is sent by value: Dask workers need no Chimes.
_CALL = types.FunctionType(_call_by_name.__code__, {"__builtins__": __builtins__}, "call_by_name")
_CALL.__module__ = "__main__"


class DaskEngine(Engine):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._client: Any = None
        self._lock = asyncio.Lock()

    async def check(self) -> str:
        client = await self._ready()
        try:
            info = await client.scheduler.identity()
        except Exception as error:
            raise unreachable(self.connection, error) from None
        return _("scheduler answers; {count} workers", count=len(info["workers"]))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close(timeout=2)

    async def submit(self, job: Job) -> bool:
        target = cast(DaskTarget, job.target)
        client = await self._ready()
        try:
            if await self._published(client, job.id) is not None:
                return False
            future = client.submit(
                _CALL, target.function, list(target.args), dict(target.kwargs), key=job.id
            )
            await client.publish_dataset(future, name=job.id)
        except KeyError:
            return False
        except Exception as error:
            raise unreachable(self.connection, error) from None
        return True

    async def poll(self, job: Job) -> JobReport:
        client = await self._ready()
        try:
            future = await self._published(client, job.id)
            if future is None:
                return JobReport(
                    status="lost",
                    end=JobEnd.FAILED,
                    error=_("the scheduler no longer knows the job"),
                )
            with contextlib.suppress(asyncio.TimeoutError), client.as_current():
                await wait([future], timeout=_WAIT)
            status = str(future.status)
            if status == "finished":
                value = json.loads(await future)
                return JobReport(status=status, end=JobEnd.SUCCEEDED, value=value)
            if status == "error":
                error = await future.exception()
                return JobReport(status=status, end=JobEnd.FAILED, error=str(error))
            if status in ("cancelled", "lost"):
                return JobReport(status=status, end=JobEnd.CANCELED)
            return JobReport(status=status)
        except Exception as error:
            raise unreachable(self.connection, error) from None

    async def cancel(self, job: Job) -> None:
        client = await self._ready()
        try:
            future = await self._published(client, job.id)
            if future is not None:
                await client.cancel([future], force=True)
                await client.unpublish_dataset(job.id)
        except Exception as error:
            raise unreachable(self.connection, error) from None

    async def release(self, job_id: str) -> None:
        client = await self._ready()
        with contextlib.suppress(Exception):
            if job_id in await client.list_datasets():
                await client.unpublish_dataset(job_id)

    @staticmethod
    async def _published(client: Any, job_id: str) -> Any:
        """The future of a job that is published; None if there is none."""
        return await client.get_dataset(job_id, default=None)

    async def _ready(self) -> Any:
        async with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            await self.close()
            try:
                self._client = await DaskClient(
                    self.connection.url,
                    asynchronous=True,
                    timeout=_SECONDS,
                    set_as_default=False,
                    name="chimes",
                )
            except Exception as error:
                raise unreachable(self.connection, error) from None
            return self._client
