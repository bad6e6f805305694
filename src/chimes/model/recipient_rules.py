"""What recipients must look like to be saved. Every refusal is a 422 that names its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

from chimes.errors import InvalidInput
from chimes.model.egress import Egress
from chimes.model.http_url import parse_http_url
from chimes.model.recipient import Channel, Recipient
from chimes.model.target_rules import check_signing
from chimes.wording import say

MOST_RECIPIENTS = 10
MAX_ADDRESS_LENGTH = 254
LANGUAGES = ("", "en", "th", "zh")

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
    if not recipient.on:
        raise InvalidInput(
            say("say when: success, failure, recovery or always"), field="on", code="missing"
        )
    if recipient.language not in LANGUAGES:
        raise InvalidInput(
            say("a language is en, th or zh"), field="language", code="unknown_language"
        )
    if recipient.signing_secrets and recipient.channel is not Channel.WEBHOOK:
        raise InvalidInput(
            say("only a webhook is signed"), field="signing_secrets", code="signing_secret"
        )
    check_signing(recipient.signing_secrets)


def _check_url(text: str, egress: Egress | None) -> None:
    try:
        url = parse_http_url(text)
    except InvalidInput as error:
        error.field = "to"
        raise
    if egress is not None and (denial := egress.literal_verdict(url)) is not None:
        raise InvalidInput(str(denial), field="to", code="egress_denied")
