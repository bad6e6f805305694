"""The settings determine the channels of a node."""

from __future__ import annotations

import pytest

from chimes.config import Settings
from chimes.egress import EgressRules
from chimes.errors import ConfigError
from chimes.runtime.channels import build_senders

EGRESS = EgressRules(open_mode=False)


#: The package Apprise is installed for the tests.
ALWAYS = ["inbox", "webhook", "slack", "apprise"]


@pytest.mark.parametrize(
    ("settings", "channels"),
    [
        (Settings(), ALWAYS),
        (Settings(telegram_token="1:a"), [*ALWAYS, "telegram"]),
        (
            Settings(smtp_url="smtp://mail.example", smtp_from="a@example.org"),
            [*ALWAYS, "email"],
        ),
    ],
)
def test_a_configured_channel_is_built(settings: Settings, channels: list[str]) -> None:
    assert [sender.channel.value for sender in build_senders(settings, EGRESS)] == channels


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (Settings(smtp_url="smtp://mail.example"), "smtp_from"),
        (Settings(smtp_url="smtp://mail.example", smtp_from="nobody"), "smtp_from"),
        (Settings(smtp_url="mail.example", smtp_from="a@example.org"), "smtp_url"),
    ],
)
def test_an_incomplete_channel_configuration_is_rejected(settings: Settings, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: ") as raised:
        build_senders(settings, EGRESS)
    assert raised.value.details["key"] == key
