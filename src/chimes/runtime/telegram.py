"""Builds and runs the Telegram bot of a process from the settings."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chimes.errors import StoreError
from chimes.notifications.telegram_api import Action, BotApi, BotApiError, decode
from chimes.services.preferences import PreferenceService
from chimes.services.schedules.rules import agent_policy
from chimes.telegram.bot import UPDATES, Bot, LongPolling, UpdateInProgress
from chimes.telegram.commands import Verb
from chimes.telegram.conversation import Conversation
from chimes.telegram.conversation import Services as ChatServices
from chimes.telegram.links import Username

if TYPE_CHECKING:
    from chimes.config import Settings
    from chimes.runtime.composition import Services
    from chimes.services.proposals import ProposalService


_log = logging.getLogger("chimes.telegram")
MIN_PAUSE, MAX_PAUSE = 1.0, 60.0
_VERBS = {
    Action.RUN: Verb.RUN,
    Action.RETRY: Verb.RETRY,
    Action.PAUSE: Verb.PAUSE,
    Action.SNOOZE: Verb.SNOOZE,
    Action.DONE: Verb.DONE,
    Action.APPROVE: Verb.APPROVE,
    Action.REJECT: Verb.REJECT,
    Action.APPROVE_STEP: Verb.APPROVE_STEP,
    Action.REJECT_STEP: Verb.REJECT_STEP,
    Action.KNOWN: Verb.KNOWN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Telegram:
    bot: Bot
    polling: LongPolling
    api: BotApi
    #: Sent by Telegram with each webhook request.
    secret: str
    #: Where Telegram sends updates; empty: long polling.
    webhook_url: str

    async def run(self) -> None:
        """Runs until canceled."""
        try:
            if self.webhook_url:
                await self._register()
            else:
                await self._poll()
        finally:
            await self.bot.close()
            await self.api.close()

    async def _register(self) -> None:
        pause = MIN_PAUSE
        while True:
            try:
                await self.api.call(
                    "setWebhook",
                    {
                        "url": webhook_address(self.webhook_url),
                        "secret_token": self.secret,
                        "allowed_updates": list(UPDATES),
                    },
                )
            except BotApiError as error:
                _log.warning("cannot register the webhook", extra={"error": str(error)})
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            else:
                _log.info("Telegram sends updates to the webhook")
                # The bot still sends its replies through this client.
                await asyncio.Event().wait()

    async def _poll(self) -> None:
        # Telegram refuses polling while a webhook is registered.
        with contextlib.suppress(BotApiError):
            await self.api.call("deleteWebhook", {})
        pause = MIN_PAUSE
        while True:
            try:
                if not await self.polling.poll_in_turn():
                    await asyncio.sleep(MIN_PAUSE)
            except UpdateInProgress:
                await asyncio.sleep(MIN_PAUSE)
            except BotApiError as error:
                if pause == MIN_PAUSE:
                    _log.warning(
                        "cannot fetch updates",
                        extra={"status": error.status, "error": error.description},
                    )
                retry_after = error.retry_after.total_seconds() if error.retry_after else 0.0
                await asyncio.sleep(max(pause, retry_after))
                pause = min(2 * pause, MAX_PAUSE)
            except StoreError as error:
                _log.warning("the store is unavailable; updates wait", extra={"error": str(error)})
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            except Exception:
                _log.exception("polling failed")
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            else:
                pause = MIN_PAUSE


def build_telegram(settings: Settings, services: Services) -> Telegram | None:
    """None: no bot is configured."""
    token = settings.telegram_token
    if not token:
        return None
    api = BotApi(token=token, url=settings.telegram_api_url)
    bot_id = token.partition(":")[0]

    def read_button(data: str, chat: str) -> tuple[Verb, str] | None:
        found = decode(data, chat=chat, token=token)
        return (_VERBS[found.action], found.object_id) if found else None

    conversation = Conversation(
        ChatServices(
            store=services.store,
            schedules=services.schedules,
            runs=services.runs,
            preferences=PreferenceService(services.store),
            proposals=lambda: build_proposals(settings, services),
        ),
        allowed=settings.telegram_allowed_chats,
        per_minute=settings.telegram_per_minute,
        policy=agent_policy(settings),
        default_zone=settings.softnix_default_timezone,
        read_button=read_button,
        username=Username(api),
        bot_id=bot_id,
    )
    bot = Bot(conversation, api, services.store, bot_id=bot_id)
    return Telegram(
        bot=bot,
        polling=LongPolling(bot, api, services.store),
        api=api,
        secret=settings.telegram_webhook_secret or webhook_secret(token),
        webhook_url=settings.telegram_webhook_url,
    )


def build_proposals(settings: Settings, services: Services) -> ProposalService:
    from chimes.services.proposals import ProposalService
    from chimes.services.schedules.changeset import ChangesetService
    from chimes.services.schedules.setup import SetupService
    from chimes.web.api.proposals import changes_reader

    schedules = services.schedules
    setup = SetupService(services.store, schedules.rules, settings)
    changesets = ChangesetService(services.store, schedules, setup, settings)
    return ProposalService(services.store, schedules, changesets, changes_reader(settings))


def webhook_address(url: str) -> str:
    """Accepts the URL of the server or of the webhook itself."""
    path = "/telegram/webhook"
    base = url.rstrip("/")
    return base if base.endswith(path) else base + path


def webhook_secret(token: str) -> str:
    """Derived from the token, so that all nodes agree on it."""
    return hmac.new(token.encode(), b"chimes webhook", hashlib.sha256).hexdigest()
