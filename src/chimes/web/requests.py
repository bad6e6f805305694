"""A request: the services that it can use, its caller, its language, and its JSON body.

The caller presents an API key or the internal token; open mode on loopback needs none. Rate limits
apply to the caller.

The language is the explicit parameter, else `X-Language`, `Accept-Language`, or the preference of
the caller (`PATCH /me`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TypeVar

from fastapi import Depends
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import (
    ChimesError,
    InvalidInput,
    NotAuthenticated,
    QuotaExceeded,
    RateLimited,
    StoreError,
)
from chimes.i18n import _
from chimes.language.languages import DEFAULT, accepted, known, named
from chimes.model import replace
from chimes.model.access import ANONYMOUS_OWNER, Actor, OwnerType, Role, Scope
from chimes.model.audit import entry
from chimes.model.ids import KeyId
from chimes.model.schedule import Schedule
from chimes.services.access import AccessService, RateLimiter, SharedLimiter, secrets_equal
from chimes.services.audit import AuditService
from chimes.services.calendars import CalendarService
from chimes.services.limits import LimitService
from chimes.services.manual_runs import ManualRuns
from chimes.services.notifications import NotificationService
from chimes.services.preferences import PreferenceService, SavedFilters
from chimes.services.runs import RunService
from chimes.services.schedules.service import ScheduleService
from chimes.services.schedules.setup import SetupCache, SetupService
from chimes.services.secrets import SecretService
from chimes.services.system import NodeService, SourceRegistry, SystemService
from chimes.services.webhooks import hook_url, may_see_hook
from chimes.store.port import Store

if TYPE_CHECKING:
    from chimes.services.attention import KnownFailures, SnoozeService
    from chimes.services.demo import DemoService
    from chimes.services.feeds import FeedService
    from chimes.services.flow_pictures import FlowPictures
    from chimes.services.forecast import ForecastService
    from chimes.services.insights import ChangeDetector, InsightService
    from chimes.services.maintenance import MaintenanceService
    from chimes.services.message_templates import MessageTemplateService
    from chimes.services.monitors import MonitorService
    from chimes.services.proposals import ProposalService
    from chimes.services.routing import RoutingService
    from chimes.services.schedules.changeset import ChangesetService
    from chimes.services.silences import SilenceService
    from chimes.services.time_data import TimeDataService
    from chimes.services.waits import ApprovalService, FlowEvents
    from chimes.telegram.links import Links


class RequestRejected(ChimesError):
    """The request cannot be processed"""

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
    def secrets(self) -> SecretService:
        return SecretService(self.store)

    @property
    def calendars(self) -> CalendarService:
        return self.schedules.rules.calendars

    @property
    def limits(self) -> LimitService:
        return LimitService(self.store)

    @property
    def notifications(self) -> NotificationService:
        return NotificationService(self.store, self.schedules.rules.check_recipient)

    @property
    def maintenance(self) -> MaintenanceService:
        from chimes.services.maintenance import MaintenanceService

        return MaintenanceService(self.store)

    @property
    def monitors(self) -> MonitorService:
        from chimes.services.monitors import MonitorService

        return MonitorService(self.store, self.schedules.rules)

    @property
    def routing(self) -> RoutingService:
        from chimes.services.routing import RoutingService

        return RoutingService(self.store, self.schedules.rules)

    @property
    def silences(self) -> SilenceService:
        from chimes.services.silences import SilenceService

        return SilenceService(self.store)

    @property
    def message_templates(self) -> MessageTemplateService:
        from chimes.services.message_templates import MessageTemplateService

        return MessageTemplateService(self.store)

    @property
    def setup(self) -> SetupService:
        return SetupService(self.store, self.schedules.rules, self.settings)

    @property
    def changesets(self) -> ChangesetService:
        from chimes.services.schedules.changeset import ChangesetService

        return ChangesetService(self.store, self.schedules, self.setup, self.settings)

    @property
    def forecasts(self) -> ForecastService:
        from chimes.services.forecast import ForecastService

        return ForecastService(self.store, self.schedules)

    @property
    def feeds(self) -> FeedService:
        from chimes.services.feeds import FeedService

        return FeedService(self.store, self.schedules)

    @property
    def time_data(self) -> TimeDataService:
        from chimes.services.time_data import TimeDataService

        return TimeDataService(self.store)

    @property
    def proposals(self) -> ProposalService:
        from chimes.services.proposals import ProposalService
        from chimes.web.api.proposals import changes_reader

        return ProposalService(
            self.store, self.schedules, self.changesets, changes_reader(self.settings)
        )

    @property
    def approvals(self) -> ApprovalService:
        from chimes.services.waits import ApprovalService

        return ApprovalService(self.store)

    @property
    def flow_events(self) -> FlowEvents:
        from chimes.services.waits import FlowEvents

        return FlowEvents(self.store)

    @property
    def flow_pictures(self) -> FlowPictures:
        from chimes.services.flow_pictures import FlowPictures

        return FlowPictures(self.store)

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
        return SystemService(self.store, self.clock)

    @property
    def telegram_links(self) -> Links:
        # Imports aiohttp, which a node without a bot does not need.
        from chimes.telegram.links import Links

        return Links(self.store)

    def change_detector(self, actor: Actor) -> ChangeDetector:
        from chimes.services.insights import ChangeDetector

        return ChangeDetector(self.store, actor)


# --- the caller -----------------------------------------------------------------------------------
#: Credentials of the native API; not the query string, which ends up in logs and histories.
NATIVE = ("Bearer", "ApiKey", "X-API-Key")
#: Header with the internal token of a trusted service.
INTERNAL = "X-Internal-Token"
_AUTH_SCHEMES = frozenset({"Bearer", "ApiKey"})
_MAX_FAILURES = 10
_FAILURE_SECONDS = 10.0
_MAX_ADDRESSES = 10_000
_log = logging.getLogger("chimes.access")


class Authenticator:
    """Shared by all APIs of the server, so that rate limits apply across them."""

    def __init__(self, context: WebContext) -> None:
        self._access = context.access
        self._store = context.store
        self._viewers_read_all = context.settings.viewers_see == "all"
        rate = context.settings.requests_per_second
        self._burst = 0 if math.isinf(rate) else max(1, round(2 * rate))
        self._calls = SharedLimiter(context.store, context.clock, rate=rate, burst=self._burst)
        self._failures = FailureWindow(context.clock)
        self._audit_limit = RateLimiter(context.clock, rate=0.1, burst=_MAX_FAILURES)

    async def authenticate(
        self, request: Request, *, interface: str, accepts: Sequence[str], counted: bool = True
    ) -> Actor:
        address = request.client.host if request.client else ""
        if not await self._access.auth_enabled():
            # A reverse proxy on this machine makes every client look like loopback.
            if any(_is_forwarding_header(name) for name in request.headers):
                raise NotAuthenticated(presented=False)
            return Actor(interface=interface, address=address)
        presented = presented_key(request, accepts)
        try:
            actor = await self._access.authenticate(presented, interface=interface, address=address)
        except NotAuthenticated:
            await self._reject(address, interface, presented)
        if counted:
            await self.count(request, actor)
        return self.with_visibility(actor)

    def with_visibility(self, actor: Actor) -> Actor:
        """Lets viewers read the objects of all owners if the operator has chosen that. Keys of
        agents stay with their owner."""
        if self._viewers_read_all and actor.role is Role.VIEWER and not actor.is_agent:
            return replace(actor, reads_all=True)
        return actor

    async def authenticate_internal(self, request: Request, *, interface: str, token: str) -> Actor:
        """Authenticates a service that presents the internal token. It may read, operate and write
        schedules and nothing else. Without a configured token only open mode admits requests."""
        address = request.client.host if request.client else ""
        if not token and not await self._access.auth_enabled():
            return await self.authenticate(request, interface=interface, accepts=())
        presented = request.headers.get(INTERNAL, "")
        if not token or not secrets_equal(presented, token):
            await self._reject(address, interface, presented)
        return Actor(
            key_id=KeyId("internal"),
            interface=interface,
            address=address,
            scopes=(Scope.READ, Scope.OPERATE, Scope.WRITE),
        )

    async def _reject(self, address: str, interface: str, presented: str) -> NoReturn:
        anonymous = Actor(
            owner=ANONYMOUS_OWNER, role=Role.VIEWER, interface=interface, address=address
        )
        await self._audit(anonymous, "auth_failed", "access", address)
        if presented:
            self._failures.count(address)
        raise NotAuthenticated(presented=bool(presented)) from None

    async def count(self, request: Request, actor: Actor) -> None:
        """Counts one call of an authenticated caller. Raises RateLimited."""
        if not self._burst:
            return
        try:
            allowance = await self._calls.take(rate_limit_key(actor))
        except RateLimited as limited:
            wait = math.ceil(limited.retry_after.total_seconds())
            request.state.answer_headers = _rate_headers(self._burst, 0, max(1, wait))
            raise
        request.state.answer_headers = _rate_headers(
            allowance.limit, allowance.remaining, round(allowance.reset)
        )

    async def audit_refusal(self, request: Request, actor: Actor, why: ChimesError) -> None:
        """Writes an audit entry for a request refused for missing rights or an exceeded quota."""
        verb = f"{request.method} {request.url.path}"[:200]
        reason = why.message if isinstance(why, QuotaExceeded) else ""
        await self._audit(actor, "refused", "request", verb, reason)

    async def _audit(self, actor: Actor, verb: str, kind: str, what: str, reason: str = "") -> None:
        try:
            self._audit_limit.take(f"{verb} {actor.key_id or actor.address}")
            note = entry(
                actor,
                verb,
                kind,
                what,
                at=await self._store.now(),
                owner=actor.owner,
                reason=reason,
                allowed=False,
            )
            await self._store.append_audit(note)
        except RateLimited:
            pass  # A flood of bad calls must not fill the audit.
        except StoreError:
            _log.warning("refused request not written to the audit", extra={"verb": verb})


def rate_limit_key(actor: Actor) -> str:
    """The rate limit key: keys of one user or chat share a limit, system keys have one each."""
    return actor.name if actor.owner.type is OwnerType.SYSTEM else str(actor.owner)


def _rate_headers(limit: int, remaining: int, reset: int) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(limit),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": str(reset),
    }


class FailureWindow:
    """Limits wrong keys per address. Requests with a valid key are not affected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, address: str) -> None:
        now = self._clock.monotonic()
        seen = self._seen.setdefault(address, deque())
        self._seen.move_to_end(address)
        while seen and now - seen[0] >= _FAILURE_SECONDS:
            seen.popleft()
        if len(seen) >= _MAX_FAILURES:
            raise RateLimited(
                _("Too many wrong keys"),
                retry_after=timedelta(seconds=_FAILURE_SECONDS - (now - seen[0])),
            )
        seen.append(now)
        if len(self._seen) > _MAX_ADDRESSES:
            self._seen.popitem(last=False)


