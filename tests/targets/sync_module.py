"""Functions that the tests of sync tasks name as `tests.targets.sync_module:…`."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NOTHING: Any = None


def counts(source: str, collection: str, config: dict[str, Any], state: Any) -> Any:
    """Returns the number of calls as its state."""
    times = (state or {"times": 0})["times"] + 1
    print(f"{source} {collection} for the {times}. time, {config.get('greeting', 'no greeting')}")
    return {"times": times}


def talks(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    print("to out")
    print("to err", file=sys.stderr)
    logging.getLogger("some.library").warning("from a library")
    logging.getLogger("some.library").debug("not of interest")
    sys.stdout.write("no end of line")


async def later(source: str, collection: str, config: dict[str, Any], state: Any) -> Any:
    await asyncio.sleep(0)
    return ["async", state]


def raises(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    print("before")
    raise ValueError(f"no such shop, with {config.get('api_token')}")


def exits(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    print("last words")
    os._exit(3)


def leaves(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    sys.exit(config["with"])


def crashes(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    print("last words")
    ctypes.string_at(0)


def floods(source: str, collection: str, config: dict[str, Any], state: Any) -> Any:
    line = b"x" * int(config["length"]) + b"\n"
    piece = line * max(1, 65536 // len(line))
    left = int(config["bytes"])
    while left > 0:
        left -= os.write(1, piece)
    return {"flooded": True}


def odd_bytes(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    os.write(1, b"bad \xff\xfe utf-8\nnul \x00 here\n" + b"z" * 20_000 + b"\nafter\n")


def returns(source: str, collection: str, config: dict[str, Any], state: Any) -> Any:
    return {"set": {1}} if config["what"] == "set" else "x" * (1024 * 1024 + 1)


def stops_itself(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    Path(config["pid"]).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def holds_the_interpreter(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    """Holds the GIL in a C call."""
    Path(config["started"]).touch()
    re.match(r"(a+)+$", "a" * int(config["length"]) + "b")


def waits(source: str, collection: str, config: dict[str, Any], state: Any) -> Any:
    """Starts a child process and waits for the file `go`."""
    helper = subprocess.Popen(["sleep", "600"], start_new_session=bool(config.get("escapes")))
    pids = Path(config["pids"])
    draft = pids.with_suffix(".draft")
    draft.write_text(f"{os.getpid()} {helper.pid}")
    draft.rename(pids)
    if config.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waiting")
    while not Path(config["go"]).exists():
        time.sleep(0.01)
    return {"went": True}


def environment(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
    print(os.getcwd())
    print(os.environ.get("CHIMES_STORE"), os.environ.get("CHIMES_ADMIN_TOKEN"))


class Shop:
    @staticmethod
    def sync(source: str, collection: str, config: dict[str, Any], state: Any) -> None:
        print("in a shop")
