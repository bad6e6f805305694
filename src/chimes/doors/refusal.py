"""Requests that are turned away for how they were sent, before anybody looks at what they ask."""

from __future__ import annotations

from collections.abc import Mapping

from chimes.errors import ChimesError
from chimes.wording import say


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
        say("a request body has at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def long_headers(limit: int) -> Refusal:
    return Refusal(
        431,
        "headers_too_large",
        say("the headers of a request have at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def encoded_body() -> Refusal:
    return Refusal(415, "encoded_body", say("a request body cannot be compressed"), headers=_CLOSE)


def not_json(content_type: str) -> Refusal:
    if content_type:
        detail = say("the body must be application/json, not {given!r}", given=content_type[:100])
    else:
        detail = say("the body must be application/json, and a Content-Type that says so")
    return Refusal(415, "not_json", detail, headers={"Accept": "application/json"})


def unparsable(reason: str) -> Refusal:
    return Refusal(400, "bad_json", say("the body is not valid JSON: {reason}", reason=reason))


def wrong_length() -> Refusal:
    return Refusal(400, "wrong_length", say("the body is not as long as Content-Length says"))


def no_length() -> Refusal:
    return Refusal(400, "no_length", say("a request with a body needs a Content-Length"))


def no_host() -> Refusal:
    return Refusal(400, "no_host", say("the request has no Host header, or more than one"))


def other_host(host: str) -> Refusal:
    return Refusal(
        421,
        "host_not_allowed",
        say(
            "{host!r} is not a name of this server; a further one goes into allowed_hosts",
            host=host[:100],
        ),
    )


def foreign_origin() -> Refusal:
    return Refusal(
        403, "foreign_origin", say("a page of another origin may not change anything here")
    )


def too_slow() -> Refusal:
    return Refusal(
        408,
        "request_timeout",
        say("the request did not arrive in time"),
        headers=_CLOSE,
    )


def no_answer_in_time() -> Refusal:
    return Refusal(
        503,
        "answer_timeout",
        say("no answer within the time limit; whether something was done is not known"),
        headers={"Retry-After": "5"},
    )


def under_way() -> Refusal:
    return Refusal(
        409,
        "request_under_way",
        say("the first request with this Idempotency-Key has not been answered yet"),
        headers={"Retry-After": "1"},
    )
