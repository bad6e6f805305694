"""`chimes add` with events: webhooks, ends of runs, files, and their options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.forking import run_chimes


def add(home: Path, *arguments: str) -> Any:
    """The JSON of the created schedule, or the error message."""
    store = {"CHIMES_STORE": f"sqlite:///{home / 'chimes.db'}", "PATH": "/usr/bin:/bin"}
    given = ["add", *arguments, "--http", "http://127.0.0.1:9/x", "--yes", "--json"]
    done = run_chimes(given, cwd=home, env=store)
    if done.returncode:
        return done.stderr
    return json.loads(done.stdout)


def test_events_from_the_command_line(tmp_path: Path) -> None:
    hook = add(tmp_path, "--on-webhook", "--debounce", "30s", "--name", "hook")
    assert hook["trigger"] == {"kind": "webhook", "scheme": "none", "debounce": "PT30S"}
    assert "/hooks/" in hook["hook_url"]
    assert hook["policy"]["overlap"] == "queue"
    after = add(
        tmp_path, "--after", "hook", "--status", "failed", "--batch", "10/1m", "--name", "after"
    )
    assert after["trigger"] == {
        "kind": "run_end",
        "schedule": hook["id"],
        "status": ["failed"],
        "batch": {"count": 10, "within": "PT1M"},
    }
    for arguments, message in (
        ((), "Give a time as EXPRESSION"),
        (("every 5m", "--on-webhook"), "no EXPRESSION"),
        (("--on-webhook", "--after", "hook"), "Give one of"),
        (("--on-webhook", "--status", "failed"), "--status needs another event"),
        (("--on-webhook", "--batch", "ten"), "COUNT/DURATION"),
        (("--on-file", "in/*.csv"), "absolute"),
    ):
        assert message in add(tmp_path, *arguments), arguments
