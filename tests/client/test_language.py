"""Language of the errors that a client gets."""

from __future__ import annotations

import re

import pytest

from chimes.client import Client
from chimes.errors import InvalidInput
from tests.cli.conftest import Server
from tests.client.conftest import KEY


def error_message(server: Server, language: str | None) -> str:
    with (
        Client(server.url, KEY, language=language) as client,
        pytest.raises(InvalidInput) as caught,
    ):
        client.schedule("never", {"kind": "cron", "expression": "61 * * * *"}, "task:greet")
    return caught.value.message


def test_errors_are_in_the_language_of_the_client(keyed_server: Server) -> None:
    assert "minute" in error_message(keyed_server, None)
    assert error_message(keyed_server, "en") == error_message(keyed_server, None)
    assert re.search("[\u0e01-\u0e5b]", error_message(keyed_server, "th"))
    assert re.search("[\u4e00-\u9fff]", error_message(keyed_server, "zh-CN"))


def test_unknown_language_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="tlh"):
        Client("http://127.0.0.1:1", language="tlh")


def test_async_client_uses_the_same_language() -> None:
    with Client("http://127.0.0.1:1", language="th-TH") as client:
        assert client.aio.language == client.language == "th"
