"""Builds the store and the services from the settings."""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chimes.clock import Clock, SystemClock
from chimes.config import Settings, StoreLocation, store_location
from chimes.egress import Egress, EgressRules, ModeEgress
from chimes.envelope import KEY_FILE, Keyring, SecretKey, parse_keys
from chimes.errors import ConfigError, InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.planning import plan
from chimes.model.policy import RunDefaults
from chimes.model.target import Target
from chimes.model.validation import check_recipients, check_target
from chimes.sdk.handles import RunWaiters
from chimes.services.access import AccessService, OwnerQuotas, RunLimits
from chimes.services.manual_runs import ManualRuns
from chimes.services.runs import RunService
from chimes.services.schedules.prompts import plan_without_prompts
from chimes.services.schedules.rules import (
    Limits,
    ScheduleRules,
    action_capabilities,
    agent_capabilities,
    command_capabilities,
    connection_capabilities,
)
from chimes.services.schedules.service import ScheduleService
from chimes.services.single_sign_on import uses_external_sign_in
from chimes.services.system import SourceRegistry
from chimes.store.port import Store, check_restored

if TYPE_CHECKING:
    from chimes.store.redis.server import RedisInspection
    from chimes.store.sql.database.inspection import Inspection


def merge_capabilities(
    first: Mapping[str, RunDefaults], second: Mapping[str, RunDefaults]
) -> Mapping[str, RunDefaults]:
    """A live view of both; `first` takes precedence."""
    return ChainMap(first, second)  # type: ignore[arg-type] # it is only read


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
#: Limits where API keys are required.
MIN_INTERVAL_MEMBER = timedelta(seconds=10)
MIN_INTERVAL_ADMIN = timedelta(seconds=1)
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
    """The adapter for a location; not yet opened. ConfigError if the key file is not safe."""
    given = parse_keys(location.secret_key) if location.secret_key else ()
    match location.kind:
        case "memory":
            from chimes.store.memory import MemoryStore

            return MemoryStore(clock)
        case "sqlite":
            from chimes.store.sql import open_sqlite

            path = _path_of(location)
            return open_sqlite(path, clock=clock, keyring=_keyring(given, path.parent))
        case "postgresql":
            from chimes.store.sql import open_postgres

            return open_postgres(location.server, keyring=Keyring(given))
        case "mariadb":
            from chimes.store.sql import open_mariadb

            return open_mariadb(location.server, keyring=Keyring(given))
        case "redis":
            try:
                from chimes.store.redis import open_redis
            except ModuleNotFoundError as error:
                if error.name != "redis":
                    raise
                message = _("store: redis:// requires its driver: pip install 'chimes[redis]'")
                raise ConfigError(message, key="store") from None
            return open_redis(
                location.server,
                allow_volatile=location.allow_volatile,
                marker=location.marker,
                keyring=Keyring(given),
            )
        case "json":
            from chimes.store.jsonfile import JsonFileStore

            path = _path_of(location)
            return JsonFileStore(path, clock=clock, keyring=_keyring(given, path))


def _keyring(given: Sequence[SecretKey], directory: Path) -> Keyring:
    keyring = Keyring(given, file=directory / KEY_FILE)
    keyring.reload()
    return keyring


async def inspect_redis_store(location: StoreLocation) -> RedisInspection:
    """For `chimes doctor`, without opening or changing the store."""
    from chimes.store.redis.server import inspect_redis

    return await inspect_redis(
        location.server, SystemClock(), allow_volatile=location.allow_volatile
    )


async def inspect_server_store(location: StoreLocation) -> Inspection:
    """The same for a SQL server."""
    from chimes.store.sql.database.inspection import inspect_server
    from chimes.store.sql.database.server import Server

    server: Server
    if location.kind == "mariadb":
        from chimes.store.sql.database.mariadb import MariadbServer

        server = MariadbServer(location.server)
    else:
        from chimes.store.sql.database.postgres import PostgresServer

        server = PostgresServer(location.server)
    return await inspect_server(server)


async def build_services(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    capabilities: Callable[[], Mapping[str, RunDefaults]] = dict,
    sources: SourceRegistry | None = None,
) -> Services:
    """The services over an opened store. `capabilities`: what the application of this process can
    execute, with its defaults, so that it can be scheduled before its node has joined."""
    await check_restored(store)
    access = AccessService(
        store, clock, fixed=configured_keys(settings), closed=uses_external_sign_in(settings)
    )
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
    # Without keys every local user is an admin; members come only from chats.
    while_open = Limits(
        quotas=replace(quotas, auth_enabled=False),
        shortest_interval_member=MIN_INTERVAL_MEMBER,
        priority_member=settings.max_priority_member,
    )
    limits = Limits(
        quotas=quotas,
        shortest_interval_member=MIN_INTERVAL_MEMBER,
        shortest_interval_admin=MIN_INTERVAL_ADMIN,
        priority_member=settings.max_priority_member,
        runs=RUN_LIMITS,
    )

    def current() -> Limits:
        return while_open if access.open_mode else limits

    configured = (
        agent_capabilities(settings)
        | action_capabilities(settings)
        | command_capabilities(settings)
        | connection_capabilities(settings)
    )
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
                capabilities=lambda: merge_capabilities(capabilities(), configured),
                egress=egress,
                command_roles=settings.command_roles,
                file_directories=settings.file_trigger_dirs,
                file_roles=settings.file_trigger_roles,
                connections=settings.connections,
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
        keys.extend(_read_keys(settings.auth_keys_file))
    return keys


def _read_keys(path: Path) -> list[str]:
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


def _path_of(location: StoreLocation) -> Path:
    assert location.path is not None
    return location.path


#: The actor of an application's own changes, in the audit log.
APP_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="app"), interface="sdk")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """What an opened application or node works with."""

    settings: Settings
    location: StoreLocation
    clock: Clock
    services: Services
    actor: Actor = APP_ACTOR
    #: Where each setting came from.
    origins: Mapping[str, str] = field(default_factory=dict)
    run_waiters: RunWaiters = field(default_factory=RunWaiters)
