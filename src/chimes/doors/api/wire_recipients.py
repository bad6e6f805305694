"""Recipients between the native API and the model; pure."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.doors.api.inputs import RecipientIn
from chimes.doors.api.wire_targets import Json, unmasked_secrets
from chimes.model.recipient import Recipient
from chimes.redaction import HIDDEN


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
        }
        for each in recipients
    ]
