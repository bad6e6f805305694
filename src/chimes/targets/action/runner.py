"""Carries out one attempt of an action."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from chimes.i18n import _
from chimes.model.checkpoint import (
    ExecutionEnd,
    decode_action_checkpoint,
    encode_action_checkpoint,
    execution_end,
)
from chimes.model.egress import Egress
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import ActionTarget
from chimes.redaction import Redactor
from chimes.targets.action.service import (
    ActionConfig,
    ActionService,
    Record,
    Said,
    Trouble,
    cancel_request,
    execute_request,
    not_accepted,
    outcome_of,
    said_in,
    status_request,
    summary_request,
)
from chimes.targets.base import Call
from chimes.targets.http.connection import Lookup, system_lookup
from chimes.targets.http.request import Request
from chimes.targets.http.response import Reply
from chimes.targets.http.runner import outcome_of_timeout

# @@ One action on its way, with all that carrying it out needs.


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatch:
    call: Call
    target: ActionTarget
    config: ActionConfig
    user_agent: str
    record: Record
    redactor: Redactor
    #: Monotonic seconds.
    clock: Callable[[], float]
    #: When the attempt began, by that clock.
    began: float

    def log(self, level: str, message: str) -> None:
        clean = self.redactor.text(message)
        self.call.log(level, message if clean == message else clean)

    def now(self) -> datetime:
        """The store's time, near enough to read a Retry-After against."""
        return self.call.triggered_at + timedelta(seconds=self.clock() - self.began)


# @@ An execution that was taken over, asked for until it has ended.

FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.5, 10.0, 1.6
#: An execution may be known a moment later than its id is: so often in a row it may be unknown.
#: The same goes for a 200 without a status, which is what a page for everything answers.
UNKNOWN_IN_A_ROW = 3


@dataclass(kw_only=True, slots=True)
class Asking:
    """What was learned about the service by asking it."""

    pause: float
    #: Whether it has ever said anything about this execution.
    known: bool = False
    unknown_in_a_row: int = 0
    #: With all its objects the answer is too long to be read.
    too_long: bool = False


async def follow(service: ActionService, dispatch: Dispatch) -> None:
    """Returns when the execution is completed, or when the service does not tell how it ends;
    Trouble if it ended otherwise."""
    asking, record = Asking(pause=FIRST_PAUSE), dispatch.record
    while (end := execution_end(record.status)) is None:
        await asyncio.sleep(asking.pause)
        asking.pause = min(asking.pause * GROWTH, LONGEST_PAUSE)
        try:
            reply = await service.ask(_question(dispatch, asking))
        except Trouble as trouble:
            # It is at work over there, whatever the line is like.
            dispatch.log("warning", trouble.text)
            continue
        if not _goes_on(reply, dispatch, asking):
            return
    record.followed = True
    _judge(end, dispatch)


def _question(dispatch: Dispatch, asking: Asking) -> Request:
    request = summary_request if asking.too_long else status_request
    return request(
        dispatch.config,
        dispatch.call.run,
        dispatch.target,
        dispatch.user_agent,
        dispatch.record.execution_id,
    )


def _goes_on(reply: Reply, dispatch: Dispatch, asking: Asking) -> bool:
    """Takes down what was said. False: the service does not tell how the execution ends."""
    status = reply.status
    said = said_in(reply) if status == 200 and not reply.truncated else None
    if said is not None and said.status:
        asking.known, asking.unknown_in_a_row = True, 0
        _note(said, dispatch)
        return True
    if status == 200 and reply.truncated and not asking.too_long:
        asking.too_long = True
        return True
    if status == 404:
        asking.unknown_in_a_row += 1
        if asking.unknown_in_a_row < UNKNOWN_IN_A_ROW:
            return True
        if asking.known:
            raise Trouble(
                "execution_lost",
                _(
                    "the action service no longer knows execution {id}",
                    id=dispatch.record.execution_id,
                ),
            )
    elif _passes(status, asking):
        dispatch.log(
            "warning",
            _("asked for the execution, the action service answered HTTP {status}", status=status),
        )
        return True
    dispatch.log(
        "info",
        _("accepted; the action service does not tell how it ends (HTTP {status})", status=status),
    )
    return False


def _passes(status: int, asking: Asking) -> bool:
    """Whether an answer that says nothing is only trouble, to be waited out."""
    if status == 200 and not asking.known:
        asking.unknown_in_a_row += 1
        return asking.unknown_in_a_row < UNKNOWN_IN_A_ROW
    return status in (200, 408, 429) or (status >= 500 and status != 501)


def _note(said: Said, dispatch: Dispatch) -> None:
    record = dispatch.record
    if said.status != record.status:
        dispatch.log(
            "info",
            _("execution {id}: {status}", id=record.execution_id, status=said.status),
        )
    record.add(said)


def _judge(end: ExecutionEnd, dispatch: Dispatch) -> None:
    record = dispatch.record
    why = record.why or record.last_words
    match end:
        case ExecutionEnd.COMPLETED:
            failed = (record.counts or {}).get("failed", 0)
            if failed:
                dispatch.log("warning", _some_failed(failed, record.counts or {}, why))
        case ExecutionEnd.FAILED if why:
            raise Trouble("action_failed", _("the action failed: {why}", why=why))
        case ExecutionEnd.FAILED:
            raise Trouble("action_failed", _("the action failed"))
        case ExecutionEnd.CANCELLED:
            raise Trouble("action_canceled", _("the action was canceled in the action service"))
        case _:
            assert_never(end)