async def authenticate(
    request: Request,
    *,
    interface: str = "native",
    accepts: Sequence[str] = NATIVE,
    counted: bool = True,
) -> Actor:
    """Authenticates a request; stores the actor in `request.state.actor`.

    `accepts` lists where a key may be: `Bearer` and `ApiKey` are schemes of Authorization,
    `?name` is a query parameter, anything else a header. `counted` is False for a check of a
    request that was counted already, such as an open stream. Raises NotAuthenticated (`presented`
    in its details says whether the request had a key) or RateLimited.
    """
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.authenticate(
        request, interface=interface, accepts=accepts, counted=counted
    )
    request.state.actor = actor
    return actor


async def authenticate_internal(request: Request, *, interface: str, token: str) -> Actor:
    """`authenticate` for routes that services call with the internal token."""
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.authenticate_internal(request, interface=interface, token=token)
    request.state.actor = actor
    return actor


def presented_key(request: Request, accepts: Sequence[str]) -> str:
    """The key in the request; empty if there is none."""
    for place in accepts:
        if place in _AUTH_SCHEMES:
            scheme, _unused, key = request.headers.get("authorization", "").partition(" ")
            found = key.strip() if scheme.lower() == place.lower() else ""
        elif place.startswith("?"):
            found = request.query_params.get(place[1:], "")
        else:
            found = request.headers.get(place, "").strip()
        if found:
            return found
    return ""


