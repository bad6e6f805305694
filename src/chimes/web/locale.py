"""Negotiates the language of a response: explicit parameter, then `X-Language`, then
`Accept-Language`, then the preference of the caller (`PATCH /me`)."""

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
#: Limit for reading the preference, so that a slow store does not delay an error response.
_PREFERENCE_SECONDS = 1.0
_HEADERS = ("X-Language", "Accept-Language")


def set_language(answer: Answer, lang: str) -> Answer:
    """Sets Content-Language and Vary."""
    answer.headers["Content-Language"] = lang
    for name in _HEADERS:
        answer.headers.add_vary_header(name)
    return answer


def language_of_headers(request: Request) -> str | None:
    """The first supported language in the headers, or None."""
    for tag in request.headers.getlist("x-language"):
        if found := known(tag):
            return found
    return accepted(",".join(request.headers.getlist("accept-language")), otherwise="") or None


async def preferred_language(
    request: Request, requested: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str | None:
    """The negotiated language, or None if neither request nor preferences name a supported one.
    Raises InvalidInput for an unsupported explicit language."""
    found = named(requested, source) if requested else language_of_headers(request)
    if found is None:
        context: WebContext = request.app.state.context
        actor: Actor = request.state.actor
        found = (await context.preferences.get(actor.owner)).language
    if found is not None:
        # An error response to this request uses the same language.
        request.state.language = found
    return found


async def negotiated_language(
    request: Request, requested: str | None = None, *, source: Literal["body", "query"] = "body"
) -> str:
    return await preferred_language(request, requested, source=source) or DEFAULT


async def error_language(request: Request, *, use_preferences: bool) -> str:
    """The language of an error response. Falls back to the headers if the caller is unknown or the
    store does not answer."""
    state = request.scope.get("state", {})
    found: str | None = state.get("language") or language_of_headers(request)
    if found is None and use_preferences and "actor" in state:
        try:
            async with asyncio.timeout(_PREFERENCE_SECONDS):
                found = await preferred_language(request)
        except (StoreError, TimeoutError):
            pass
    return found or DEFAULT


async def _language(request: Request) -> str:
    return await negotiated_language(request)


#: Dependency for handlers whose response contains text.
NegotiatedLanguage = Annotated[str, Depends(_language)]


_GRAMMAR = "chimes.language.parser"


async def parse_sentence(text: str, *, now: datetime, timezone: str, lang: str | None) -> Parsed:
    """`chimes.language.parse`. The grammars are loaded on first use, because most nodes never parse
    a sentence, and in a thread, because loading would delay due schedules."""
    if _GRAMMAR not in sys.modules:
        await asyncio.to_thread(_load_grammar)
    from chimes.language import parse

    return parse(text, now=now, timezone=timezone, lang=lang)


def _load_grammar() -> None:
    import chimes.language.parser  # noqa: F401
