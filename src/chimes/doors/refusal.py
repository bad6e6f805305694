"""Requests that are turned away for how they were sent, before anybody looks at what they ask."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.errors import ChimesError


class Refusal(ChimesError):
    """The request cannot be taken like this"""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers: Mapping[str, str] = headers or {}


#: The rest of the body is not read, so the connection cannot be used again.
_CLOSE = {"Connection": "close"}


def too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "body_too_large",
        f"a request body has at most {limit // 1024} KiB",
        headers=_CLOSE,
    )


def long_headers(limit: int) -> Refusal:
    return Refusal(
        431,
        "headers_too_large",
        f"the headers of a request have at most {limit // 1024} KiB",
        headers=_CLOSE,
    )


def encoded_body() -> Refusal:
    return Refusal(415, "encoded_body", "a request body cannot be compressed", headers=_CLOSE)


def not_json(content_type: str) -> Refusal:
    given = f"not {content_type[:100]!r}" if content_type else "and a Content-Type that says so"
    return Refusal(
        415,
        "not_json",
        f"the body must be application/json, {given}",
        headers={"Accept": "application/json"},
    )


def unparsable(reason: str) -> Refusal:
    return Refusal(400, "bad_json", f"the body is not valid JSON: {reason}")


def wrong_length() -> Refusal:
    return Refusal(400, "wrong_length", "the body is not as long as Content-Length says")


def no_length() -> Refusal:
    return Refusal(400, "no_length", "a request with a body needs a Content-Length")


def no_host() -> Refusal:
    return Refusal(400, "no_host", "the request has no Host header, or more than one")


def other_host(host: str) -> Refusal:
    return Refusal(
        421,
        "host_not_allowed",
        f"{host[:100]!r} is not a name of this server; a further one goes into allowed_hosts",
    )


def foreign_origin() -> Refusal:
    return Refusal(403, "foreign_origin", "a page of another origin may not change anything here")


def too_slow() -> Refusal:
    return Refusal(
        408,
        "request_timeout",
        "the request did not arrive in time",
        headers=_CLOSE,
    )


def no_answer_in_time() -> Refusal:
    return Refusal(
        503,
        "answer_timeout",
        "no answer within the time limit; whether something was done is not known",
        headers={"Retry-After": "5"},
    )


def under_way() -> Refusal:
    return Refusal(
        409,
        "request_under_way",
        "the first request with this Idempotency-Key has not been answered yet",
        headers={"Retry-After": "1"},
    )
