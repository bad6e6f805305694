"""Recipients between the native API and the model; pure."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.doors.api.inputs_recipients import DigestIn, QuietIn, RecipientIn
from chimes.doors.api.wire_targets import Json, unmasked_secrets
from chimes.model.recipient import Recipient
from chimes.model.telling_times import WEEKDAYS, Digest, Quiet
from chimes.redaction import HIDDEN
from chimes.store.codec.recipient import clock_text
from chimes.triggers import format_duration_iso


def recipients_from(
    given: Sequence[RecipientIn], before: Sequence[Recipient] = ()
) -> tuple[Recipient, ...]:
    """A secret that comes back as `***` is the one that the same recipient had."""
    secrets = {(each.channel, each.to): each.signing_secrets for each in before}
    return tuple(
        Recipient(
            channel=each.channel,
            to=str(each.to).strip(),
            on=tuple(dict.fromkeys(each.on)),
            language=each.language,
            signing_secrets=unmasked_secrets(
                each.signing_secrets,
                secrets.get((each.channel, str(each.to).strip()), ()),
                f"delivery[{place}].signing_secrets",
            ),
            late_after=each.late_after,
            quiet=_quiet_from(each.quiet),
            digest=_digest_from(each.digest),
        )
        for place, each in enumerate(given)
    )


def recipients_out(recipients: Sequence[Recipient]) -> list[Json]:
    return [
        {
            "channel": each.channel.value,
            "to": each.to,
            "on": [occasion.value for occasion in each.on],
            "language": each.language,
            "signing_secrets": [HIDDEN for _ in each.signing_secrets],
            "late_after": format_duration_iso(each.late_after),
            "quiet": quiet_out(each.quiet),
            "digest": digest_out(each.digest),
        }
        for each in recipients
    ]


def quiet_out(quiet: Quiet | None) -> Json | None:
    if quiet is None:
        return None
    return {
        "from": clock_text(quiet.start),
        "to": clock_text(quiet.end),
        "zone": quiet.zone,
        "except": [occasion.value for occasion in quiet.but],
    }


def digest_out(digest: Digest | None) -> Json | None:
    if digest is None:
        return None
    return {
        "every": digest.every.value,
        "at": clock_text(digest.at),
        "on": WEEKDAYS[digest.weekday],
        "zone": digest.zone,
        "except": [occasion.value for occasion in digest.but],
    }


def _quiet_from(given: QuietIn | None) -> Quiet | None:
    if given is None:
        return None
    return Quiet(
        start=given.start, end=given.end, zone=given.zone, but=tuple(dict.fromkeys(given.but))
    )


def _digest_from(given: DigestIn | None) -> Digest | None:
    if given is None:
        return None
    return Digest(
        every=given.every,
        at=given.at,
        weekday=given.weekday,
        zone=given.zone,
        but=tuple(dict.fromkeys(given.but)),
    )
