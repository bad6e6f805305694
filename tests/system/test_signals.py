"""Signal handling that a command inherits from its shell."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.system.conftest import Start
from tests.system.node import CHIMES, KEPT
from tests.system.receiver import Receiver
from tests.system.test_callbacks import ONCE_IN_A_YEAR, http


def test_sigint_ignored_by_the_shell_stays_ignored(
    sqlite: str, start: Start, receiver: Receiver
) -> None:
    """Shells start background jobs with SIGINT ignored."""
    node = start(sqlite)
    made = node.create(
        name="slow",
        trigger=ONCE_IN_A_YEAR,
        target=http(receiver.slow("/slow", 3)),
        policy={"timeout": "60s"},
    )
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [CHIMES, "run", made["id"], "--wait"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        env=environment | {"CHIMES_URL": f"http://127.0.0.1:{node.port}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        receiver.wait_for("/slow", 1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error.decode()
    assert node.runs(made["id"])[0]["status"] == "succeeded"
