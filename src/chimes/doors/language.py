"""The language of an answer: the one asked for by name, else what `Accept-Language` likes best."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from chimes.language.choosing import accepted, named

Answer = TypeVar("Answer", bound=Response)


def language_of(connection: HTTPConnection, asked: str | None = None) -> str:
    """Raises InvalidInput where a language is asked for by name that there is not."""
    if asked:
        return named(asked)
    return accepted(",".join(connection.headers.getlist("accept-language")))


def in_language(answer: Answer, lang: str) -> Answer:
    """The answer with the headers that say so."""
    answer.headers["Content-Language"] = lang
    answer.headers.add_vary_header("Accept-Language")
    return answer


# A coroutine, because a plain function would be called in a thread each time.
async def _negotiated(request: Request) -> str:
    return language_of(request)


#: For a handler whose answer has words in it.
Spoken = Annotated[str, Depends(_negotiated)]
