"""An execution that was taken over, asked for until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from chimes.model.action_run import ExecutionEnd, end_of
from chimes.targets.action.answer import Said, said_in
from chimes.targets.action.dispatch import Dispatch
from chimes.targets.action.request import status_request, summary_request
from chimes.targets.action.service import ActionService
from chimes.targets.action.trouble import Trouble
from chimes.targets.http_callback.request import Request
from chimes.targets.http_callback.response import Reply
from chimes.wording import say

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
    while (end := end_of(record.status)) is None:
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
                say(
                    "the action service no longer knows execution {id}",
                    id=dispatch.record.execution_id,
                ),
            )
    elif _passes(status, asking):
        dispatch.log(
            "warning",
            say(
                "asked for the execution, the action service answered HTTP {status}", status=status
            ),
        )
        return True
    dispatch.log(
        "info",
        say(
            "accepted; the action service does not tell how it ends (HTTP {status})", status=status
        ),
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
            say("execution {id}: {status}", id=record.execution_id, status=said.status),
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
            raise Trouble("action_failed", say("the action failed: {why}", why=why))
        case ExecutionEnd.FAILED:
            raise Trouble("action_failed", say("the action failed"))
        case ExecutionEnd.CANCELLED:
            raise Trouble("action_canceled", say("the action was canceled in the action service"))
        case _:
            assert_never(end)


def _some_failed(failed: int, counts: Mapping[str, int], why: str) -> str:
    return say(
        "{failed} of {total} objects failed: {why}",
        failed=failed,
        total=counts.get("total", failed),
        why=why or "-",
    )
