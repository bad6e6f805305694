"""Warnings about schedules that are valid and cannot work: a setting is missing on every node, or
their callbacks are denied. What live nodes can do decides, not the settings of this process."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from chimes.config import Settings
from chimes.egress import HttpUrl, literal_address, parse_http_url
from chimes.errors import InvalidInput, StoreError
from chimes.i18n import _, joined
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.fields import MASKED, fields_of
from chimes.model.ids import ScheduleId
from chimes.model.insights import IssueCause, ScheduleAttention, ScheduleIssue
from chimes.model.listing import ScheduleQuery
from chimes.model.recipient import CHANNEL_SETTINGS, Channel, channel_not_configured
from chimes.model.schedule import Schedule, source_marker
from chimes.model.target import (
    CommandTarget,
    ConnectionTarget,
    FlowTarget,
    HttpTarget,
    TaskTarget,
)
from chimes.redaction import masked_names
from chimes.services.schedules.rules import (
    ACTION,
    AGENT,
    COMMAND,
    NO_COMMANDS,
    ScheduleRules,
    action_capabilities,
    agent_capabilities,
    command_capabilities,
    connection_capabilities,
    suggest_capability,
)
from chimes.store.port import Store
from chimes.targets.base import NO_ACTION_SERVICE, NO_PIPELINE

#: Schedules that are searched for a list of warnings, those that run next first.
MAX_SEARCHED = 2_000
_PAGE = 500
CACHE_SECONDS = 5.0
#: Owners in the cache.
MAX_CACHED_OWNERS = 64
#: Seconds for resolving the hosts of all callbacks.
_LOOKUP_TIMEOUT = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupWarning:
    #: `no_pipeline`, `no_action_service`, `unknown_task`, `unknown_flow`, `commands_not_allowed`,
    #: `no_worker`, `no_connection`, `channel_not_configured`, `egress_denied`, `masked`; of a
    #: change: `duplicate_name`, `made_from_file`, `declared_in_code`, `edited_elsewhere`
    code: str
    field: str
    #: Translatable.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Misconfigured:
    """A schedule with its first warning."""

    schedule: Schedule
    warning: SetupWarning

    @property
    def found(self) -> ScheduleAttention:
        schedule = self.schedule
        at = schedule.updated_at
        sign = ScheduleIssue(schedule_id=schedule.id, cause=IssueCause.NOT_CONFIGURED, at=at)
        return ScheduleAttention(schedule=schedule, sign=sign)


class SetupCache:
    """The schedules with warnings of each owner, for pages that are requested again and again."""

    def __init__(self) -> None:
        self._found: dict[Owner | None, tuple[float, tuple[ScheduleId, ...]]] = {}

    def get(self, owner: Owner | None, now: float) -> tuple[ScheduleId, ...] | None:
        at, ids = self._found.get(owner, (-math.inf, ()))
        return ids if now - at < CACHE_SECONDS else None

    def put(self, owner: Owner | None, now: float, ids: tuple[ScheduleId, ...]) -> None:
        self._found.pop(owner, None)
        self._found[owner] = (now, ids)
        for oldest in list(self._found)[:-MAX_CACHED_OWNERS]:
            del self._found[oldest]


class SetupService:
    def __init__(self, store: Store, rules: ScheduleRules, settings: Settings) -> None:
        self._store = store
        self._rules = rules
        self._settings = settings

    async def available(self) -> frozenset[str]:
        """What the live workers can do: `agent`, `action`, `channel:email`, `task:NAME` … Without a
        live worker, what this process would be configured for. The tasks and flows of the
        application in this process count before its node has joined."""
        now = await self._store.now()
        alive = [node for node in await self._store.nodes() if node.lease_until > now]
        workers = [node for node in alive if node.capabilities or node.defaults]
        here = self._rules.local_capabilities()
        if not workers:
            return _configured(self._settings).union(here)
        found = {name for node in workers for name in node.capabilities}.union(here)
        # Every worker claims prompts and actions to fail them with the reason; only those that can
        # execute them declare defaults.
        executable = {name for node in workers for name in node.defaults}
        # The file of this process counts only if its own node works.
        connections = {*connection_capabilities(self._settings)}
        offered = {name for node in workers for name in node.capabilities}
        found -= connections - offered
        return frozenset((found - {AGENT, ACTION}) | (executable & {AGENT, ACTION}))

    async def warnings_of(
        self, schedules: Sequence[Schedule]
    ) -> tuple[tuple[SetupWarning, ...], ...]:
        """The warnings of each schedule; none if the store does not answer. They accompany the
        answer to a change that is stored: if finding them failed, the change would look undone."""
        # Most schedules need nothing of the nodes, which are then not read.
        needed = any(map(_needs_settings, schedules))
        try:
            available = await self.available() if needed else frozenset[str]()
        except StoreError:
            return ((),) * len(schedules)
        return tuple(tuple(self._warnings(each, available)) for each in schedules)

    async def find(self, actor: Actor, *, limit: int) -> tuple[Misconfigured, ...]:
        """The enabled schedules with a warning that the actor may see."""
        owner = None if actor.sees_all_owners else actor.owner
        query = ScheduleQuery(owner=owner, enabled=True)
        available = await self.available()
        found: list[Misconfigured] = []
        async for schedule in self._schedules(query, MAX_SEARCHED):
            if (warning := next(self._warnings(schedule, available), None)) is not None:
                found.append(Misconfigured(schedule=schedule, warning=warning))
                if len(found) == limit:
                    break
        return tuple(found)

    async def find_cached(
        self, actor: Actor, cache: SetupCache, now: float, *, limit: int
    ) -> tuple[Misconfigured, ...]:
        """Like `find`. A new warning appears within seconds; one that is resolved disappears at
        once. `now`: the monotonic clock."""
        owner = None if actor.sees_all_owners else actor.owner
        ids = cache.get(owner, now)
        if ids is None:
            found = await self.find(actor, limit=limit)
            cache.put(owner, now, tuple(each.schedule.id for each in found))
            return found
        if not ids:
            return ()
        query = ScheduleQuery(owner=owner, enabled=True, ids=ids)
        available = await self.available()
        schedules = [each async for each in self._schedules(query, limit)]
        return tuple(
            Misconfigured(schedule=each, warning=warning)
            for each in schedules
            if (warning := next(self._warnings(each, available), None)) is not None
        )

    async def find_denied(self, *, limit: int) -> tuple[Misconfigured, ...]:
        """The schedules whose callbacks the current rules deny, also by what their hosts resolve
        to. For the moment when the first key makes the rules stricter: nothing if the store does
        not answer, because the text of the key is shown only once, together with them."""
        query = ScheduleQuery()
        try:
            schedules = [each async for each in self._schedules(query, MAX_SEARCHED)]
        except StoreError:
            return ()
        names = {url.host for each in schedules for _field, url in _urls(each)}
        addresses = await _resolve(name for name in names if literal_address(name) is None)
        found: list[Misconfigured] = []
        for schedule in schedules:
            warning = next(self._denials(schedule), None) or next(
                self._resolved_denials(schedule, addresses), None
            )
            if warning is not None:
                found.append(Misconfigured(schedule=schedule, warning=warning))
        return tuple(found[:limit])

    async def _schedules(self, query: ScheduleQuery, limit: int) -> AsyncIterator[Schedule]:
        query, left = replace(query, limit=min(_PAGE, limit)), limit
        while left > 0:
            page = await self._store.list_schedules(query)
            for schedule in page.items[:left]:
                yield schedule
            left -= len(page.items)
            if page.next is None:
                return
            query = replace(query, after=page.next)

    def _warnings(self, schedule: Schedule, available: frozenset[str]) -> Iterator[SetupWarning]:
        kind = schedule.target.kind
        if kind == AGENT and AGENT not in available:
            yield SetupWarning(code="no_pipeline", field="target", message=NO_PIPELINE)
        if kind == ACTION and ACTION not in available:
            yield SetupWarning(code="no_action_service", field="target", message=NO_ACTION_SERVICE)
        if kind == COMMAND and COMMAND not in available:
            yield SetupWarning(code="commands_not_allowed", field="target", message=NO_COMMANDS)
        elif isinstance(schedule.target, CommandTarget) and (
            schedule.target.requirement not in available
        ):
            labels = schedule.target.requires.items()
            message = _(
                "no running worker that allows commands has the labels {labels}: runs wait until "
                "one starts (chimes worker --label)",
                labels=", ".join(f"{name}={value}" for name, value in labels),
            )
            yield SetupWarning(code="no_worker", field="target.requires", message=message)
        yield from _missing_worker(schedule, available)
        yield from _missing_connection(schedule, available)
        for position, each in enumerate(schedule.policy.delivery):
            if each.channel in CHANNEL_SETTINGS and each.channel.capability not in available:
                yield SetupWarning(
                    code="channel_not_configured",
                    field=f"delivery[{position}]",
                    message=channel_not_configured(each.channel),
                )
        yield from self._denials(schedule)
        for place in _masked_fields(schedule):
            message = _("{field} is ***, but no secret is stored for it: enter it", field=place)
            yield SetupWarning(code="masked", field=place, message=message)

    def _denials(self, schedule: Schedule) -> Iterator[SetupWarning]:
        try:
            if isinstance(schedule.target, HttpTarget):
                self._rules.check_target(schedule.target)
        except InvalidInput as error:
            if error.code == "egress_denied":
                yield SetupWarning(code=error.code, field="target.url", message=error.message)
        try:
            self._rules.check_recipients(schedule.policy.delivery)
        except InvalidInput as error:
            if error.code == "egress_denied":
                yield SetupWarning(code=error.code, field="delivery", message=error.message)

    def _resolved_denials(
        self, schedule: Schedule, addresses: Mapping[str, Sequence[str]]
    ) -> Iterator[SetupWarning]:
        egress = self._rules.egress
        for field, url in _urls(schedule):
            for text in addresses.get(url.host, ()):
                address = literal_address(text)
                if egress is None or address is None:
                    continue
                denial = egress.check_address(address, url.port, host=url.host)
                if denial is not None:
                    yield SetupWarning(code="egress_denied", field=field, message=denial.text)


def source_warnings(schedule: Schedule) -> tuple[SetupWarning, ...]:
    """Warnings about an edit elsewhere than in the file or code that the schedule comes from."""
    marker = source_marker(schedule)
    if marker is None:
        return ()
    if marker.kind == "file":
        message = _(
            "this schedule was made from the file {origin}: the next `chimes apply` of it"
            " overwrites the change, so change the file, too",
            origin=marker.at,
        )
        return (SetupWarning(code="made_from_file", field="", message=message),)
    message = _(
        "this schedule is declared in code at {at}: the change detaches it, and the application no"
        " longer updates it",
        at=marker.at or "?",
    )
    return (SetupWarning(code="declared_in_code", field="", message=message),)


def name_warning(others: Sequence[Schedule]) -> tuple[SetupWarning, ...]:
    """The warning about other schedules of the owner with the same name."""
    if not others:
        return ()
    message = _(
        "the owner has another schedule of this name: {ids}; commands need the id to tell them"
        " apart",
        ids=", ".join(each.id for each in others[:5]),
    )
    return (SetupWarning(code="duplicate_name", field="name", message=message),)


def _missing_worker(schedule: Schedule, available: frozenset[str]) -> Iterator[SetupWarning]:
    """Runs of a task or flow that no live node offers wait until one does."""
    target = schedule.target
    if not isinstance(target, TaskTarget | FlowTarget) or target.requirement in available:
        return
    text = (
        _("no running node offers the flow {name!r}: its runs wait for one", name=target.name)
        if isinstance(target, FlowTarget)
        else _("no running node offers the task {name!r}: its runs wait for one", name=target.name)
    )
    hint = suggest_capability(target, available)
    yield SetupWarning(
        code=f"unknown_{target.kind}",
        field="target.name",
        message=text if hint is None else joined("; ", (text, hint)),
    )


def _missing_connection(schedule: Schedule, available: frozenset[str]) -> Iterator[SetupWarning]:
    """Runs whose connection no live node has wait until one has it."""
    target = schedule.target
    if isinstance(target, ConnectionTarget) and target.requirement not in available:
        message = _(
            "no running node has the connection {name!r} (connections in chimes.yaml): its runs "
            "wait for one",
            name=target.connection,
        )
        yield SetupWarning(code="no_connection", field="target.connection", message=message)


def _needs_settings(schedule: Schedule) -> bool:
    if isinstance(schedule.target, ConnectionTarget):
        return True
    return schedule.target.kind in (AGENT, ACTION, COMMAND, "task", "flow") or any(
        each.channel in CHANNEL_SETTINGS for each in schedule.policy.delivery
    )


def _configured(settings: Settings) -> frozenset[str]:
    channels = {
        Channel.TELEGRAM: settings.telegram_token,
        Channel.EMAIL: settings.smtp_url,
        Channel.APPRISE: find_spec("apprise") is not None,
    }
    return frozenset(
        {
            *agent_capabilities(settings),
            *action_capabilities(settings),
            *command_capabilities(settings),
            *connection_capabilities(settings),
            *(channel.capability for channel, setting in channels.items() if setting),
        }
    )


def _masked_fields(schedule: Schedule) -> Iterator[str]:
    """Where `***` is stored instead of a secret."""
    target = schedule.target
    for field in fields_of(type(target)):
        if field.mark == MASKED:
            yield from masked_names(getattr(target, field.name), f"target.{field.json}")
    for position, each in enumerate(schedule.policy.delivery):
        yield from masked_names(each.to, f"delivery[{position}].to")


def _urls(schedule: Schedule) -> Iterator[tuple[str, HttpUrl]]:
    target = schedule.target
    texts = [("target.url", target.url)] if isinstance(target, HttpTarget) else []
    texts += [
        (f"delivery[{position}].to", each.to)
        for position, each in enumerate(schedule.policy.delivery)
        if each.channel in (Channel.WEBHOOK, Channel.SLACK)
    ]
    for field, text in texts:
        try:
            yield field, parse_http_url(text)
        except InvalidInput:
            # Saved under other rules; its runs fail with the reason.
            continue


async def _resolve(names: Iterable[str]) -> dict[str, list[str]]:
    """The addresses of the names that a resolver knows in time."""
    loop = asyncio.get_running_loop()

    async def lookup(name: str) -> tuple[str, list[str]]:
        try:
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            return name, []
        return name, [str(address[0]) for *_unused, address in found]

    return dict(await asyncio.gather(*map(lookup, names)))
