"""Executes actions: sends them to the action service and follows the execution to its end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from chimes.egress import Egress
from chimes.i18n import Message, _
from chimes.model.access import fill_secrets
from chimes.model.checkpoint import (
    ExecutionEnd,
    decode_action_checkpoint,
    encode_action_checkpoint,
    execution_end,
)
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import ActionTarget
from chimes.redaction import Redactor
from chimes.targets.action.service import (
    ActionConfig,
    ActionService,
    ExecutionReport,
    Record,
    cancel_request,
    execute_request,
    not_accepted,
    parse_report,
    status_request,
    summary_request,
)
from chimes.targets.base import Call, TargetError
from chimes.targets.http.connection import Lookup, Reply, system_lookup
from chimes.targets.remote import PollDelay, RemoteAttempt, RemoteExecutor

#: Actions in flight per node, in their own pool: they mostly wait, and hanging ones must not block
#: callbacks.
PERMITS = 100
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.5, 10.0, 1.6
#: An execution may become visible later than its id: this many 404 in a row are tolerated, and
#: as many 200 without a status, which a catch-all page returns.
UNKNOWN_IN_A_ROW = 3


class ActionRunner:
    kind = "action"
    resumable = False
    permits = PERMITS
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
            config, egress=egress, connections=PERMITS, lookup=lookup, tls=tls
        )
        self._executor = RemoteExecutor()

    async def open(self) -> None:
        await self._service.open()

    async def close(self) -> None:
        await self._executor.close()
        await self._service.close()

    async def execute(self, call: Call) -> Outcome:
        attempt = ActionAttempt(call, self._service, self._config, self._user_agent)
        outcome = await self._executor.execute(attempt)
        if outcome.end is not AttemptEnd.SUCCEEDED:
            attempt.log("error", outcome.error)
        return outcome


@dataclass(kw_only=True, slots=True)
class PollState:
    """What polling one execution has shown so far."""

    #: Whether the service ever reported this execution.
    known: bool = False
    unknown_in_a_row: int = 0
    #: The full document is too long; the summary is requested instead.
    too_long: bool = False


class ActionAttempt(RemoteAttempt):
    """One attempt of an action: hand over, store the execution id, follow the execution."""

    def __init__(
        self, call: Call, service: ActionService, config: ActionConfig, user_agent: str
    ) -> None:
        super().__init__(call, Redactor(config.secrets))
        target = call.run.target
        assert isinstance(target, ActionTarget), "a runner is only given runs of its own kind"
        self._target = fill_secrets(target, call.secrets)
        self._service = service
        self._config = config
        self._user_agent = user_agent
        self._record = Record(self.redactor)

    @property
    def accepted(self) -> bool:
        return self._record.accepted

    @property
    def cancelable(self) -> bool:
        return bool(self._record.execution_id)

    def result(self) -> dict[str, object]:
        return self._record.result()

    async def execute(self) -> None:
        record, state = self._record, self.call.state
        stored = await state.read() if state is not None else None
        record.execution_id = decode_action_checkpoint(stored)
        if record.execution_id:
            record.accepted = True
            self.log("info", _("Following execution {id}", id=record.execution_id))
        else:
            await self._hand_over()
        if record.execution_id:
            await self._follow()

    async def cancel(self) -> None:
        reason = "the run was canceled" if self.call.canceled() else "the run timed out"
        await self._service.send(
            cancel_request(
                self._config,
                self.call.run,
                self._target,
                self._user_agent,
                self._record.execution_id,
                reason,
            )
        )

    async def _hand_over(self) -> None:
        record = self._record
        request = execute_request(self._config, self.call.run, self._target, self._user_agent)
        began = self.clock()
        reply = await self._service.send(request)
        record.http_status = reply.status
        if reply.status not in (200, 202):
            raise not_accepted(reply, self.now())
        record.accepted = True
        report = parse_report(reply) or ExecutionReport()
        record.execution_id = report.execution_id
        record.add(replace(report, status=report.status or "accepted"))
        # Stored first: a takeover follows this execution instead of starting another.
        if report.execution_id and not await self._store_id(report.execution_id):
            # Another node has claimed the run and follows the execution, so it is not canceled.
            raise TargetError("lost", _("the run belongs to another node"))
        self.log(
            "info",
            _(
                "{method} {url} -> {status} in {milliseconds:.0f} ms",
                method=request.method,
                url=request.shown_url,
                status=reply.status,
                milliseconds=(self.clock() - began) * 1000,
            ),
        )
        if report.execution_id:
            self.log("info", _("Accepted as execution {id}", id=report.execution_id))
        else:
            self.log("info", _("Accepted; the action service returned no execution_id"))

    async def _store_id(self, execution_id: str) -> bool:
        state = self.call.state
        return state is None or await state.save(encode_action_checkpoint(execution_id))

    async def _follow(self) -> None:
        """Returns when the execution has completed or the service does not report its end;
        TargetError if it failed."""
        delay = PollDelay(seconds=FIRST_PAUSE, longest=LONGEST_PAUSE, growth=GROWTH)
        state, record = PollState(), self._record
        while (end := execution_end(record.status)) is None:
            await asyncio.sleep(delay.next())
            try:
                reply = await self._poll(state)
            except TargetError as error:
                # The execution continues despite a failed poll.
                self.log("warning", error.text)
                continue
            if not self._record_reply(reply, state):
                return
        record.followed = True
        self._check_end(end)

    async def _poll(self, state: PollState) -> Reply:
        build = summary_request if state.too_long else status_request
        request = build(
            self._config,
            self.call.run,
            self._target,
            self._user_agent,
            self._record.execution_id,
        )
        return await self._service.send(request)

    def _record_reply(self, reply: Reply, state: PollState) -> bool:
        """False: the service does not report how the execution ends."""
        status = reply.status
        report = parse_report(reply) if status == 200 and not reply.truncated else None
        if report is not None and report.status:
            state.known, state.unknown_in_a_row = True, 0
            self._record_report(report)
            return True
        if status == 200 and reply.truncated and not state.too_long:
            state.too_long = True
            return True
        if status == 404:
            state.unknown_in_a_row += 1
            if state.unknown_in_a_row < UNKNOWN_IN_A_ROW:
                return True
            if state.known:
                raise TargetError(
                    "execution_lost",
                    _(
                        "the action service no longer knows execution {id}",
                        id=self._record.execution_id,
                    ),
                )
        elif _keep_polling(status, state):
            self.log(
                "warning",
                _(
                    "Polling the execution: the action service returned HTTP {status}",
                    status=status,
                ),
            )
            return True
        self.log(
            "info",
            _(
                "Accepted; the action service does not report the end (HTTP {status})",
                status=status,
            ),
        )
        return False

    def _record_report(self, report: ExecutionReport) -> None:
        record = self._record
        if report.status != record.status:
            self.log(
                "info", _("Execution {id}: {status}", id=record.execution_id, status=report.status)
            )
        record.add(report)

    def _check_end(self, end: ExecutionEnd) -> None:
        record = self._record
        why = record.why or record.last_words
        match end:
            case ExecutionEnd.COMPLETED:
                failed = (record.counts or {}).get("failed", 0)
                if failed:
                    self.log("warning", _some_failed(failed, record.counts or {}, why))
            case ExecutionEnd.FAILED if why:
                raise TargetError("action_failed", _("the action failed: {why}", why=why))
            case ExecutionEnd.FAILED:
                raise TargetError("action_failed", _("the action failed"))
            case ExecutionEnd.CANCELLED:
                raise TargetError(
                    "action_canceled", _("the action was canceled in the action service")
                )
            case _other:
                assert_never(end)


def _keep_polling(status: int, state: PollState) -> bool:
    """Whether to poll again after a response without a status."""
    if status == 200 and not state.known:
        state.unknown_in_a_row += 1
        return state.unknown_in_a_row < UNKNOWN_IN_A_ROW
    return status in (200, 408, 429) or (status >= 500 and status != 501)


def _some_failed(failed: int, counts: Mapping[str, int], why: str) -> Message:
    return _(
        "{failed} of {total} objects failed: {why}",
        failed=failed,
        total=counts.get("total", failed),
        why=why or "-",
    )
