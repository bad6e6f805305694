"""Carries out one attempt of an action."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import replace

from chimes.model.action_run import execution_kept, kept_text
from chimes.model.egress import Egress
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import ActionTarget
from chimes.redaction import Redactor
from chimes.targets.action.answer import Record, Said, said_in
from chimes.targets.action.config import ActionConfig
from chimes.targets.action.dispatch import Dispatch
from chimes.targets.action.following import follow
from chimes.targets.action.request import cancel_request, execute_request
from chimes.targets.action.service import ActionService
from chimes.targets.action.trouble import Trouble, not_accepted, outcome_of
from chimes.targets.base import Call
from chimes.targets.http_callback.resolver import Lookup, system_lookup
from chimes.targets.http_callback.verdicts import outcome_of_timeout
from chimes.wording import say

#: Actions that a node has in hand at once, apart from what it does otherwise: most of the time
#: they are only waited for, and those that hang must not stop callbacks.
PLACES = 100
#: Seconds for telling the service that nobody waits any more.
FAREWELL = 5.0


class ActionRunner:
    kind = "action"
    resumable = False
    places = PLACES
    offers = frozenset({"action"})

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
        record.execution_id = execution_kept(await state.read() if state is not None else None)
        if record.execution_id:
            record.accepted = True
            dispatch.log("info", say("going on with execution {id}", id=record.execution_id))
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
            raise Trouble("lost", say("the run belongs to another node by now"))
        dispatch.log(
            "info",
            say(
                "{method} {url} -> {status} in {milliseconds:.0f} ms",
                method=request.method,
                url=request.shown_url,
                status=reply.status,
                milliseconds=(dispatch.clock() - began) * 1000,
            ),
        )
        if said.execution_id:
            dispatch.log("info", say("accepted as execution {id}", id=said.execution_id))
        else:
            dispatch.log("info", say("accepted; the action service gave no execution_id"))

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
    return call.state is None or await call.state.keep(kept_text(execution_id))
