"""Recipients."""

from __future__ import annotations

from datetime import time

from chimes.model.recipient import LATE_AFTER, Channel, Occasion, Recipient
from chimes.model.telling_times import Digest, Period, Quiet
from chimes.store.plain import MICROSECOND, Plain, Reader, without_empty


def recipient_to_plain(recipient: Recipient) -> Plain:
    plain = without_empty(
        {
            "channel": recipient.channel.value,
            "to": recipient.to,
            "on": _words(recipient.on),
            "language": recipient.language,
            "signing_secrets": list(recipient.signing_secrets),
        }
    )
    # Left out where they say nothing: versions that do not know them can read the others.
    if recipient.late_after != LATE_AFTER:
        plain["late_after"] = recipient.late_after // MICROSECOND
    if recipient.quiet is not None:
        plain["quiet"] = _quiet_to_plain(recipient.quiet)
    if recipient.digest is not None:
        plain["digest"] = _digest_to_plain(recipient.digest)
    return plain


def recipient_from_plain(data: object) -> Recipient:
    read = Reader(data)
    recipient = Recipient(
        channel=Channel(read.text("channel")),
        to=read.text("to", ""),
        on=_occasions(read, "on"),
        language=read.text("language", ""),
        signing_secrets=tuple(str(each) for each in read.items("signing_secrets")),
        late_after=read.seconds("late_after", LATE_AFTER),
        quiet=read.read("quiet", _quiet_from_plain) if read.has("quiet") else None,
        digest=read.read("digest", _digest_from_plain) if read.has("digest") else None,
    )
    read.done()
    return recipient


def _quiet_to_plain(quiet: Quiet) -> Plain:
    return without_empty(
        {
            "start": clock_text(quiet.start),
            "end": clock_text(quiet.end),
            "zone": quiet.zone,
            "but": _words(quiet.but),
        }
    )


def _quiet_from_plain(data: object) -> Quiet:
    read = Reader(data)
    quiet = Quiet(
        start=time.fromisoformat(read.text("start")),
        end=time.fromisoformat(read.text("end")),
        zone=read.text("zone", ""),
        but=_occasions(read, "but"),
    )
    read.done()
    return quiet


def _digest_to_plain(digest: Digest) -> Plain:
    return without_empty(
        {
            "every": digest.every.value,
            "at": clock_text(digest.at),
            "weekday": digest.weekday,
            "zone": digest.zone,
            "but": _words(digest.but),
        }
    )


def _digest_from_plain(data: object) -> Digest:
    read = Reader(data)
    digest = Digest(
        every=Period(read.text("every")),
        at=time.fromisoformat(read.text("at")),
        weekday=read.integer("weekday", 0),
        zone=read.text("zone", ""),
        but=_occasions(read, "but"),
    )
    read.done()
    return digest


def clock_text(at: time) -> str:
    return at.strftime("%H:%M")


def _words(occasions: tuple[Occasion, ...]) -> list[str]:
    return [occasion.value for occasion in occasions]


def _occasions(read: Reader, name: str) -> tuple[Occasion, ...]:
    return tuple(Occasion(str(each)) for each in read.items(name))
