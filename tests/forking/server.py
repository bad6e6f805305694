"""The fork server of a session: `server.py MAIN_PID RECORD`. See `chimes.torture.processes`."""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import sys
from importlib import import_module
from pathlib import Path

from chimes.torture.processes import Forks, become, execute, import_everything
from chimes.web.dashboard.site import prepare_pages

ROOT = Path(__file__).parents[2]


def main(main_pid: int, record: Path) -> None:
    import_everything()
    # Compiling the templates costs more than a browser test spends on a page.
    prepare_pages()
    gc.freeze()
    path = record.with_suffix(".socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        new = record.with_suffix(".new")
        new.write_text(json.dumps({"keeper": os.getpid(), "socket": str(path)}))
        new.rename(record)
        command = Forks(listener=listener, until=os.pidfd_open(main_pid)).run()
    if command is None:
        shutil.rmtree(record.parent, ignore_errors=True)
        return
    become(command)
    if not command.module.startswith("chimes."):
        sys.path.append(str(ROOT))
    execute(import_module(command.module).main)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
