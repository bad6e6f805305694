"""Executes HTTP callbacks and maps responses and failures to outcomes."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp

from chimes.egress import Egress
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import HttpTarget
from chimes.redaction import mask_known
from chimes.targets.base import Call
from chimes.targets.http.connection import (
    EgressDenied,
    Exchange,
    GuardedConnector,
    Lookup,
    LostConnection,
    Reply,
    system_lookup,
    wait_asked,
)
from chimes.targets.http.request import Request, build_request

_CERTIFICATE_REASONS = {
    9: "not_yet_valid",
    10: "expired",
    18: "self_signed",
    19: "self_signed",
    20: "unknown_issuer",
    21: "unknown_issuer",
    62: "wrong_host",
    64: "wrong_host",
}
_NOT_ACCEPTED = {
    "certificate": _("the certificate was not accepted: certificate"),
    "not_yet_valid": _("the certificate was not accepted: not yet valid"),
    "expired": _("the certificate was not accepted: expired"),
    "self_signed": _("the certificate was not accepted: self signed"),
    "unknown_issuer": _("the certificate was not accepted: unknown issuer"),
    "wrong_host": _("the certificate was not accepted: wrong host"),
}
_VERSION_REASONS = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why there was no response."""

    code: str
    text: str
    retryable: bool = True


def outcome_of_reply(
    target: HttpTarget, reply: Reply, result: dict[str, object], now: datetime
) -> Outcome:
    """`now` is the store's time, used for dates in Retry-After."""
    status = reply.status
    if status in target.expected_status or (not target.expected_status and 200 <= status <= 299):
        return Outcome(end=AttemptEnd.SUCCEEDED, result=result)
    text = f"HTTP {status} {reply.phrase}".rstrip()
    if 300 <= status <= 399:
        return Outcome(
            end=AttemptEnd.FAILED,
            result=result,
            code="redirect",
            error=_("{answer}: not followed", answer=text),
        )
    return Outcome(
        end=AttemptEnd.FAILED,
        retryable=status in (408, 429) or status >= 500,
        result=result,
        error=text,
        code="gone" if status == 410 else f"http_{status}",
        retry_after=wait_asked(reply.retry_after, now) if status in (429, 503) else None,
        gone=status == 410,
    )


def outcome_of_failure(failure: Failure, result: dict[str, object]) -> Outcome:
    return Outcome(
        end=AttemptEnd.FAILED,
        retryable=failure.retryable,
        result=result,
        error=failure.text,
        code=failure.code,
    )


def outcome_of_timeout(timeout: timedelta, result: dict[str, object]) -> Outcome:
    return Outcome(
        end=AttemptEnd.TIMEOUT,
        retryable=True,
        result=result,
        error=_("timed out after {seconds:g}s", seconds=timeout.total_seconds()),
        code="timeout",
    )


def failure_of(error: Exception) -> Failure:
    """The stable code and message of a client error."""
    match error:
        case EgressDenied():
            return Failure(code="egress_denied", text=error.args[0], retryable=False)
        case aiohttp.ClientConnectorCertificateError():
            return _certificate_failure(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return _handshake_failure(error.os_error)
        case aiohttp.ClientConnectorDNSError():
            return Failure(
                code="dns", text=_("the name {name} could not be resolved", name=error.host)
            )
        case aiohttp.ClientConnectorError():
            return _connect_failure(error)
        case LostConnection() | aiohttp.ClientPayloadError() | OSError():
            return Failure(
                code="reset", text=_("the connection was lost before the answer was whole")
            )
        case _:
            return Failure(code="bad_response", text=_("the answer was not valid HTTP"))


def _certificate_failure(error: Exception) -> Failure:
    reason = "certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _CERTIFICATE_REASONS.get(error.verify_code, reason)
    return Failure(code=f"tls_{reason}", text=_NOT_ACCEPTED[reason], retryable=False)


def _handshake_failure(error: OSError) -> Failure:
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Failure(code="tls_closed", text=_("the connection was closed in the TLS handshake"))
    if any(word in reason for word in _VERSION_REASONS):
        return Failure(
            code="tls_version",
            text=_("the server speaks no TLS version from 1.2 up"),
            retryable=False,
        )
    return Failure(code="tls_handshake", text=_("the TLS handshake failed"))


def _connect_failure(error: aiohttp.ClientConnectorError) -> Failure:
    cause = error.os_error
    if isinstance(cause, ConnectionRefusedError):
        return Failure(code="connect_failed", text=_("connection refused"))
    if error.ssl is not False and isinstance(cause, (ConnectionResetError, ConnectionAbortedError)):
        return Failure(code="tls_closed", text=_("the connection was closed in the TLS handshake"))
    return Failure(code="connect_failed", text=_("no connection could be made"))


class HttpCallback:
    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

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
        """`tls` replaces the system's trusted certificates."""
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
            # Saved under other rules, or edited manually in jobs.json.
            call.log("error", _("it was not sent: {problem}", problem=error.message))
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
        result = {key: mask_known(value, request.secrets) for key, value in result.items()}
    if ended is None:
        return outcome_of_timeout(call.run.policy.timeout, result)
    if isinstance(ended, Failure):
        return outcome_of_failure(ended, result)
    now = call.triggered_at + timedelta(seconds=took)
    return outcome_of_reply(target, ended, result, now)


def _log(call: Call, request: Request, outcome: Outcome, took: float) -> None:
    result = outcome.result or {}
    if outcome.end is AttemptEnd.SUCCEEDED:
        # The message below, without what it needs to be translated: logs are in English.
        line = f"{request.method} {result['url']} -> {result['status']} in {took * 1000:.0f} ms"
        call.log("info", line)
        return
    call.log(
        "error",
        _(
            "{method} {url} -> {outcome} in {milliseconds:.0f} ms",
            method=request.method,
            url=result["url"],
            outcome=outcome.error,
            milliseconds=took * 1000,
        ),
    )
