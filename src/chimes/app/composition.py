"""From settings to a store with the services on top of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.config import Settings, StoreLocation, store_location
from chimes.errors import ConfigError, InvalidInput
from chimes.model.egress import EgressRules
from chimes.model.target import Target
from chimes.model.target_rules import check_http_target
from chimes.service.access import AccessService
from chimes.service.rules import SHORTEST_INTERVAL
from chimes.service.runs import RunService
from chimes.service.schedules import Limits, ScheduleService
from chimes.store.port import Store

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
#: RELIABILITY 8, where keys are on.
SERVER_LIMITS = {
    "shortest_interval_member": timedelta(seconds=10),
    "shortest_interval_admin": timedelta(seconds=1),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    store: Store
    schedules: ScheduleService
    runs: RunService
    access: AccessService
    egress: EgressRules
    #: No keys at all: everybody who reaches the (loopback) port may do everything.
    open_mode: bool


def build_store(location: StoreLocation, clock: Clock) -> Store:
    """The adapter for a location; not yet opened."""
    match location.kind:
        case "memory":
            from chimes.store.memory import MemoryStore

            return MemoryStore(clock)
        case "sqlite":
            from chimes.store.sql import open_sqlite

            return open_sqlite(_needed(location), clock=clock)
        case "json":
            from chimes.store.jsonfile import JsonFileStore

            return JsonFileStore(_needed(location), clock=clock)


async def build_services(settings: Settings, store: Store, clock: Clock) -> Services:
    """The services over an opened store."""
    access = AccessService(store, clock, fixed=configured_keys(settings))
    open_mode = not await access.keys_on()
    egress = EgressRules(
        open_mode=open_mode,
        allow_private=settings.allow_private_targets,
        allow=settings.egress_allow,
        only=settings.egress_only,
        allow_metadata=settings.egress_allow_metadata,
        own_ports=frozenset({(settings.host, settings.port)}),
    )
    return Services(
        store=store,
        schedules=ScheduleService(
            store,
            check_target=_target_check(egress),
            default_timezone=settings.default_timezone,
            limits=_limits(settings, open_mode),
        ),
        runs=RunService(store),
        access=access,
        egress=egress,
        open_mode=open_mode,
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
        raise ConfigError(f"auth_keys_file: {path} cannot be read: {error.strerror}") from None
    keys = [line.strip() for line in lines]
    return [key for key in keys if key and not key.startswith("#")]


def _target_check(egress: EgressRules) -> Callable[[Target], None]:
    def check(target: Target) -> None:
        try:
            check_http_target(target, egress=egress)
        except InvalidInput as error:
            raise error.within("target") from None

    return check


def _limits(settings: Settings, open_mode: bool) -> Callable[[], Limits]:
    limits = Limits(
        schedules_per_owner=None if open_mode else settings.max_schedules_per_owner,
        shortest_interval_member=SHORTEST_INTERVAL
        if open_mode
        else SERVER_LIMITS["shortest_interval_member"],
        shortest_interval_admin=SHORTEST_INTERVAL
        if open_mode
        else SERVER_LIMITS["shortest_interval_admin"],
    )
    return lambda: limits


def _needed(location: StoreLocation) -> Path:
    assert location.path is not None
    return location.path
