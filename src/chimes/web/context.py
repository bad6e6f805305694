"""Services and settings that the handlers of all web interfaces use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from chimes.clock import Clock
from chimes.config import Settings
from chimes.model.access import Actor
from chimes.services.access import AccessService
from chimes.services.attention import KnownFailures, SnoozeService
from chimes.services.audit import AuditService
from chimes.services.changes import ChangeDetector
from chimes.services.demo import DemoService
from chimes.services.insights import InsightService
from chimes.services.manual_runs import ManualRuns
from chimes.services.nodes import NodeService, SourceRegistry
from chimes.services.notifications import NotificationService
from chimes.services.preferences import PreferenceService, SavedFilters
from chimes.services.runs import RunService
from chimes.services.schedules.service import ScheduleService
from chimes.services.system import SystemService
from chimes.store.port import Store

if TYPE_CHECKING:
    from chimes.telegram.links import Links


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
    def insights(self) -> InsightService:
        return InsightService(self.store)

    @property
    def nodes(self) -> NodeService:
        return NodeService(self.store)

    @property
    def snoozes(self) -> SnoozeService:
        return SnoozeService(self.store)

    @property
    def known_failures(self) -> KnownFailures:
        return KnownFailures(self.store)

    @property
    def saved_filters(self) -> SavedFilters:
        return SavedFilters(self.store)

    @property
    def demo(self) -> DemoService:
        return DemoService(self.store)

    @property
    def audit(self) -> AuditService:
        return AuditService(self.store)

    @property
    def system(self) -> SystemService:
        return SystemService(self.store, self.clock)

    @property
    def telegram_links(self) -> Links:
        # Imports aiohttp, which a node without a bot does not need.
        from chimes.telegram.links import Links

        return Links(self.store)

    def change_detector(self, actor: Actor) -> ChangeDetector:
        return ChangeDetector(self.store, actor)
