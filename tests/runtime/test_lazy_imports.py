"""A node imports optional dependencies at first use, which keeps `serve` below 80 MB and `worker`
below 65 MB."""

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
from chimes.runtime.channels import LazyHttpRunner, LazySender, wait_for_schedule
from chimes.runtime.composition import open_local
from chimes.store.memory import MemoryStore
from chimes.targets.base import Call, TargetRunner
from chimes.testing import SettableClock
from tests.builders import a_schedule
from tests.notifications.attempts import an_attempt

#: Modules with the feature that needs them.
UNUSED = (
    "aiohttp",  # a callback, a webhook
    "chimes.store.sql.migrations.conversion",  # a conversion of an earlier schema
    "babel", "jinja2", "chimes.web.dashboard.site",  # a page
    "chimes.web.api.schemas", "chimes.web.compat.base", "chimes.web.server",  # an API
    "chimes.language.parser",  # a sentence
    "chimes.services.demo",  # `--demo`, a page
    "chimes.telegram",  # a token
    "chimes.targets.agent",  # a pipeline
    "chimes.targets.action",  # an action service
    "chimes.sdk.transactions", "sqlalchemy.orm",  # a task that completes in its transaction
    "sqlalchemy.dialects.mysql", "sqlalchemy.dialects.postgresql",  # another database
    "yaml",  # a file
    "chimes.torture",  # its command
    "opentelemetry.sdk", "opentelemetry.exporter", "chimes.engine.spans",  # OTEL_* variables
    "authlib", "joserfc",  # an identity provider
)  # fmt: skip
#: The same for a node without the role `api`.
UNUSED_BY_WORKERS = (
    *UNUSED,
    "fastapi", "starlette", "uvicorn",
    "pydantic", "pydantic_core",  # an argument or a result that is more than a number
)  # fmt: skip

_SERVE = """
import os, signal, sys
from chimes import Chimes
from chimes.runtime import serve as serving
from chimes.config import load_settings

app = Chimes()

@app.task(name="noop")
async def noop(number: int, text: str = "") -> None: ...

tune = serving.tune_garbage_collector

def tune_and_stop():
    tune()
    print([each for each in UNUSED if each in sys.modules])
    os.kill(os.getpid(), signal.SIGTERM)

serving.tune_garbage_collector = tune_and_stop
flags = {"port": "0", "data_dir": FOLDER, "roles": ROLES}
sys.exit(serving.serve(load_settings(flags=flags), app))
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("roles", "unused"),
    [("api,scheduler,worker", UNUSED), ("scheduler,worker", UNUSED_BY_WORKERS)],
    ids=["serve", "worker"],
)
def test_an_idle_node_has_not_imported_optional_modules(
    tmp_path: Path, roles: str, unused: tuple[str, ...]
) -> None:
    asyncio.run(_migrate(Settings(data_dir=tmp_path)))
    code = f"UNUSED, FOLDER, ROLES = {unused!r}, {str(tmp_path)!r}, {roles!r}\n{_SERVE}"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


async def _migrate(settings: Settings) -> None:
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

    async def send(self, attempt: DeliveryAttempt) -> Result:
        self.calls.append("send")
        return Sent()


async def test_first_use_loads_once_in_a_thread() -> None:
    sender, threads = _Sender(), list[threading.Thread]()

    def load() -> _Sender:
        threads.append(threading.current_thread())
        return sender

    webhook = LazySender(Channel.WEBHOOK, load)
    await webhook.open()
    assert not threads
    await asyncio.gather(*(webhook.send(an_attempt()) for _ in range(3)))
    await webhook.close()
    assert sender.calls == ["open", "send", "send", "send", "close"]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_an_unused_resource_is_never_loaded() -> None:
    def load() -> _Sender:
        raise AssertionError

    webhook = LazySender(Channel.WEBHOOK, load)
    await webhook.open()
    await webhook.close()


class _Runner:
    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        raise AssertionError


async def test_a_schedule_preloads_the_http_client() -> None:
    # So the first call is not late.
    store, runner, loaded = MemoryStore(SettableClock()), _Runner(), list[int]()

    def load() -> TargetRunner:
        loaded.append(1)
        return runner

    runner_proxy = LazyHttpRunner(load, lambda: wait_for_schedule(store, "http"))
    await runner_proxy.open()
    await store.add_schedule(a_schedule(target=TaskTarget(name="x")))
    await asyncio.sleep(0)
    assert not loaded
    await store.add_schedule(a_schedule())
    async with asyncio.timeout(20):
        await runner.opened.wait()
    await runner_proxy.close()
    assert loaded == [1]


async def test_close_cancels_the_wait_for_a_schedule() -> None:
    store = MemoryStore(SettableClock())
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def expected() -> None:
        waiting.set()
        try:
            await wait_for_schedule(store, "http")
        finally:
            ended.set()

    runner_proxy = LazyHttpRunner(_Runner, expected)
    await runner_proxy.open()
    async with asyncio.timeout(20):
        await waiting.wait()
        await runner_proxy.close()
    assert ended.is_set()
