"""The channels that the settings allow for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from chimes import __version__
from chimes.config import Settings
from chimes.errors import ConfigError, StoreError
from chimes.i18n import _
from chimes.model.egress import Egress
from chimes.model.listing import ScheduleQuery
from chimes.model.recipient import Channel
from chimes.model.run import Outcome
from chimes.notifications.base import DeliveryAttempt, Result, Sender
from chimes.notifications.inbox import Inbox
from chimes.store.port import Store
from chimes.targets.base import Call, TargetRunner

if TYPE_CHECKING:
    from chimes.notifications.attachments import AttachmentFetcher


# @@ Ways out over HTTP that are loaded when something first goes out.
#
# aiohttp with what it brings along is a tenth of the memory of a node, and many nodes only ever
# call functions. Loading it takes longer than a schedule may be late, so it happens in a thread,
# and as soon as there is a schedule that will need it: only a first call that nobody could
# foresee waits.

#: Seconds between two looks for a schedule that will need something.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 300.0


class _Opened(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


Way = TypeVar("Way", bound=_Opened)


class _FirstUse(Generic[Way]):
    """Loaded and opened once, however many come at the same time."""

    def __init__(self, load: Callable[[], Way]) -> None:
        """`load` imports and builds; it is called in a thread."""
        self._load = load
        self._way: Way | None = None
        self._one_at_a_time = asyncio.Lock()

    async def way(self) -> Way:
        if self._way is None:
            async with self._one_at_a_time:
                if self._way is None:
                    loaded = await asyncio.to_thread(self._load)
                    await loaded.open()
                    self._way = loaded
        return self._way

    async def open(self) -> None:
        """Nothing, until it is used."""

    async def close(self) -> None:
        if self._way is not None:
            await self._way.close()


class HttpCallbacks(_FirstUse[TargetRunner]):
    kind = "http"
    resumable = False
    places = None
    capabilities = frozenset({"http"})

    def __init__(
        self, load: Callable[[], TargetRunner], coming: Callable[[], Awaitable[None]]
    ) -> None:
        """`coming` returns when a callback is to be expected."""
        super().__init__(load)
        self._coming = coming
        self._foreseeing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._foreseeing = asyncio.create_task(self._foresee())

    async def close(self) -> None:
        if self._foreseeing is not None:
            self._foreseeing.cancel()
            # Whoever calls is told what went wrong; nobody else need be.
            await asyncio.gather(self._foreseeing, return_exceptions=True)
        await super().close()

    async def _foresee(self) -> None:
        await self._coming()
        await self.way()

    async def execute(self, call: Call) -> Outcome:
        return await (await self.way()).execute(call)


class Webhooks(_FirstUse[Sender]):
    channel = Channel.WEBHOOK
    capacity = 16

    async def send(self, letter: DeliveryAttempt) -> Result:
        return await (await self.way()).send(letter)


async def scheduled(store: Store, kind: str) -> None:
    """Returns when there is a schedule of this kind. Looks when something changes, at once after a
    quiet time, and ever more rarely where others keep changing things."""
    pause = FIRST_PAUSE
    query = ScheduleQuery(kind=kind, enabled=True, limit=1)
    while True:
        since = store.changes()
        with contextlib.suppress(StoreError):
            if (await store.list_schedules(query)).items:
                return
        await asyncio.sleep(pause)
        with contextlib.suppress(StoreError):
            await store.wait_for_work(since, None)
        pause = min(2 * pause, LONGEST_PAUSE)


def senders_of(settings: Settings, egress: Egress) -> tuple[Sender, ...]:
    """Not opened yet. Raises ConfigError. What a channel needs is imported where it is used."""
    agent = f"Chimes/{__version__}"
    found: list[Sender] = [Inbox(), Webhooks(lambda: _webhook(egress, agent))]
    if settings.telegram_token:
        from chimes.notifications.telegram import Telegram

        found.append(
            Telegram(
                token=settings.telegram_token,
                api_url=settings.telegram_api_url,
                fetcher=_fetcher(settings, egress, agent),
            )
        )
    if settings.smtp_url:
        from chimes.notifications.email import Email, parse_sender, parse_server

        if not settings.smtp_from:
            raise ConfigError(
                _("smtp_from: smtp_url needs an address to send from"), key="smtp_from"
            )
        found.append(
            Email(
                server=parse_server(settings.smtp_url),
                sender=parse_sender(settings.smtp_from),
                fetcher=_fetcher(settings, egress, agent),
            )
        )
    return tuple(found)


def _webhook(egress: Egress, agent: str) -> Sender:
    from chimes.notifications.webhook import Webhook

    return Webhook(egress=egress, user_agent=agent)


def _fetcher(settings: Settings, egress: Egress, agent: str) -> AttachmentFetcher:
    from chimes.notifications.attachments import AttachmentFetcher

    return AttachmentFetcher(
        egress=egress,
        user_agent=agent,
        agent_url=settings.agent_url,
        agent_key=settings.agent_api_key,
    )
