"""`chimes torture` on a throw-away durable server, or in a new directory.

    python -m tests.system.torture pg|mariadb|redis|sqlite|json [options of chimes torture]

It exits with the code of the command.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers import start_mariadb, start_postgres, start_redis
from tests.servers.server import PrivateServer, wait_for_exit

SERVERS = {"pg": start_postgres, "mariadb": start_mariadb, "redis": start_redis}
FILES = ("sqlite", "json")
CHIMES = Path(sys.executable).with_name("chimes")


@contextlib.contextmanager
def target(name: str, directory: Path) -> Iterator[list[str]]:
    """The options of `chimes torture` that name the store and how it is restarted."""
    if name in FILES:
        place = directory / ("chimes.db" if name == "sqlite" else "data")
        yield ["--store", f"{name}:///{place}"]
        return
    server = SERVERS[name](durable=True)
    assert isinstance(server, PrivateServer)
    url = server.kind.url(server.port, "0") if name == "redis" else server.new_database()
    with server, supervised(server, directory / "pid") as restart:
        yield ["--store", url, "--restart-command", restart]


@contextlib.contextmanager
def supervised(server: PrivateServer, pid_file: Path) -> Iterator[str]:
    """Starts the server again whenever it ends, as a service manager does. The command ends it:
    half of the times by a crash."""
    over = threading.Event()
    pid_file.write_text(str(server.pid))

    def supervise() -> None:
        while not over.is_set():
            if wait_for_exit(server.pid, 0.1) and not over.is_set():
                server.restart()
                pid_file.write_text(str(server.pid))

    thread = threading.Thread(target=supervise)
    thread.start()
    orderly = server.kind.stop_signal.name.removeprefix("SIG")
    try:
        yield f"kill -s $(shuf -n 1 -e KILL {orderly}) $(cat {pid_file})"
    finally:
        over.set()
        thread.join()


def main(name: str, options: Sequence[str]) -> int:
    if name not in (*SERVERS, *FILES):
        raise SystemExit(f"{name} is none of {', '.join((*SERVERS, *FILES))}")
    # Ends the command and the server, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="chimes-torture-") as directory,
        target(name, Path(directory)) as store,
    ):
        return subprocess.run([CHIMES, "torture", *store, *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
