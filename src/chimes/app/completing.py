"""Tasks that end their run in a transaction of their own (`context.complete_in`).

Their effect and the end of the run are then one commit. What the worker says afterwards about the
attempt is a repetition of what stands there, and is accepted as such (F23).
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime

from sqlalchemy import Connection

from chimes.app.runtime import Runtime
from chimes.clock import Clock
from chimes.errors import Conflict, InvalidInput
from chimes.model.ids import NodeId
from chimes.model.run import Attempt, AttemptEnd, RunStatus, Verdict
from chimes.store.sql.dialects.base import Dialect
from chimes.targets.base import Call
from chimes.wording import say


class TaskCompletion:
    def __init__(self, call: Call, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self.verdict: Verdict | None = None

    def complete(self, connection: object, result: object) -> Awaitable[None]:
        from chimes.app.transaction import joined

        if self.verdict is not None:
            raise Conflict(say("this attempt has completed its run already"), code="completed")
        plain = _plain(result)
        if self._call.completing is not None:
            self._call.completing()
        return joined(self._runtime, connection, _Ending(self, plain), own_driver=True)

    def ended(
        self, connection: Connection, dialect: Dialect, clock: Clock | None, value: object
    ) -> None:
        from chimes.store.sql.joining import complete_run_in

        run, log = self._call.run, self._call.unwritten()

        def verdict(now: datetime) -> Verdict:
            attempt = Attempt(
                number=run.attempt,
                fence=run.fence,
                node=run.holder or NodeId(""),
                started_at=self._call.triggered_at,
                finished_at=now,
                end=AttemptEnd.SUCCEEDED,
            )
            return Verdict(
                run_id=run.id,
                fence=run.fence,
                attempt=attempt,
                status=RunStatus.SUCCEEDED,
                result={"value": value},
                logs=log.entries,
            )

        self.verdict = complete_run_in(
            connection, dialect, clock, run.id, run.fence, verdict, logged=log.last
        )


class _Ending:
    def __init__(self, completion: TaskCompletion, value: object) -> None:
        self._completion = completion
        self._value = value

    def __call__(self, connection: Connection, dialect: Dialect, clock: Clock | None) -> None:
        self._completion.ended(connection, dialect, clock, self._value)


def _plain(result: object) -> object:
    import json

    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        plain: object = json.loads(json.dumps(to_jsonable_python(result), allow_nan=False))
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            say("the result has no form in JSON: {error}", error=str(error)), field="result"
        ) from None
    return plain
