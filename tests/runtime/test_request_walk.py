"""ARCHITECTURE.md names the files through which a POST becomes a row."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx2
from prometheus_client import CollectorRegistry

import chimes
from chimes.clock import SystemClock
from chimes.config import Settings
from chimes.model.access import Actor, Role
from chimes.runtime.composition import open_local
from chimes.services.access import AccessService
from chimes.web.requests import WebContext
from chimes.web.server import build_app
from tests.web.rig import HOST, definition, share_native_routes

PACKAGE = Path(chimes.__file__).parent
ROOT = PACKAGE.parent.parent
#: What every layer uses for times, ids, messages, values and statements.
HELPERS = frozenset(
    {
        *("clock.py", "i18n.py", "telemetry.py", "language/languages.py", "services/documents.py"),
        *(f"model/{name}.py" for name in ("__init__", "access", "fields", "ids", "run", "target")),
        *(f"triggers/{name}.py" for name in ("cron", "cron_fields", "values", "zones")),
        "store/port.py",
        *(f"store/sql/{name}.py" for name in ("database/base", "dialects/sqlite", "rows/values")),
        # The read of the schedules with the same name; it is a walk of its own.
        "store/sql/listing.py",
        # Locks nothing on SQLite, which has one writer.
        "store/sql/locks.py",
        # Passes the egress rules on.
        "runtime/composition.py",
    }
)


class Walk:
    """The modules of the package whose functions are called."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._recording = False

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if not self._recording or event != "call":
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return
        if frame.f_code.co_name in ("schedule_response", "_created_response"):
            self._recording = False
            return
        self.files.add(path.relative_to(PACKAGE).as_posix())

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._recording = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


async def test_architecture_names_the_files_through_which_a_post_becomes_a_row(
    tmp_path: Path,
) -> None:
    walk, clock = Walk(), SystemClock()
    settings = Settings(data_dir=tmp_path)
    # The thread that writes to SQLite starts with the store.
    threading.setprofile(walk)
    try:
        async with open_local(settings, clock) as services:
            access = AccessService(services.store, clock)
            app = build_app(
                WebContext(
                    schedules=services.schedules,
                    runs=services.runs,
                    access=access,
                    store=services.store,
                    settings=settings,
                    clock=clock,
                    metrics=CollectorRegistry(),
                    version="1",
                    port=7100,
                    not_ready=lambda: "",
                )
            )
            share_native_routes(app)
            key = await access.create(Actor(), name="test", role=Role.ADMIN)
            headers = {"Authorization": f"Bearer {key.text}", "Idempotency-Key": "first"}
            target = {"kind": "http", "url": "https://example.com/hook"}
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url=HOST) as client:
                # The first request prepares the routes.
                await client.get(
                    "/api/v1/schedules", headers={"Authorization": headers["Authorization"]}
                )
                with walk.recording():
                    answer = await client.post(
                        "/api/v1/schedules", json=definition(target=target), headers=headers
                    )
            assert answer.status_code == 201, answer.text
    finally:
        threading.setprofile(None)
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("**A POST becomes a row.**")[2]
    named = set(re.findall(r"`([\w/]+\.py)`", text.partition("\n")[0]))
    assert named == walk.files - HELPERS