def _some_failed(failed: int, counts: Mapping[str, int], why: str) -> str:
    return _(
        "{failed} of {total} objects failed: {why}",
        failed=failed,
        total=counts.get("total", failed),
        why=why or "-",
    )


#: Actions that a node has in hand at once, apart from what it does otherwise: most of the time
#: they are only waited for, and those that hang must not stop callbacks.
PLACES = 100
#: Seconds for telling the service that nobody waits any more.
FAREWELL = 5.0


class ActionRunner:
    kind = "action"
    resumable = False
    places = PLACES
    capabilities = frozenset({"action"})

    def __init__(
        self,
        config: ActionConfig,
        *,
        egress: Egress,
        user_agent: str,
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._user_agent = user_agent
        self._service = ActionService(
            config, egress=egress, connections=PLACES, lookup=lookup, tls=tls
        )
        self._farewells: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._service.open()

    async def close(self) -> None:
        if self._farewells:
            await asyncio.wait(tuple(self._farewells))
        await self._service.close()

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, ActionTarget), "a runner is only given runs of its own kind"
        clock = asyncio.get_running_loop().time
        redactor = Redactor(self._config.secrets)
        dispatch = Dispatch(
            call=call,
            target=target,
            config=self._config,
            user_agent=self._user_agent,
            record=Record(redactor),
            redactor=redactor,
            clock=clock,
            began=clock(),
        )
        outcome = await self._outcome(dispatch)
        if outcome.end is not AttemptEnd.SUCCEEDED:
            dispatch.log("error", outcome.error)
        return outcome

    async def _outcome(self, dispatch: Dispatch) -> Outcome:
        record, policy = dispatch.record, dispatch.call.run.policy
        try:
            async with asyncio.timeout(policy.timeout.total_seconds()):
                await self._carry_out(dispatch)
        except Trouble as trouble:
            return outcome_of(trouble, record.result(), dispatch.redactor)
        except TimeoutError:
            # What was taken over would only be executed once more.
            self._say_goodbye(dispatch)
            outcome = outcome_of_timeout(policy.timeout, record.result())
            return replace(outcome, retryable=not record.accepted)
        except asyncio.CancelledError:
            # Otherwise another node goes on with the execution over there.
            if dispatch.call.canceled():
                self._say_goodbye(dispatch)
            raise
        return Outcome(end=AttemptEnd.SUCCEEDED, result=record.result())

    async def _carry_out(self, dispatch: Dispatch) -> None:
        record, state = dispatch.record, dispatch.call.state
        record.execution_id = decode_action_checkpoint(await state.read() if state is not None else None)
        if record.execution_id:
            record.accepted = True
            dispatch.log("info", _("going on with execution {id}", id=record.execution_id))
        else:
            await self._hand_over(dispatch)
        if record.execution_id:
            await follow(self._service, dispatch)

    async def _hand_over(self, dispatch: Dispatch) -> None:
        record, call = dispatch.record, dispatch.call
        request = execute_request(dispatch.config, call.run, dispatch.target, dispatch.user_agent)
        began = dispatch.clock()
        reply = await self._service.ask(request)
        record.http_status = reply.status
        if reply.status not in (200, 202):
            raise not_accepted(reply, dispatch.now())
        record.accepted = True
        said = said_in(reply) or Said()
        record.execution_id = said.execution_id
        record.add(replace(said, status=said.status or "accepted"))
        # Before anything else: whoever takes over asks for this one instead of executing.
        if said.execution_id and not await _kept(call, said.execution_id):
            # The store takes no verdict of this attempt. The execution is the new holder's, by
            # the same key, so nothing is said about it over there.
            raise Trouble("lost", _("the run belongs to another node by now"))
        dispatch.log(
            "info",
            _(
                "{method} {url} -> {status} in {milliseconds:.0f} ms",
                method=request.method,
                url=request.shown_url,
                status=reply.status,
                milliseconds=(dispatch.clock() - began) * 1000,
            ),
        )
        if said.execution_id:
            dispatch.log("info", _("accepted as execution {id}", id=said.execution_id))
        else:
            dispatch.log("info", _("accepted; the action service gave no execution_id"))

    def _say_goodbye(self, dispatch: Dispatch) -> None:
        if not dispatch.record.execution_id:
            return
        task = asyncio.create_task(self._goodbye(dispatch))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _goodbye(self, dispatch: Dispatch) -> None:
        """As far as the service can: what is at work there may not be cancellable."""
        run = dispatch.call.run
        request = cancel_request(
            dispatch.config,
            run,
            dispatch.target,
            dispatch.user_agent,
            dispatch.record.execution_id,
            "the run was canceled" if dispatch.call.canceled() else "the run timed out",
        )
        with contextlib.suppress(Trouble, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._service.ask(request)


async def _kept(call: Call, execution_id: str) -> bool:
    return call.state is None or await call.state.keep(encode_action_checkpoint(execution_id))
