"""Validation of recipients."""

from __future__ import annotations

import pytest

from chimes.egress import EgressRules
from chimes.errors import InvalidInput
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.validation import MAX_RECIPIENTS, check_recipients
from tests.tables import each_row

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
SERVER = EgressRules(open_mode=False)


def to(channel: Channel, text: str, **given: object) -> Recipient:
    return Recipient(channel=channel, to=text, **given)  # type: ignore[arg-type]


GOOD = [
    Recipient(channel=Channel.INBOX),
    to(Channel.TELEGRAM, "4711", on=(NotifyOn.FAILURE, NotifyOn.RECOVERY), language="th"),
    to(Channel.TELEGRAM, "-1001234567890"),
    to(Channel.TELEGRAM, "@my_channel"),
    to(Channel.WEBHOOK, "https://example.com/hook?a=1", signing_secrets=(SECRET, SECRET)),
    to(Channel.EMAIL, "ada.l+news@mail.example.com"),
    to(Channel.EMAIL, "root@localhost"),
]


def test_valid_recipients_of_each_channel() -> None:
    check_recipients(GOOD, egress=SERVER)
    check_recipients(())


@each_row(
    ("channel", "text", "field", "code"),
    [
        (Channel.INBOX, "somebody", "to", "not_empty"),
        (Channel.TELEGRAM, "", "to", "bad_chat"),
        (Channel.TELEGRAM, "0", "to", "bad_chat"),
        (Channel.TELEGRAM, "42\n", "to", "bad_chat"),
        (Channel.TELEGRAM, "٤٢", "to", "bad_chat"),
        (Channel.TELEGRAM, "my_channel", "to", "bad_chat"),
        (Channel.TELEGRAM, "@x", "to", "bad_chat"),
        (Channel.WEBHOOK, "", "to", "url_required"),
        (Channel.WEBHOOK, "ftp://example.com", "to", "url_scheme"),
        (Channel.WEBHOOK, "http://a:b@example.com", "to", "url_userinfo"),
        (Channel.EMAIL, "", "to", "bad_address"),
        (Channel.EMAIL, "ada", "to", "bad_address"),
        (Channel.EMAIL, "ada@@example.com", "to", "bad_address"),
        (Channel.EMAIL, ".ada@example.com", "to", "bad_address"),
        (Channel.EMAIL, "ada@-example.com", "to", "bad_address"),
        (Channel.EMAIL, "ada@example.com\r\nBcc: all@example.com", "to", "bad_address"),
        (Channel.EMAIL, "a" * 65 + "@example.com", "to", "bad_address"),
        (Channel.EMAIL, "a@" + "b." * 130 + "c", "to", "bad_address"),
        (Channel.EMAIL, "ada@example.com, bob@example.com", "to", "bad_address"),
    ],
)
def test_invalid_addresses_are_rejected(channel: Channel, text: str, field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_recipients([GOOD[0], to(channel, text)])
    assert refused.value.field == f"delivery[1].{field}"
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("recipient", "field", "code"),
    [
        (Recipient(channel=Channel.INBOX, on=()), "on", "missing"),
        (Recipient(channel=Channel.INBOX, language="de"), "language", "unknown_language"),
        (
            Recipient(channel=Channel.INBOX, signing_secrets=(SECRET,)),
            "signing_secrets",
            "signing_secret",
        ),
        (
            to(Channel.WEBHOOK, "https://example.com", signing_secrets=("whsec_short",)),
            "signing_secrets",
            "signing_secret",
        ),
    ],
)
def test_invalid_recipient_options_are_rejected(
    recipient: Recipient, field: str, code: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_recipients([recipient])
    assert (refused.value.field, refused.value.code) == (f"delivery[0].{field}", code)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "http://169.254.169.254/", "http://0x7f.1"])
def test_egress_rules_apply_to_webhooks(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_recipients([to(Channel.WEBHOOK, url)], egress=SERVER)
    assert (refused.value.field, refused.value.code) == ("delivery[0].to", "egress_denied")


def test_duplicate_and_too_many_recipients_are_rejected() -> None:
    twice = [to(Channel.TELEGRAM, "42"), to(Channel.TELEGRAM, "42", on=(NotifyOn.FAILURE,))]
    with pytest.raises(InvalidInput) as refused:
        check_recipients(twice)
    assert (refused.value.field, refused.value.code) == ("delivery[1].to", "twice")
    many = [to(Channel.TELEGRAM, str(n)) for n in range(1, MAX_RECIPIENTS + 2)]
    check_recipients(many[:-1])
    with pytest.raises(InvalidInput, match="at most 10"):
        check_recipients(many)
