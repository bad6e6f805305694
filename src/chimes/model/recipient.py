"""Who is told of a run's end, through which channel, and of which ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    #: The inbox of the owner; the Softnix door calls it `web_ui`.
    INBOX = "inbox"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"


class Occasion(StrEnum):
    SUCCESS = "success"
    #: Also a slot that was missed, and a run of which nobody knows how it ended.
    FAILURE = "failure"
    #: The first success after a failure.
    RECOVERY = "recovery"
    #: Every end but a slot that was skipped on purpose.
    ALWAYS = "always"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipient:
    channel: Channel
    #: A chat, a URL, an address; empty for the inbox, which is the owner's.
    to: str = ""
    on: tuple[Occasion, ...] = (Occasion.ALWAYS,)
    #: `en`, `th`, `zh`; empty: as the owner likes it.
    language: str = ""
    #: Standard Webhooks keys of a webhook (`whsec_...`).
    signing_secrets: tuple[str, ...] = ()

    def wants(self, occasion: Occasion) -> bool:
        if Occasion.ALWAYS in self.on or occasion in self.on:
            return True
        return occasion is Occasion.RECOVERY and Occasion.SUCCESS in self.on
