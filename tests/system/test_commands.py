"""Commands on real nodes: allowed by a setting, live output, `kill -9`, workers with labels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.test_callbacks import ONCE_IN_A_YEAR
from tests.system.test_crashes import SHORT_LEASE, STEADY
from tests.targets.task_calls import alive
from tests.targets.test_command import pids_of

ALLOWED = {"CHIMES_ALLOW_COMMANDS": "true"}


def start_run(node: Node, **given: Any) -> dict[str, Any]:
    sent = {"policy": {"timeout": "10m"}, **given}
    run: dict[str, Any] = node.call("POST", "/api/v1/runs", sent).json
    return run


def test_killed_node_takes_its_commands_along_and_another_node_repeats_the_run(
    sqlite: str, start: Start, tmp_path: Path
) -> None:
    first = start(sqlite, **SHORT_LEASE, **ALLOWED)
    pids, script = tmp_path / "pids", tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n"
        '[ "$CHIMES_ATTEMPT" = 2 ] && { echo "second $CHIMES_SCHEDULE"; exit 0; }\n'
        f"trap '' TERM; echo $$ >> {pids}\n"
        f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &)\n"
        "echo live; while :; do sleep 1; done\n"
    )
    script.chmod(0o755)
    made = first.create(
        name="nightly",
        trigger=ONCE_IN_A_YEAR,
        target={"kind": "command", "command": [str(script)]},
        policy={"timeout": "10m"},
    )
    run = first.call("POST", f"/api/v1/schedules/{made['id']}/run").json
    wait_until(lambda: len(pids_of(pids)) == 2, "both processes run")

    def lines(node: Node) -> list[str]:
        log = node.get(f"/api/v1/runs/{run['id']}/logs")["items"]
        return [each["message"] for each in log]

    wait_until(lambda: "live" in lines(first), "output is shown while the command runs")
    first.kill()
    wait_until(lambda: not any(alive(pid) for pid in pids_of(pids)), "no process is left")
    other = start(sqlite, **STEADY)
    second = start(sqlite, **STEADY, **ALLOWED)
    (ended,) = second.ended(made["id"])
    assert (ended["id"], ended["status"], ended["attempt"]) == (run["id"], "succeeded", 2)
    assert ended["result"]["exit_code"] == 0
    assert lines(second)[-1] == "second nightly"
    # A node without the setting accepts commands while another node executes them.
    assert other.call("POST", "/api/v1/runs", {"target": made["target"]}).status == 202


def test_workers_take_commands_by_their_labels(sqlite: str, start: Start) -> None:
    plain = start(sqlite, **STEADY)
    refused = plain.call(
        "POST", "/api/v1/runs", {"target": {"kind": "command", "command": ["true"]}}
    )
    assert (refused.status, refused.json["code"]) == (422, "commands_not_allowed")
    zones = {
        zone: start(sqlite, **STEADY, **ALLOWED, CHIMES_LABELS=f"zone={zone},os=linux")
        for zone in ("eu", "us")
    }
    holders = {}
    for zone in zones:
        command = shlex.split("printenv CHIMES_RUN_ID")
        target = {"kind": "command", "command": command, "requires": {"zone": zone}}
        run = start_run(plain, target=target)
        path = f"/api/v1/runs/{run['id']}"

        def ended(path: str = path) -> dict[str, Any] | None:
            found: dict[str, Any] = plain.get(path)
            return found if found["finished_at"] else None

        done = wait_until(ended, "the command ends")
        assert done["result"]["output"] == run["id"]
        holders[zone] = done["attempts"][0]["node"]
    nodes = {each["id"]: each["offers"] for each in plain.get("/api/v1/nodes")["items"]}
    for zone, holder in holders.items():
        assert f"command:zone={zone}" in nodes[holder]
