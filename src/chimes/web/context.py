"""What a door is given to work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from chimes.clock import Clock
from chimes.config import Settings
from chimes.services.access import AccessService
from chimes.services.nodes import KnownSources
from chimes.services.notifications import MessageService
from chimes.services.preferences import PreferenceService
from chimes.services.runs import RunService
from chimes.services.schedules import ScheduleService
from chimes.store.port import Store


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
    #: The port that callers reach us on, for the Host check.
    port: int
    #: Why this node should get no traffic right now (draining, trust lost); empty: it is ready.
    not_ready: Callable[[], str]
    #: The sources of this node's file.
    sources: KnownSources = field(default_factory=KnownSources)
    #: Where each setting came from; for people who wonder.
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def preferences(self) -> PreferenceService:
        return PreferenceService(self.store)

    @property
    def messages(self) -> MessageService:
        return MessageService(self.store, self.schedules.check_recipient)