def _is_forwarding_header(header: str) -> bool:
    return header.startswith("x-forwarded-") or header in ("forwarded", "x-real-ip")


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


# --- the query and the JSON body ------------------------------------------------------------------
MAX_DEPTH = 32
MAX_KEYS = 1000
MAX_STRING = 64 * 1024
_MAX_DIGITS = 40
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
#: Messages of Python's JSON parser, translatable.
_PARSER_MESSAGES = {
    str(each): each
    for each in (
        _("Expecting value"),
        _("Expecting property name enclosed in double quotes"),
        _("Expecting ':' delimiter"),
        _("Expecting ',' delimiter"),
        _("Extra data"),
        _("Unterminated string starting at"),
        _("Invalid control character at"),
        _("Invalid \\escape"),
        _("Invalid \\uXXXX escape"),
        _("Unexpected UTF-8 BOM (decode using utf-8-sig)"),
    )
}


def check_query(request: Request) -> None:
    """Refuses NUL in parameters: PostgreSQL fails on one."""
    for name, value in request.query_params.multi_items():
        if "\0" in value or "\0" in name:
            raise InvalidInput(
                _("a parameter has a NUL character"),
                field=name.replace("\0", "?"),
                code="bad_character",
                source="query",
            )


def strict_json(data: bytes, *, max_keys: int = MAX_KEYS) -> object:
    """Parses JSON. Raises RequestRejected (400) for invalid JSON and InvalidInput (422) for JSON
    that is too deep, too large or ambiguous between parsers."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_json(_("not UTF-8 at byte {start}", start=error.start)) from None
    _check_depth(text)
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_ObjectBuilder(max_keys).object,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except json.JSONDecodeError as error:
        raise invalid_json(
            _(
                "{trouble} at line {line}",
                trouble=_PARSER_MESSAGES.get(error.msg, error.msg),
                line=error.lineno,
            )
        ) from None
    if "\\" in text or len(text) > MAX_STRING:
        _check_strings(value, "")
    return value


async def read_json(request: Request, *, max_keys: int = MAX_KEYS) -> object | None:
    """The JSON body of a request; None if it is empty."""
    data = await request.body()
    if not data:
        return None
    content_type = request.headers.get("content-type", "")
    if not is_json(content_type):
        raise not_json(content_type)
    return strict_json(data, max_keys=max_keys)


def is_json(content_type: str) -> bool:
    media, _unused, rest = content_type.partition(";")
    charset = rest.replace('"', "").replace(" ", "").lower()
    return media.strip().lower() in ("application/json", "application/merge-patch+json") and (
        not charset.startswith("charset=") or charset in ("charset=utf-8", "charset=utf8")
    )


def _check_depth(text: str) -> None:
    """Runs before parsing, because the parser recurses as deep as the input."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise InvalidInput(
                _("the body is nested deeper than {max_depth} levels", max_depth=MAX_DEPTH),
                code="json_too_deep",
            )


