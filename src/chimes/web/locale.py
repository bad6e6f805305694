"""The language of an answer: the one asked for by name, else that of `X-Language`, else what
`Accept-Language` likes best, else the one that the caller has chosen (`PATCH /me`)."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import StoreError
from chimes.language.languages import DEFAULT, accepted, known, named
from chimes.model.access import Actor
from chimes.web.context import WebContext

if TYPE_CHECKING:
    from chimes.language import Parsed


Answer = TypeVar("Answer", bound=Response)
#: An error is not kept waiting for a store that is slow.
_PREFERENCE_SECONDS = 1.0
_HEADERS = ("X-Language", "Accept-Language")


def in_language(answer: Answer, lang: str) -> Answer:
    """The answer with the headers that say so."""
    answer.headers["Content-Language"] = lang
    for name in _HEADERS:
        answer.headers.add_vary_header(name)
    return answer


def language_of_headers(request: Request) -> str | None:
    """None: they name no language of ours."""
    for tag in request.headers.getlist("x-language"):
        if found := known(tag):
            return found
    return accepted(",".join(request.headers.getlist("accept-language")), otherwise="") or None


async def preferred_language(
    request: Request, asked: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str | None:
    """None: the caller has no wish that we can meet. InvalidInput where a language is asked for by
    name that there is not."""
    found = named(asked, source) if asked else language_of_headers(request)
    if found is None:
        context: WebContext = request.app.state.context
        actor: Actor = request.state.actor
        found = (await context.preferences.of(actor.owner)).language
    if found is not None:
        # Should the request fail after all, it does so in this language.
        request.state.language = found
    return found


async def spoken_language(
    request: Request, asked: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str:
    return await preferred_language(request, asked, source=source) or DEFAULT


async def language_of_refusal(request: Request, *, ask_store: bool) -> str:
    """For an answer that must be given, whatever has happened: a caller that is not known, or a
    store that does not answer, leave what the headers say."""
    state = request.scope.get("state", {})
    found: str | None = state.get("language") or language_of_headers(request)
    if found is None and ask_store and "actor" in state:
        try:
            async with asyncio.timeout(_PREFERENCE_SECONDS):
                found = await preferred_language(request)
        except (StoreError, TimeoutError):
            pass
    return found or DEFAULT


async def _negotiated(request: Request) -> str:
    return await spoken_language(request)


#: For a handler whose answer has words in it.
Spoken = Annotated[str, Depends(_negotiated)]


# @@ Sentences that say when, read for a door.

_GRAMMAR = "chimes.language.parser"


async def parsed(text: str, *, now: datetime, timezone: str, lang: str | None) -> Parsed:
    """As `chimes.language.parse`. The grammars of three languages are loaded with the first
    sentence, because most nodes never read one; in a thread, because that takes longer than a
    schedule may be late."""
    if _GRAMMAR not in sys.modules:
        await asyncio.to_thread(_load)
    from chimes.language import parse

    return parse(text, now=now, timezone=timezone, lang=lang)


def _load() -> None:
    import chimes.language.parser  # noqa: F401
