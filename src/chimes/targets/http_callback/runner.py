"""Carries out one attempt of an HTTP callback."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta

import aiohttp

from chimes.errors import InvalidInput
from chimes.model.egress import Egress
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import HttpTarget
from chimes.targets.base import Call
from chimes.targets.http_callback.connector import GuardedConnector
from chimes.targets.http_callback.exchange import Exchange
from chimes.targets.http_callback.masking import scrubbed
from chimes.targets.http_callback.request import Request, build_request
from chimes.targets.http_callback.resolver import EgressDenied, Lookup, system_lookup
from chimes.targets.http_callback.response import Reply
from chimes.targets.http_callback.verdicts import (
    Failure,
    failure_of,
    outcome_of_failure,
    outcome_of_reply,
    outcome_of_timeout,
)
from chimes.wording import say


class HttpCallback:
    kind = "http"
    resumable = False
    places = None
    offers = frozenset({"http"})

    def __init__(
        self,
        *,
        egress: Egress,
        user_agent: str,
        max_connections: int,
        node_id: str = "",
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` replaces the system's trusted certificates, for sites with their own."""
        self._egress = egress
        self._user_agent = user_agent
        self._max_connections = max_connections
        self._node_id = node_id
        self._lookup = lookup
        self._tls = tls
        self._exchange: Exchange | None = None

    async def open(self) -> None:
        self._exchange = Exchange(
            GuardedConnector(
                rules=self._egress, limit=self._max_connections, lookup=self._lookup, tls=self._tls
            )
        )

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close()

    async def execute(self, call: Call) -> Outcome:
        target = call.run.target
        assert isinstance(target, HttpTarget), "a runner is only given runs of its own kind"
        try:
            request = build_request(
                call, target, user_agent=self._user_agent, node_id=self._node_id
            )
        except InvalidInput as error:
            # Saved under other rules, or edited by hand in jobs.json.
            call.log("error", say("it was not sent: {problem}", problem=error.message))
            failure = Failure(code="invalid_target", text=error.message, retryable=False)
            return outcome_of_failure(failure, {})
        assert self._exchange is not None, "open() comes first"
        clock = asyncio.get_running_loop().time
        began = clock()
        timeout = call.run.policy.timeout
        ended: Reply | Failure | None = None
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                ended = await self._exchange.send(request)
        except TimeoutError:
            pass
        except (aiohttp.ClientError, EgressDenied, OSError) as error:
            ended = failure_of(error)
        took = clock() - began
        outcome = _outcome(call, target, request, ended, took)
        _log(call, request, outcome, took)
        return outcome


def _outcome(
    call: Call,
    target: HttpTarget,
    request: Request,
    ended: Reply | Failure | None,
    took: float,
) -> Outcome:
    result: dict[str, object] = {"url": request.shown_url, "duration_ms": round(took * 1000, 1)}
    if isinstance(ended, Reply):
        result |= {
            "status": ended.status,
            "headers": ended.headers,
            "body": ended.body,
            "truncated": ended.truncated,
        }
        if ended.location is not None:
            result["location"] = ended.location
    if request.secrets:
        result = {key: scrubbed(value, request.secrets) for key, value in result.items()}
    if ended is None:
        return outcome_of_timeout(call.run.policy.timeout, result)
    if isinstance(ended, Failure):
        return outcome_of_failure(ended, result)
    now = call.triggered_at + timedelta(seconds=took)
    return outcome_of_reply(target, ended, result, now)


def _log(call: Call, request: Request, outcome: Outcome, took: float) -> None:
    succeeded = outcome.end is AttemptEnd.SUCCEEDED
    result = outcome.result or {}
    what = result["status"] if succeeded else outcome.error
    call.log(
        "info" if succeeded else "error",
        say(
            "{method} {url} -> {outcome} in {milliseconds:.0f} ms",
            method=request.method,
            url=result["url"],
            outcome=what,
            milliseconds=took * 1000,
        ),
    )
