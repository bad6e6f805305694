"""Helpers of the JSON file store tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chimes.store.jsonfile import JsonFileStore
from chimes.store.port import Item
from chimes.testing import SettableClock

#: A jobs.json written by Ksana.
KSANA_FILE = """{
  "version": 1,
  "updated_at": "2025-09-19T11:00:00Z",
  "jobs": [
    {
      "id": "uuid-1",
      "name": "ping service",
      "enabled": true,
      "type": "http",
      "http": {
        "method": "GET",
        "url": "https://example.com/ping",
        "headers": {"X-Token": "abc"},
        "body": ""
      },
      "schedule": {
        "kind": "every",
        "every": "5m",
        "start_at": "",
        "jitter": "5s"
      },
      "timeout": "10s",
      "max_retries": 3,
      "retry_backoff": "5s",
      "last_run_at": "",
      "next_run_at": "2025-09-19T11:05:00Z",
      "last_status": "",
      "last_error": ""
    }
  ]
}
"""


@asynccontextmanager
async def opened(
    directory: Path, clock: SettableClock | None = None
) -> AsyncIterator[JsonFileStore]:
    store = JsonFileStore(directory, clock=clock or SettableClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def crash(store: JsonFileStore) -> None:
    """Releases the directory like a killed process: nothing is flushed or copied."""
    store._directory_lock.release()


def document(directory: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((directory / "jobs.json").read_text(encoding="utf-8"))
    return data


def job(directory: Path, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(j for j in document(directory)["jobs"] if j["id"] == job_id)
    return found


def edit(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edits jobs.json like a person with an editor."""
    data = document(directory)
    change(data)
    (directory / "jobs.json").write_text(json.dumps(data, indent=4), encoding="utf-8")


async def dumped(store: JsonFileStore) -> list[Item]:
    return [item async for item in store.dump()]
