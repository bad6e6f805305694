"""The context of a request: the services that it can use, and the language of its response.

The language is the explicit parameter, else `X-Language`, `Accept-Language`, or the preference of
the caller (`PATCH /me`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import Depends
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import StoreError
from chimes.language.languages import DEFAULT, accepted, known, named
from chimes.model.access import Actor
from chimes.services.access import AccessService
from chimes.services.audit import AuditService
from chimes.services.manual_runs import ManualRuns
from chimes.services.nodes import NodeService, SourceRegistry
from chimes.services.notifications import NotificationService
from chimes.services.preferences import PreferenceService, SavedFilters
from chimes.services.runs import RunService
from chimes.services.schedules.service import ScheduleService
from chimes.services.schedules.setup import SetupCache, SetupService
from chimes.store.port import Store

if TYPE_CHECKING:
    from chimes.language import Parsed
    from chimes.services.attention import KnownFailures, SnoozeService
    from chimes.services.changes import ChangeDetector
    from chimes.services.demo import DemoService
    from chimes.services.insights import InsightService
    from chimes.services.system import SystemService
    from chimes.telegram.links import Links


# --- services and settings ------------------------------------------------------------------------
# Services that only the dashboard or the API needs are imported when they are used.
@dataclass(frozen=True, kw_only=True, slots=True)
class WebContext:
    schedules: ScheduleService
    runs: RunService
    access: AccessService
    store: Store
    settings: Settings
    clock: Clock
    metrics: CollectorRegistry
    version: str
    #: The port that clients connect to, for the Host check.
    port: int
    #: Why this node should get no traffic now (draining, lease lost); empty: it is ready.
    not_ready: Callable[[], str]
    #: Sources from this node's configuration file.
    sources: SourceRegistry = field(default_factory=SourceRegistry)
    #: Where each setting came from: file, environment or default.
    origins: Mapping[str, str] = field(default_factory=dict)

    setup_cache: SetupCache = field(default_factory=SetupCache)

    async def now(self) -> datetime:
        """The store's time."""
        return await self.store.now()

    @property
    def manual_runs(self) -> ManualRuns:
        return ManualRuns(self.store, self.schedules.rules)

    @property
    def preferences(self) -> PreferenceService:
        return PreferenceService(self.store)

    @property
    def notifications(self) -> NotificationService:
        return NotificationService(self.store, self.schedules.rules.check_recipient)

    @property
    def setup(self) -> SetupService:
        return SetupService(self.store, self.schedules.rules, self.settings)

    @property
    def insights(self) -> InsightService:
        from chimes.services.insights import InsightService

        return InsightService(self.store)

    @property
    def nodes(self) -> NodeService:
        return NodeService(self.store)

    @property
    def snoozes(self) -> SnoozeService:
        from chimes.services.attention import SnoozeService

        return SnoozeService(self.store)

    @property
    def known_failures(self) -> KnownFailures:
        from chimes.services.attention import KnownFailures

        return KnownFailures(self.store)

    @property
    def saved_filters(self) -> SavedFilters:
        return SavedFilters(self.store)

    @property
    def demo(self) -> DemoService:
        from chimes.services.demo import DemoService

        return DemoService(self.store)

    @property
    def audit(self) -> AuditService:
        return AuditService(self.store, self.settings.audit_key)

    @property
    def system(self) -> SystemService:
        from chimes.services.system import SystemService

        return SystemService(self.store, self.clock)

    @property
    def telegram_links(self) -> Links:
        # Imports aiohttp, which a node without a bot does not need.
        from chimes.telegram.links import Links

        return Links(self.store)

    def change_detector(self, actor: Actor) -> ChangeDetector:
        from chimes.services.changes import ChangeDetector

        return ChangeDetector(self.store, actor)


# --- the language ---------------------------------------------------------------------------------
Answer = TypeVar("Answer", bound=Response)
#: Limit for reading the preference, so that a slow store does not delay an error response.
_PREFERENCE_SECONDS = 1.0
_LANGUAGE_HEADERS = ("X-Language", "Accept-Language")


def set_language(answer: Answer, lang: str) -> Answer:
    """Sets Content-Language and Vary."""
    answer.headers["Content-Language"] = lang
    for name in _LANGUAGE_HEADERS:
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
