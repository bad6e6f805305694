"""From settings to a store with the services on top of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.config import Settings, StoreLocation, store_location
from chimes.errors import ConfigError, InvalidInput
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.egress import Egress, EgressRules, ModeEgress
from chimes.model.planning import plan
from chimes.model.policy import RunDefaults
from chimes.model.target import Target
from chimes.model.validation import check_recipients, check_target
from chimes.sdk.handles import RunWaiters
from chimes.services.access import AccessService, OwnerQuotas, RunLimits
from chimes.services.manual_runs import ManualRuns
from chimes.services.nodes import SourceRegistry
from chimes.services.prompts import plan_without_prompts
from chimes.services.runs import RunService
from chimes.services.schedule_rules import Limits, ScheduleRules
from chimes.services.schedules import ScheduleService
from chimes.services.validation import action_capabilities, agent_capabilities
from chimes.store.port import Store

# @@ What two parts of a process offer, as one.


class JoinedOffers(Mapping[str, RunDefaults]):
    """Of two, the first that has a word about something."""

    def __init__(self, first: Mapping[str, RunDefaults], second: Mapping[str, RunDefaults]) -> None:
        self._first = first
        self._second = second

    def __getitem__(self, requirement: str) -> RunDefaults:
        return self._first[requirement] if requirement in self._first else self._second[requirement]

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from (each for each in self._second if each not in self._first)

    def __len__(self) -> int:
        return sum(1 for _unused in self)


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
#: RELIABILITY 8, where keys are on.
SHORTEST_FOR_MEMBERS = timedelta(seconds=10)
SHORTEST_FOR_ADMINS = timedelta(seconds=1)
RUN_LIMITS = RunLimits(running=50, per_day=10_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    store: Store
    schedules: ScheduleService
    runs: RunService
    access: AccessService
    egress: Egress
    sources: SourceRegistry = field(default_factory=SourceRegistry)

    @property
    def manual_runs(self) -> ManualRuns:
        return ManualRuns(self.store, self.schedules.rules)


def build_store(location: StoreLocation, clock: Clock) -> Store:
    """The adapter for a location; not yet opened."""
    match location.kind:
        case "memory":
            from chimes.store.memory import MemoryStore

            return MemoryStore(clock)
        case "sqlite":
            from chimes.store.sql import open_sqlite

            return open_sqlite(_needed(location), clock=clock)
        case "postgresql":
            from chimes.store.sql import open_postgres

            return open_postgres(location.server)
        case "mariadb":
            from chimes.store.sql import open_mariadb

            return open_mariadb(location.server)
        case "redis":
            try:
                from chimes.store.redis import open_redis
            except ModuleNotFoundError as error:
                if error.name != "redis":
                    raise
                message = _("store: redis:// needs its driver: pip install 'chimes[redis]'")
                raise ConfigError(message, key="store") from None
            return open_redis(
                location.server, allow_volatile=location.allow_volatile, marker=location.marker
            )
        case "json":
            from chimes.store.jsonfile import JsonFileStore

            return JsonFileStore(_needed(location), clock=clock)


async def build_services(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    offers: Callable[[], Mapping[str, RunDefaults]] = dict,
    sources: SourceRegistry | None = None,
) -> Services:
    """The services over an opened store. `offers`: what an application of this process can carry
    out (`target.needs`) and how, so that it may schedule it before a node of it has joined."""
    access = AccessService(store, clock, fixed=configured_keys(settings))
    await access.auth_enabled()
    with_keys = EgressRules(
        open_mode=False,
        allow_private=settings.allow_private_targets,
        allow=settings.egress_allow,
        only=settings.egress_only,
        allow_metadata=settings.egress_allow_metadata,
        own_ports=frozenset({(settings.host, settings.port)}),
    )
    egress = ModeEgress(
        open_mode=lambda: access.open_mode,
        while_open=replace(with_keys, open_mode=True),
        with_keys=with_keys,
    )
    quotas = OwnerQuotas(
        schedules=settings.max_schedules_per_owner,
        active=settings.max_active_per_owner,
        auth_enabled=True,
    )
    # Without keys whoever is on this machine is an admin; the members there are come from chats.
    while_open = Limits(
        quotas=replace(quotas, auth_enabled=False), shortest_interval_member=SHORTEST_FOR_MEMBERS
    )
    limits = Limits(
        quotas=quotas,
        shortest_interval_member=SHORTEST_FOR_MEMBERS,
        shortest_interval_admin=SHORTEST_FOR_ADMINS,
        runs=RUN_LIMITS,
    )

    def current() -> Limits:
        return while_open if access.open_mode else limits

    by_settings = agent_capabilities(settings) | action_capabilities(settings)
    return Services(
        store=store,
        schedules=ScheduleService(
            store,
            ScheduleRules(
                store,
                check_target=_target_check(egress),
                check_recipients=partial(check_recipients, egress=egress),
                default_timezone=settings.default_timezone,
                limits=current,
                refresh_limits=access.auth_enabled,
                capabilities=lambda: JoinedOffers(offers(), by_settings),
            ),
            planner=plan if settings.softnix_scheduler_enabled else plan_without_prompts,
            dispatch_capped=bool(settings.max_dispatch_per_tick),
        ),
        runs=RunService(store, limits=lambda: current().runs),
        access=access,
        egress=egress,
        sources=sources or SourceRegistry(),
    )


@contextlib.asynccontextmanager
async def open_local(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Services]:
    """The services directly on the configured store, without a server."""
    clock = clock or SystemClock()
    store = build_store(store_location(settings), clock)
    await store.open()
    try:
        yield await build_services(settings, store, clock)
    finally:
        await store.close()


def configured_keys(settings: Settings) -> list[str]:
    keys = [settings.admin_token] if settings.admin_token else []
    if settings.auth_keys_file is not None:
        keys.extend(_keys_in(settings.auth_keys_file))
    return keys


def _keys_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            _(
                "auth_keys_file: {path} cannot be read: {why}",
                path=path,
                why=error.strerror,
            )
        ) from None
    keys = [line.strip() for line in lines]
    return [key for key in keys if key and not key.startswith("#")]


def _target_check(egress: Egress) -> Callable[[Target], None]:
    def check(target: Target) -> None:
        try:
            check_target(target, egress=egress)
        except InvalidInput as error:
            raise error.within("target") from None

    return check


def _needed(location: StoreLocation) -> Path:
    assert location.path is not None
    return location.path


# @@ What an opened application works with.

#: As the audit names what an application does by itself.
APP_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="app"), interface="sdk")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    settings: Settings
    location: StoreLocation
    clock: Clock
    services: Services
    actor: Actor = APP_ACTOR
    #: Where each setting came from.
    origins: Mapping[str, str] = field(default_factory=dict)
    run_waiters: RunWaiters = field(default_factory=RunWaiters)
