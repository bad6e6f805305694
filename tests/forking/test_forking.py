from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.forking import Forked, run_chimes
from tests.servers.server import wait_for_exit

ROOT = Path(__file__).parents[2]


def test_a_fork_has_its_own_environment_and_exit_code(tmp_path: Path) -> None:
    done = run_chimes(["--version"], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert run_chimes(["no-such-command"], cwd=tmp_path).returncode == 2


def test_forks_are_killed_with_their_client(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tests.forking import Forked\n"
        "env = {'PATH': os.environ['PATH'], 'CHIMES_STORE': 'memory://', 'CHIMES_PORT': '0'}\n"
        f"print(Forked(['serve'], env=env, cwd=Path({str(tmp_path)!r})).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        assert not wait_for_exit(pid, 0)
        client.kill()
    assert wait_for_exit(pid, 60)


def test_a_signal_ends_a_fork(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "CHIMES_STORE": "memory://", "CHIMES_PORT": "0"}
    process = Forked(["serve"], env=env, cwd=tmp_path)
    process.kill()
    assert process.wait(60) == -9
    assert process.stderr is not None
    process.stderr.close()
