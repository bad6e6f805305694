"""The database file itself: who may read it, and on what it lies."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from chimes.wording import say

#: Shared memory and byte-range locks do not hold across hosts there.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre")
_MOUNTS = Path("/proc/self/mounts")


def prepare_file(path: Path) -> None:
    """Creates what is missing, for this user alone (S71). SQLite gives its -wal and -shm files
    the mode of the database."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def network_warning(path: Path, mounts: Path = _MOUNTS) -> str:
    """F36: empty where the file may be shared by the processes of this host."""
    kind = _file_system(path, mounts)
    if not kind.startswith(_NETWORK):
        return ""
    return say(
        "{path} is on a network file system ({kind}), on which SQLite's locks cannot be trusted;"
        " keep it on a local disk",
        path=path,
        kind=kind,
    )


def _file_system(path: Path, mounts: Path) -> str:
    """The type of the mount with the longest matching path; empty if it cannot be known."""
    resolved, best, kind = path.resolve(), -1, ""
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            fields = line.split(" ")
            if len(fields) < 3:
                continue
            # Spaces and the like are written in octal there.
            at = Path(fields[1].encode("latin-1", "replace").decode("unicode_escape"))
            if resolved.is_relative_to(at) and len(at.parts) > best:
                best, kind = len(at.parts), fields[2]
    return kind
