"""API keys on a running node: from open mode to keys."""

from __future__ import annotations

import subprocess
import sys

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import ONCE_IN_A_YEAR, http

_MAKE_KEY = """
import asyncio, sys
from chimes.runtime.composition import open_local
from chimes.config import Settings
from chimes.model.access import Actor, Owner, OwnerType, Role

async def main(store, name, role, owner):
    async with open_local(Settings(store=store)) as services:
        made = await services.access.create(
            Actor(), name=name, role=Role(role), owner=Owner(type=OwnerType.USER, id=owner)
        )
        print(made.text)

asyncio.run(main(*sys.argv[1:]))
"""


def key_for(store: str, name: str, role: str) -> str:
    """Creates a key in another process on the same store."""
    done = subprocess.run(
        [sys.executable, "-c", _MAKE_KEY, store, name, role, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_the_first_key_ends_open_mode_without_a_restart(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    # Keys, egress rules and limits change together.
    node = start(sqlite)
    before = node.create(
        name="private", trigger=ONCE_IN_A_YEAR, target=http(receiver.url("/private"))
    )
    admin = key_for(sqlite, "root", "admin")
    member = key_for(sqlite, "bob", "member")
    wait_until(lambda: node.call("GET", "/api/v1/schedules").status == 401, "keys to be required")
    assert node.call("GET", "/jobs").status == 401
    assert node.call("GET", "/health").status == 200
    denied = node.call(
        "POST",
        "/api/v1/schedules",
        {"name": "x", "trigger": ONCE_IN_A_YEAR, "target": http(receiver.url("/x"))},
        bearer(member),
    )
    assert (denied.status, denied.json["code"]) == (422, "egress_denied")
    fast = {"kind": "cron", "expression": "* * * * * *"}
    target = http("http://192.0.2.1.nip.invalid/")
    fast_answer = node.call(
        "POST",
        "/api/v1/schedules",
        {"name": "fast", "trigger": fast, "target": target},
        bearer(member),
    )
    assert (fast_answer.status, fast_answer.json["code"]) == (422, "interval_too_short")
    run = node.call("POST", f"/api/v1/schedules/{before['id']}/run", None, bearer(admin)).json

    def ended() -> object:
        found = node.call("GET", f"/api/v1/runs/{run['id']}", None, bearer(admin)).json
        return found if found["status"] == "failed" else None

    failed = wait_until(ended, "the refused run")
    assert isinstance(failed, dict)
    assert failed["reason"] == "egress_denied"
    assert receiver.calls("/private") == []
    wait_until(lambda: "refused now that keys are required" in node.output, "the warning")
    hidden = node.call("GET", f"/api/v1/schedules/{before['id']}", None, bearer(member))
    assert hidden.status == 404


def test_private_targets_can_be_allowed(sqlite: str, start: Start, receiver: Receiver) -> None:
    node: Node = start(
        sqlite, CHIMES_ADMIN_TOKEN="t0ps3cret-token", CHIMES_ALLOW_PRIVATE_TARGETS="true"
    )
    answer = node.call(
        "POST",
        "/api/v1/schedules",
        {"name": "x", "trigger": ONCE_IN_A_YEAR, "target": http(receiver.url("/allowed"))},
        bearer("t0ps3cret-token"),
    )
    assert answer.status == 201, answer
    node.call("POST", f"/api/v1/schedules/{answer.json['id']}/run", None, bearer("t0ps3cret-token"))
    receiver.wait_for("/allowed", 1)
    assert "t0ps3cret-token" not in node.output
