"""Who is told of a run's end, through which channel, of which ends, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.model.change import replace
from chimes.model.occasion import ASKED_FOR as ASKED_FOR
from chimes.model.occasion import Occasion as Occasion
from chimes.model.telling_times import Digest, Quiet

#: A run that begins later than this is late, unless a recipient says otherwise.
LATE_AFTER = timedelta(minutes=1)
_MOMENT = timedelta(microseconds=1)


class Channel(StrEnum):
    #: The inbox of the owner; the Softnix door calls it `web_ui`.
    INBOX = "inbox"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"


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
    late_after: timedelta = LATE_AFTER
    #: What comes in these hours waits for their end; not in an inbox, which disturbs nobody.
    quiet: Quiet | None = None
    digest: Digest | None = None

    @property
    def by_the_clock(self) -> bool:
        """Whether it depends on the moment when something is told."""
        return self.quiet is not None or self.digest is not None

    def wants(self, occasion: Occasion) -> bool:
        return _names(self.on, occasion)

    def quiet_until(self, moment: datetime, occasion: Occasion) -> datetime | None:
        """When a message of that kind may go there, if not at that moment."""
        quiet = self.quiet_for(occasion)
        return None if quiet is None else quiet.until(moment)

    def quiet_for(self, occasion: Occasion) -> Quiet | None:
        """The quiet hours that hold up messages of that kind."""
        if self.quiet is None or self.channel is Channel.INBOX:
            return None
        if occasion is Occasion.TEST or _names(self.quiet.but, occasion):
            return None
        return self.quiet

    def collects(self, occasion: Occasion) -> bool:
        """Whether a message of that kind becomes part of a digest."""
        if self.digest is None or occasion in (Occasion.DIGEST, Occasion.TEST):
            return False
        return not _names(self.digest.but, occasion)

    def digest_after(self, moment: datetime) -> datetime:
        """The end of the period of its digest that the moment lies in. Of periods that end in
        quiet hours the end of those is the end, so that they become one digest."""
        assert self.digest is not None
        quiet = self.quiet_for(Occasion.DIGEST)
        end = self.digest.end_after(moment)
        if quiet is None:
            return end
        hours = quiet.around(moment)
        if hours is not None and self.digest.end_after(hours[0] - _MOMENT) <= moment:
            # It has ended in these hours already, and waits for theirs.
            return hours[1]
        return quiet.until(end) or end

    def in_zone(self, zone: str) -> Recipient:
        """The same, with that zone where it says none."""
        quiet, digest = self.quiet, self.digest
        if quiet is not None and not quiet.zone:
            quiet = replace(quiet, zone=zone)
        if digest is not None and not digest.zone:
            digest = replace(digest, zone=zone)
        return replace(self, quiet=quiet, digest=digest)


def _names(occasions: tuple[Occasion, ...], occasion: Occasion) -> bool:
    """Whether they include it: a recovery is a success as well."""
    if Occasion.ALWAYS in occasions or occasion in occasions:
        return True
    return occasion is Occasion.RECOVERY and Occasion.SUCCESS in occasions
