"""Reports the state of the process to systemd, by its protocol `sd_notify`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """Does nothing if the process was not started with `Type=notify`."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: Seconds between two signs of life; None: no watchdog.
        self.interval: float | None = None
        microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        if self._address and microseconds.isdecimal() and pid in ("", str(os.getpid())):
            self.interval = int(microseconds) / 1_000_000 / 3

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=waiting for running attempts")

    async def report_alive(self) -> None:
        """Reports that the event loop runs, until it is canceled. A process whose loop hangs is
        restarted."""
        while self.interval is not None:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.interval)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A service manager that is gone must not end the work.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), self._address)
