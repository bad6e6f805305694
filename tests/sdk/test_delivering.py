"""Which channels a node has is what the settings say."""

from __future__ import annotations

import pytest

from chimes.config import Settings
from chimes.errors import ConfigError
from chimes.model.egress import EgressRules
from chimes.runtime.channels import senders_of

EGRESS = EgressRules(open_mode=False)


@pytest.mark.parametrize(
    ("settings", "channels"),
    [
        (Settings(), ["inbox", "webhook"]),
        (Settings(telegram_token="1:a"), ["inbox", "webhook", "telegram"]),
        (
            Settings(smtp_url="smtp://mail.example", smtp_from="a@example.org"),
            ["inbox", "webhook", "email"],
        ),
    ],
)
def test_a_channel_is_there_once_it_is_set_up(settings: Settings, channels: list[str]) -> None:
    assert [sender.channel.value for sender in senders_of(settings, EGRESS)] == channels


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (Settings(smtp_url="smtp://mail.example"), "smtp_from"),
        (Settings(smtp_url="smtp://mail.example", smtp_from="nobody"), "smtp_from"),
        (Settings(smtp_url="mail.example", smtp_from="a@example.org"), "smtp_url"),
    ],
)
def test_what_is_set_up_halfway_fails_at_the_start(settings: Settings, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: ") as raised:
        senders_of(settings, EGRESS)
    assert raised.value.details["key"] == key
