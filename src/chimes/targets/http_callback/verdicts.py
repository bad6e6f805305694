"""What came of an attempt: which answers and failures mean success, a retry, or the end (R3.48)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp

from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import HttpTarget
from chimes.targets.http_callback.exchange import LostConnection
from chimes.targets.http_callback.resolver import EgressDenied
from chimes.targets.http_callback.response import Reply, wait_asked
from chimes.wording import say

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
    "certificate": say("the certificate was not accepted: certificate"),
    "not_yet_valid": say("the certificate was not accepted: not yet valid"),
    "expired": say("the certificate was not accepted: expired"),
    "self_signed": say("the certificate was not accepted: self signed"),
    "unknown_issuer": say("the certificate was not accepted: unknown issuer"),
    "wrong_host": say("the certificate was not accepted: wrong host"),
}
_VERSION_REASONS = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why no answer came."""

    code: str
    text: str
    retryable: bool = True


def outcome_of_reply(
    target: HttpTarget, reply: Reply, result: dict[str, object], now: datetime
) -> Outcome:
    """`now` is the store's time; dates in Retry-After are read against it."""
    status = reply.status
    if status in target.expected_status or (not target.expected_status and 200 <= status <= 299):
        return Outcome(end=AttemptEnd.SUCCEEDED, result=result)
    text = f"HTTP {status} {reply.phrase}".rstrip()
    if 300 <= status <= 399:
        return Outcome(
            end=AttemptEnd.FAILED,
            result=result,
            code="redirect",
            error=say("{answer}: not followed", answer=text),
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
        error=say("timed out after {seconds:g}s", seconds=timeout.total_seconds()),
        code="timeout",
    )


def failure_of(error: Exception) -> Failure:
    """The stable code of a failure; a driver's wording goes no further than here."""
    match error:
        case EgressDenied():
            return Failure(code="egress_denied", text=error.args[0], retryable=False)
        case aiohttp.ClientConnectorCertificateError():
            return _certificate_failure(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return _handshake_failure(error.os_error)
        case aiohttp.ClientConnectorDNSError():
            return Failure(
                code="dns", text=say("the name {name} could not be resolved", name=error.host)
            )
        case aiohttp.ClientConnectorError():
            return _connect_failure(error)
        case LostConnection() | aiohttp.ClientPayloadError() | OSError():
            return Failure(
                code="reset", text=say("the connection was lost before the answer was whole")
            )
        case _:
            return Failure(code="bad_response", text=say("the answer was not valid HTTP"))


def _certificate_failure(error: Exception) -> Failure:
    reason = "certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _CERTIFICATE_REASONS.get(error.verify_code, reason)
    return Failure(code=f"tls_{reason}", text=_NOT_ACCEPTED[reason], retryable=False)


def _handshake_failure(error: OSError) -> Failure:
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Failure(
            code="tls_closed", text=say("the connection was closed in the TLS handshake")
        )
    if any(word in reason for word in _VERSION_REASONS):
        return Failure(
            code="tls_version",
            text=say("the server speaks no TLS version from 1.2 up"),
            retryable=False,
        )
    return Failure(code="tls_handshake", text=say("the TLS handshake failed"))


def _connect_failure(error: aiohttp.ClientConnectorError) -> Failure:
    cause = error.os_error
    if isinstance(cause, ConnectionRefusedError):
        return Failure(code="connect_failed", text=say("connection refused"))
    if error.ssl is not False and isinstance(cause, (ConnectionResetError, ConnectionAbortedError)):
        return Failure(
            code="tls_closed", text=say("the connection was closed in the TLS handshake")
        )
    return Failure(code="connect_failed", text=say("no connection could be made"))
