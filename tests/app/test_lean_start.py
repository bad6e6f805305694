"""What a node has not been asked for it has not loaded: that is how it stays below 90 MB."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chimes.app.composition import open_local
from chimes.app.first_use import Webhooks
from chimes.config import Settings
from chimes.delivery.base import Letter, Result, Sent
from chimes.model.recipient import Channel
from tests.delivery.letters import a_letter

#: Each with what it takes to need it.
UNUSED = (
    "aiohttp",  # a callback, a webhook
    "alembic",  # a migration
    "babel", "jinja2", "chimes.doors.dashboard.site",  # a page
    "chimes.language.parsing",  # a sentence
    "chimes.doors.telegram",  # a token
    "chimes.targets.agent_prompt",  # a pipeline
    "chimes.targets.action",  # an action service
    "sqlalchemy.orm",
    "yaml",  # a file
)  # fmt: skip

_SERVE = """
import os, signal, sys
from chimes.app import serving
from chimes.config import load_settings

settle = serving._settle_garbage

def settled():
    settle()
    print([each for each in UNUSED if each in sys.modules])
    os.kill(os.getpid(), signal.SIGTERM)

serving._settle_garbage = settled
sys.exit(serving.serve(load_settings(flags={"port": "0", "data_dir": FOLDER})))
"""


@pytest.mark.timeout(60)
def test_a_node_that_waits_has_loaded_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    asyncio.run(_migrated(Settings(data_dir=tmp_path)))
    code = f"UNUSED, FOLDER = {UNUSED!r}, {str(tmp_path)!r}\n{_SERVE}"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


async def _migrated(settings: Settings) -> None:
    async with open_local(settings):
        pass


class _Sender:
    channel = Channel.WEBHOOK
    places = 1

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    async def send(self, letter: Letter) -> Result:
        self.calls.append("send")
        return Sent()


async def test_what_is_loaded_with_the_first_call_is_loaded_once_and_holds_up_nobody() -> None:
    sender, threads = _Sender(), list[threading.Thread]()

    def load() -> _Sender:
        threads.append(threading.current_thread())
        return sender

    webhooks = Webhooks(load)
    await webhooks.open()
    assert not threads
    await asyncio.gather(*(webhooks.send(a_letter()) for _ in range(3)))
    await webhooks.close()
    assert sender.calls == ["open", "send", "send", "send", "close"]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_what_was_never_used_has_nothing_to_close() -> None:
    def load() -> _Sender:
        raise AssertionError

    webhooks = Webhooks(load)
    await webhooks.open()
    await webhooks.close()
