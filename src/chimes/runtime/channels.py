"""Builds the notification channels and HTTP clients that the settings configure.

HTTP clients are loaded at first use: aiohttp and its dependencies are a tenth of the memory of a
node, and many nodes only call functions. Loading takes longer than a schedule may be late, so it
happens in a thread, as soon as a schedule exists that will need it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from chimes import __version__
from chimes.config import Settings
from chimes.egress import Egress
from chimes.errors import ConfigError, StoreError
from chimes.i18n import _
from chimes.model.listing import ScheduleQuery
from chimes.model.recipient import Channel
from chimes.model.run import Outcome
from chimes.notifications.base import DeliveryAttempt, Result, Sender
from chimes.notifications.inbox import Inbox
from chimes.store.port import Store
from chimes.targets.base import Call, TargetRunner

if TYPE_CHECKING:
    from chimes.notifications.attachments import AttachmentFetcher


#: Seconds between two checks for a schedule that needs the HTTP client.
MIN_PAUSE, MAX_PAUSE = 0.5, 300.0


class _Resource(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


Loaded = TypeVar("Loaded", bound=_Resource)


class _Lazy(Generic[Loaded]):
    """Loads and opens a resource once, at first use."""

    def __init__(self, load: Callable[[], Loaded]) -> None:
        """`load` imports and builds; it is called in a thread."""
        self._factory = load
        self._loaded: Loaded | None = None
        self._lock = asyncio.Lock()

    async def load(self) -> Loaded:
        if self._loaded is None:
            async with self._lock:
                if self._loaded is None:
                    loaded = await asyncio.to_thread(self._factory)
                    await loaded.open()
                    self._loaded = loaded
        return self._loaded

    async def open(self) -> None:
        """Opened at first use."""

    async def close(self) -> None:
        if self._loaded is not None:
            await self._loaded.close()


class LazyHttpRunner(_Lazy[TargetRunner]):
    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

    def __init__(
        self, load: Callable[[], TargetRunner], expected: Callable[[], Awaitable[None]]
    ) -> None:
        """`expected` returns when an HTTP call is to be expected."""
        super().__init__(load)
        self._expected = expected
        self._preloading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._preloading = asyncio.create_task(self._preload())

    async def close(self) -> None:
        if self._preloading is not None:
            self._preloading.cancel()
            # An error is reported to the caller at first use.
            await asyncio.gather(self._preloading, return_exceptions=True)
        await super().close()

    async def _preload(self) -> None:
        await self._expected()
        await self.load()

    async def execute(self, call: Call) -> Outcome:
        return await (self._loaded or await self.load()).execute(call)


class LazySender(_Lazy[Sender]):
    capacity = 16

    def __init__(self, channel: Channel, load: Callable[[], Sender]) -> None:
        super().__init__(load)
        self.channel = channel

    async def send(self, letter: DeliveryAttempt) -> Result:
        return await (await self.load()).send(letter)


async def wait_for_schedule(store: Store, kind: str) -> None:
    """Returns when there is a schedule of this kind. Checks after changes, with growing pauses."""
    pause = MIN_PAUSE
    query = ScheduleQuery(kind=kind, enabled=True, limit=1)
    while True:
        since = store.changes()
        with contextlib.suppress(StoreError):
            if (await store.list_schedules(query)).items:
                return
        await asyncio.sleep(pause)
        with contextlib.suppress(StoreError):
            await store.wait_for_work(since, None)
        pause = min(2 * pause, MAX_PAUSE)


def build_senders(settings: Settings, egress: Egress) -> tuple[Sender, ...]:
    """Not opened yet. Raises ConfigError."""
    user_agent = f"Chimes/{__version__}"
    found: list[Sender] = [
        Inbox(),
        LazySender(Channel.WEBHOOK, lambda: _webhook(egress, user_agent)),
        LazySender(Channel.SLACK, lambda: _slack(egress, user_agent)),
    ]
    if find_spec("apprise") is not None:
        found.append(LazySender(Channel.APPRISE, lambda: _apprise(egress)))
    if settings.telegram_token:
        from chimes.notifications.telegram import Telegram

        found.append(
            Telegram(
                token=settings.telegram_token,
                api_url=settings.telegram_api_url,
                fetcher=_fetcher(settings, egress, user_agent),
            )
        )
    if settings.smtp_url:
        from chimes.notifications.email import Email, parse_sender, parse_server

        if not settings.smtp_from:
            raise ConfigError(_("smtp_from: smtp_url requires a sender address"), key="smtp_from")
        found.append(
            Email(
                server=parse_server(settings.smtp_url),
                sender=parse_sender(settings.smtp_from),
                fetcher=_fetcher(settings, egress, user_agent),
            )
        )
    return tuple(found)


def _webhook(egress: Egress, user_agent: str) -> Sender:
    from chimes.notifications.webhook import Webhook

    return Webhook(egress=egress, user_agent=user_agent)


def _slack(egress: Egress, user_agent: str) -> Sender:
    from chimes.notifications.webhook import Slack

    return Slack(egress=egress, user_agent=user_agent)


def _apprise(egress: Egress) -> Sender:
    from chimes.notifications.apprise import Apprise

    return Apprise(egress=egress)


def _fetcher(settings: Settings, egress: Egress, user_agent: str) -> AttachmentFetcher:
    from chimes.notifications.attachments import AttachmentFetcher

    return AttachmentFetcher(
        egress=egress,
        user_agent=user_agent,
        agent_url=settings.agent_url,
        agent_key=settings.agent_api_key,
    )
