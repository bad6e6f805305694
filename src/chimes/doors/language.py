"""The language of an answer: the one asked for by name, else what `Accept-Language` likes best,
else the one that the caller has chosen (`PATCH /me`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from chimes.doors.context import Doorway
from chimes.language.choosing import DEFAULT, accepted, named
from chimes.model.access import Actor

Answer = TypeVar("Answer", bound=Response)


def in_language(answer: Answer, lang: str) -> Answer:
    """The answer with the headers that say so."""
    answer.headers["Content-Language"] = lang
    answer.headers.add_vary_header("Accept-Language")
    return answer


async def preferred_language(
    request: Request, asked: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str | None:
    """None: the caller has no wish that we can meet. InvalidInput where a language is asked for by
    name that there is not."""
    if asked:
        return named(asked, source)
    header = ",".join(request.headers.getlist("accept-language"))
    if found := accepted(header, otherwise=""):
        return found
    doorway: Doorway = request.app.state.doorway
    actor: Actor = request.state.actor
    return (await doorway.preferences.of(actor.owner)).language


async def spoken_language(
    request: Request, asked: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str:
    return await preferred_language(request, asked, source=source) or DEFAULT


async def _negotiated(request: Request) -> str:
    return await spoken_language(request)


#: For a handler whose answer has words in it.
Spoken = Annotated[str, Depends(_negotiated)]
