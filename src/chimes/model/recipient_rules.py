"""What recipients must look like to be saved. Every refusal is a 422 that names its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import assert_never

from chimes.errors import InvalidInput
from chimes.model.egress import Egress
from chimes.model.http_url import parse_http_url
from chimes.model.occasion import ASKED_FOR, Occasion
from chimes.model.recipient import Channel, Recipient
from chimes.model.target_rules import check_signing
from chimes.triggers import parse_zone
from chimes.wording import say

MOST_RECIPIENTS = 10
MAX_ADDRESS_LENGTH = 254
LANGUAGES = ("", "en", "th", "zh")
LONGEST_LATENESS = timedelta(days=7)

_CHAT_ID = re.compile(r"-?[1-9][0-9]{0,18}")
_CHAT_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,31}")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}@){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")


def check_recipients(recipients: Sequence[Recipient], *, egress: Egress | None = None) -> None:
    """With `egress`, a URL that can be seen to be denied is refused as well."""
    if len(recipients) > MOST_RECIPIENTS:
        raise InvalidInput(
            say("at most {most} recipients", most=MOST_RECIPIENTS),
            field="delivery",
            code="too_many",
        )
    seen: set[tuple[Channel, str]] = set()
    for place, recipient in enumerate(recipients):
        try:
            _check(recipient, egress)
            if (recipient.channel, recipient.to) in seen:
                raise InvalidInput(
                    say("named twice; put both under `on`"), field="to", code="twice"
                )
        except InvalidInput as error:
            raise error.within(f"delivery[{place}]") from None
        seen.add((recipient.channel, recipient.to))


def is_chat_id(text: str) -> bool:
    """Whether it is the number of a chat, and not a public name."""
    return _CHAT_ID.fullmatch(text) is not None


def _check(recipient: Recipient, egress: Egress | None) -> None:
    match recipient.channel:
        case Channel.INBOX:
            if recipient.to:
                raise InvalidInput(
                    say("the inbox is the owner's; leave `to` out"), field="to", code="not_empty"
                )
        case Channel.TELEGRAM:
            if not is_chat_id(recipient.to) and not _CHAT_NAME.fullmatch(recipient.to):
                raise InvalidInput(
                    say("a chat is its number, or @ and its public name"),
                    field="to",
                    code="bad_chat",
                )
        case Channel.WEBHOOK:
            _check_url(recipient.to, egress)
        case Channel.EMAIL:
            if len(recipient.to) > MAX_ADDRESS_LENGTH or not _ADDRESS.fullmatch(recipient.to):
                raise InvalidInput(
                    say("an address such as ada@example.com"), field="to", code="bad_address"
                )
        case _:
            assert_never(recipient.channel)
    _check_occasions(recipient.on, "on")
    if not recipient.on:
        raise InvalidInput(
            say("say when: success, failure, recovery, late or always"), field="on", code="missing"
        )
    _check_times(recipient)
    if recipient.language not in LANGUAGES:
        raise InvalidInput(
            say("a language is en, th or zh"), field="language", code="unknown_language"
        )
    if recipient.signing_secrets and recipient.channel is not Channel.WEBHOOK:
        raise InvalidInput(
            say("only a webhook is signed"), field="signing_secrets", code="signing_secret"
        )
    check_signing(recipient.signing_secrets)


def _check_occasions(given: Sequence[Occasion], field: str) -> None:
    for each in given:
        if each not in ASKED_FOR:
            raise InvalidInput(
                say("{word!r} is nothing that runs do", word=each.value),
                field=field,
                code="unknown_occasion",
            )


def _check_times(recipient: Recipient) -> None:
    if not timedelta() < recipient.late_after <= LONGEST_LATENESS:
        raise InvalidInput(
            say("a run is late after a moment, at most after a week"),
            field="late_after",
            code="out_of_range",
        )
    if (quiet := recipient.quiet) is not None:
        if recipient.channel is Channel.INBOX:
            raise InvalidInput(
                say("an inbox disturbs nobody: it has no quiet hours"),
                field="quiet",
                code="not_empty",
            )
        if quiet.start == quiet.end:
            raise InvalidInput(
                say("quiet hours begin and end at different times"),
                field="quiet.to",
                code="out_of_range",
            )
        _check_occasions(quiet.but, "quiet.except")
        _check_zone(quiet.zone, "quiet.zone")
    if (digest := recipient.digest) is not None:
        if not 0 <= digest.weekday <= 6:
            raise InvalidInput(
                say("a week has the days 0 (Monday) to 6"), field="digest.on", code="out_of_range"
            )
        _check_occasions(digest.but, "digest.except")
        _check_zone(digest.zone, "digest.zone")


def _check_zone(name: str, field: str) -> None:
    """One that is left out is the owner's, found when it is saved."""
    if name:
        parse_zone(name, field=field)


def _check_url(text: str, egress: Egress | None) -> None:
    try:
        url = parse_http_url(text)
    except InvalidInput as error:
        error.field = "to"
        raise
    if egress is not None and (denial := egress.literal_verdict(url)) is not None:
        raise InvalidInput(str(denial), field="to", code="egress_denied")
