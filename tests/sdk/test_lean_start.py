"""What a node has not been asked for it has not loaded: that is how it stays below 90 MB."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chimes.config import Settings
from chimes.model.recipient import Channel
from chimes.model.run import Outcome
from chimes.model.target import TaskTarget
from chimes.notifications.base import DeliveryAttempt, Result, Sent
from chimes.runtime.channels import LazyHttpRunner, LazyWebhook, scheduled
from chimes.runtime.composition import open_local
from chimes.store.memory import MemoryStore
from chimes.targets.base import Call, TargetRunner
from chimes.testing import SettableClock
from tests.builders import a_schedule
from tests.notifications.attempts import an_attempt

#: Each with what it takes to need it.
UNUSED = (
    "aiohttp",  # a callback, a webhook
    "alembic",  # a migration
    "babel", "jinja2", "chimes.web.dashboard.site",  # a page
    "chimes.language.parser",  # a sentence
    "chimes.telegram",  # a token
    "chimes.targets.agent",  # a pipeline
    "chimes.targets.action",  # an action service
    "sqlalchemy.orm",
    "yaml",  # a file
)  # fmt: skip

_SERVE = """
import os, signal, sys
from chimes.runtime import serve as serving
from chimes.config import load_settings

settle = serving.settle_garbage

def settled():
    settle()
    print([each for each in UNUSED if each in sys.modules])
    os.kill(os.getpid(), signal.SIGTERM)

serving.settle_garbage = settled
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
    capacity = 1

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    async def send(self, letter: DeliveryAttempt) -> Result:
        self.calls.append("send")
        return Sent()


async def test_what_is_loaded_with_the_first_call_is_loaded_once_and_holds_up_nobody() -> None:
    sender, threads = _Sender(), list[threading.Thread]()

    def load() -> _Sender:
        threads.append(threading.current_thread())
        return sender

    webhooks = LazyWebhook(load)
    await webhooks.open()
    assert not threads
    await asyncio.gather(*(webhooks.send(an_attempt()) for _ in range(3)))
    await webhooks.close()
    assert sender.calls == ["open", "send", "send", "send", "close"]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_what_was_never_used_has_nothing_to_close() -> None:
    def load() -> _Sender:
        raise AssertionError

    webhooks = LazyWebhook(load)
    await webhooks.open()
    await webhooks.close()


class _Runner:
    kind = "http"
    resumable = False
    places = None
    offers = frozenset({"http"})

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        raise AssertionError


async def test_a_schedule_that_will_need_it_is_reason_enough_to_load_it() -> None:
    # The first call is as punctual as any other.
    store, runner, loaded = MemoryStore(SettableClock()), _Runner(), list[int]()

    def load() -> TargetRunner:
        loaded.append(1)
        return runner

    callbacks = LazyHttpRunner(load, lambda: scheduled(store, "http"))
    await callbacks.open()
    await store.add_schedule(a_schedule(target=TaskTarget(name="x")))
    await asyncio.sleep(0)
    assert not loaded
    await store.add_schedule(a_schedule())
    async with asyncio.timeout(20):
        await runner.opened.wait()
    await callbacks.close()
    assert loaded == [1]


async def test_who_waits_for_a_reason_is_closed_like_the_others() -> None:
    store = MemoryStore(SettableClock())
    callbacks = LazyHttpRunner(_Runner, lambda: scheduled(store, "http"))
    await callbacks.open()
    await asyncio.sleep(0)
    await callbacks.close()
