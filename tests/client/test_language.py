"""Language of the errors that a client gets."""

from __future__ import annotations

import re

import pytest

from chimes.client import Client
from chimes.errors import InvalidInput
from tests.cli.conftest import Server
from tests.client.conftest import KEY


def complaint(server: Server, language: str | None) -> str:
    with (
        Client(server.url, KEY, language=language) as client,
        pytest.raises(InvalidInput) as caught,
    ):
        client.schedule("never", {"kind": "cron", "expression": "61 * * * *"}, "task:greet")
    return caught.value.message


def test_the_server_complains_in_the_language(keyed_server: Server) -> None:
    assert "minute" in complaint(keyed_server, None)
    assert complaint(keyed_server, "en") == complaint(keyed_server, None)
    assert re.search("[\u0e01-\u0e5b]", complaint(keyed_server, "th"))
    assert re.search("[\u4e00-\u9fff]", complaint(keyed_server, "zh-CN"))


def test_a_language_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tlh"):
        Client("http://127.0.0.1:1", language="tlh")


def test_the_asynchronous_twin_asks_alike() -> None:
    with Client("http://127.0.0.1:1", language="th-TH") as client:
        assert client.aio.language == client.language == "th"
