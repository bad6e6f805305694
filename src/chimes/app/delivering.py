"""The channels that the settings allow for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chimes import __version__
from chimes.app.first_use import Webhooks
from chimes.config import Settings
from chimes.delivery.base import Sender
from chimes.delivery.inbox import Inbox
from chimes.errors import ConfigError
from chimes.model.egress import Egress
from chimes.wording import say

if TYPE_CHECKING:
    from chimes.delivery.fetching import Fetcher


def senders_of(settings: Settings, egress: Egress) -> tuple[Sender, ...]:
    """Not opened yet. Raises ConfigError. What a channel needs is imported where it is used."""
    agent = f"Chimes/{__version__}"
    found: list[Sender] = [Inbox(), Webhooks(lambda: _webhook(egress, agent))]
    if settings.telegram_token:
        from chimes.delivery.telegram import Telegram

        found.append(
            Telegram(
                token=settings.telegram_token,
                api_url=settings.telegram_api_url,
                fetcher=_fetcher(settings, egress, agent),
            )
        )
    if settings.smtp_url:
        from chimes.delivery.email import Email, sender_of, server_of

        if not settings.smtp_from:
            raise ConfigError(
                say("smtp_from: smtp_url needs an address to send from"), key="smtp_from"
            )
        found.append(
            Email(
                server=server_of(settings.smtp_url),
                sender=sender_of(settings.smtp_from),
                fetcher=_fetcher(settings, egress, agent),
            )
        )
    return tuple(found)


def _webhook(egress: Egress, agent: str) -> Sender:
    from chimes.delivery.webhook import Webhook

    return Webhook(egress=egress, user_agent=agent)


def _fetcher(settings: Settings, egress: Egress, agent: str) -> Fetcher:
    from chimes.delivery.fetching import Fetcher

    return Fetcher(
        egress=egress,
        user_agent=agent,
        agent_url=settings.agent_url,
        agent_key=settings.agent_api_key,
    )
