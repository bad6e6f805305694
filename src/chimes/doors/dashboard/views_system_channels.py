"""The ways out as System shows them, without their secrets."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from chimes.config import Settings
from chimes.model.target_rules import SECRET_PREFIX
from chimes.wording import say

#: Bytes of a signing key, as Standard Webhooks advises.
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRow:
    #: As the check is called; empty: there is nothing to reach.
    id: str
    name: str
    #: What is set, without secrets; empty: it is not in use.
    detail: str
    setting: str
    #: Where the check connects to.
    url: str = ""


def channel_rows(known: Settings) -> tuple[ChannelRow, ...]:
    return (
        ChannelRow(
            id="telegram",
            name=say("Telegram bot"),
            detail=_how_telegram(known),
            setting="CHIMES_TELEGRAM_TOKEN",
            url=known.telegram_api_url if known.telegram_token else "",
        ),
        ChannelRow(
            id="email",
            name=say("E-mail"),
            detail=known.smtp_from or bare_host(known.smtp_url),
            setting="CHIMES_SMTP_URL",
            url=known.smtp_url,
        ),
        ChannelRow(
            id="agents",
            name=say("Agents"),
            detail=bare_host(known.agent_url),
            setting="CHIMES_AGENT_URL",
            url=known.agent_url,
        ),
        ChannelRow(
            id="actions",
            name=say("Action service"),
            detail=bare_host(known.action_url),
            setting="CHIMES_ACTION_URL",
            url=known.action_url,
        ),
        ChannelRow(
            id="",
            name=say("Public address"),
            detail=bare_host(known.public_url),
            setting="CHIMES_PUBLIC_URL",
        ),
    )


def _how_telegram(known: Settings) -> str:
    if not known.telegram_token:
        return ""
    return say("webhook") if known.telegram_webhook_url else say("long polling")


def bare_host(url: str) -> str:
    """Without what may be a secret in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}" if host else ""


def new_signing_key() -> str:
    """`whsec_` and base64, as Standard Webhooks has them."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
