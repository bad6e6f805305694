"""Keeps one shared database server until the session ends: `keeper KIND MAIN_PID RECORD`."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path

from tests.servers.kinds import KINDS
from tests.servers.server import start


def main(kind: str, main_pid: int, record: Path) -> None:
    session = os.pidfd_open(main_pid)
    stopped, stop = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop, b"."))
    with start(KINDS[kind]) as server:
        known = {"port": server.port, "pid": server.pid, "keeper": os.getpid()}
        new = record.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.rename(record)
        ended, _, _ = select.select([session, stopped], [], [])
    if session in ended:
        shutil.rmtree(record.parent, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