class _ObjectBuilder:
    def __init__(self, max_keys: int) -> None:
        self._keys = 0
        self._max_keys = max_keys

    def object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self._keys += len(pairs)
        if self._keys > self._max_keys:
            raise InvalidInput(
                _("the body has more than {max_keys} keys", max_keys=self._max_keys),
                code="too_many_keys",
            )
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _unused in pairs]
            repeated = _printable(next(key for key in found if keys.count(key) > 1))
            raise InvalidInput(
                _("the key {key} appears twice in an object", key=repeated),
                field=repeated,
                code="duplicate_key",
            )
        return found


def _reject_constant(name: str) -> object:
    raise InvalidInput(_("{name} is not a JSON number", name=name), code="bad_number")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(_("the number {text} is too large", text=text[:40]), code="bad_number")
    return value


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise InvalidInput(_("a number has too many digits"), code="bad_number")
    return int(text)


def _check_strings(value: object, field: str) -> None:
    if isinstance(value, str):
        _check_string(value, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_string(key, field)
            _check_strings(item, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_strings(item, f"{field}[{index}]")


def _check_string(text: str, field: str) -> None:
    if len(text) > MAX_STRING:
        raise InvalidInput(
            _("a string has at most {max_string} characters", max_string=MAX_STRING),
            field=field,
            code="too_long",
        )
    if "\0" in text:
        raise InvalidInput(_("a string has a NUL character"), field=field, code="bad_character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            _("a string has an unpaired surrogate"), field=_printable(field), code="bad_character"
        ) from None


def _printable(text: str) -> str:
    """Text of the request, shortened and encodable, for use in a response."""
    return text[:64].encode("utf-8", "replace").decode("utf-8")


def not_json(content_type: str) -> RequestRejected:
    if content_type:
        detail = _("the body must be application/json, not {given!r}", given=content_type[:100])
    else:
        detail = _("the body must be JSON with the Content-Type application/json")
    return RequestRejected(415, "not_json", detail, headers={"Accept": "application/json"})


def invalid_json(reason: str) -> RequestRejected:
    return RequestRejected(
        400, "bad_json", _("the body is not valid JSON: {reason}", reason=reason)
    )


# --- addresses of webhooks in responses -----------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class _Viewer:
    actor: Actor
    #: Address of this server, as the caller or the settings name it.
    base: str


_viewer: ContextVar[_Viewer | None] = ContextVar("chimes_hook_viewer", default=None)


def remember_viewer(request: Request, actor: Actor) -> None:
    """Lets `viewed_hook_url` know who reads the response of this request."""
    context: WebContext = request.app.state.context
    base = context.settings.public_url or str(request.base_url)
    _viewer.set(_Viewer(actor=actor, base=base))


def viewed_hook_url(schedule: Schedule) -> str | None:
    """The address of the schedule's webhook; None if it has none, or the caller may not run it."""
    viewer = _viewer.get()
    if viewer is None or not may_see_hook(viewer.actor, schedule):
        return None
    return hook_url(schedule, viewer.base)
