"""PostgreSQL servers for fault tests: a standby, and one on a small disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.kinds import HOST, Postgres, _postgres_binary, _run
from tests.servers.server import PrivateServer

#: Settings of a primary with a standby.
FOLLOWED = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}


class Standby(Postgres):
    """A standby of the server at a port."""

    def __init__(self, primary: int) -> None:
        self._primary = primary

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        where = f"host={HOST} port={self._primary} user=postgres sslmode=disable gssencmode=disable"
        options = ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", where]
        data = str(directory / "data")
        _run([*as_user, _postgres_binary("pg_basebackup"), "-D", data, *options], directory)

    async def prepare(self, port: int) -> None:
        """Nothing to do: the base backup contains everything."""


class SmallDisk(Postgres):
    """Keeps its data on a small tmpfs that `fill` fills up."""

    def __init__(self, megabytes: int) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="chimes-disk-"))
        self._base.chmod(0o755)
        self.disk = self._base / "disk"
        self.disk.mkdir()
        size = f"size={megabytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.disk)], check=True)

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.disk, self.system_user)
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        data = str(self.disk / "data")
        command = [_postgres_binary("initdb"), "-D", data, "--wal-segsize=1", *options]
        _run([*as_user, *command], directory)

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        small = {"min_wal_size": "2MB", "max_wal_size": "8MB", "shared_buffers": "16MB"}
        return super().command(self._base / "disk", port, durable, small | settings)

    def fill(self) -> None:
        with (self.disk / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 65536)
            except OSError:
                return

    def empty(self) -> None:
        (self.disk / "ballast").unlink()

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
        shutil.rmtree(self._base, ignore_errors=True)


def promote(standby: PrivateServer) -> None:
    """Promotes the standby to a primary on a new timeline."""
    assert standby.admin("SELECT pg_promote(true, 60)") == [(True,)]
