"""Atomic file operations, generations of jobs.json, and the directory lock.

Every file has mode 0600. A file is replaced by writing `<name>.tmp` and renaming it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from chimes.errors import StoreLocked
from chimes.i18n import _, joined
from chimes.store.jsonfile.document import BadFile, Contents, decode

WINDOWS = sys.platform == "win32"
TEMPORARY = ".tmp"
_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)


def make_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def read(path: Path) -> bytes | None:
    """None: there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def size_of(directory: Path) -> int:
    """Total size of the files in the directory."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def prepare(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write the content to the temporary file of `path`, synced unless `sync` is False."""
    temporary = path.with_name(path.name + TEMPORARY)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, _FLAGS | os.O_EXCL, 0o600)
    try:
        _write_all(descriptor, content, temporary)
        if sync:
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        remove(temporary)
        raise
    os.close(descriptor)
    return temporary


def _write_all(descriptor: int, content: bytes, path: Path) -> None:
    """A full disk may accept a partial write without an error."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    size = os.fstat(descriptor).st_size
    if size != len(content):
        raise OSError(
            _(
                "{file} has {size} bytes instead of {wanted}",
                file=path.name,
                size=size,
                wanted=len(content),
            )
        )


def rename_into_place(temporary: Path, path: Path) -> None:
    try:
        os.replace(temporary, path)
    except OSError:
        if not WINDOWS:
            remove(temporary)
            raise
        # Windows: another process has the old file open. The previous generation covers the moment
        # without a file.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.rename(temporary, path)


def replace(path: Path, content: bytes, *, sync: bool = True) -> None:
    rename_into_place(prepare(path, content, sync=sync), path)


def overwrite(path: Path, content: bytes) -> None:
    """In place and unsynced, for content that may be torn; always the same length."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def keep_as(path: Path, previous: Path) -> None:
    """Link the file under a second name, atomically and without copying."""
    temporary = previous.with_name(previous.name + TEMPORARY)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        if os.path.samefile(path, previous):
            return  # both names already refer to the same file
    except FileNotFoundError:
        pass
    try:
        os.link(path, temporary)
    except FileNotFoundError:
        return
    except OSError:  # a file system without hard links
        replace(previous, path.read_bytes(), sync=False)
        return
    rename_into_place(temporary, previous)


def append(path: Path, content: bytes) -> None:
    """Append and sync, or restore the previous length."""
    descriptor = os.open(path, _FLAGS | os.O_APPEND, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def cut(path: Path, length: int) -> None:
    os.truncate(path, length)


def sync_directory(directory: Path) -> None:
    """Makes a rename durable; not available on Windows."""
    if WINDOWS:
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def protect(path: Path) -> None:
    """A file made by another program may be world-readable."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o600)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def free_name(path: Path, name: str) -> Path:
    """`<name>.json`, or the first of `<name>.1.json`, … that is free."""
    number = 0
    while True:
        free = path.with_name(f"{name}.{number}.json" if number else f"{name}.json")
        if not free.exists() and not free.is_symlink():
            return free
        number += 1


def move_aside(path: Path, name: str) -> Path:
    aside = free_name(path, name)
    os.rename(path, aside)
    protect(aside)
    sync_directory(path.parent)
    return aside


# --- generations of jobs.json
#
# jobs.json          the current generation
# jobs.prev.json     the previous one, or a copy of the current one after a clean stop
# jobs.json.sum      length and SHA-256 of the last two, to detect manual edits
# jobs.bad.json      a file that could not be loaded (jobs.bad.1.json, …), never changed again
# jobs.edited.json   a manual edit made while the process ran, which is ignored

_log = logging.getLogger("chimes.store")


class Generations:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.current = directory / "jobs.json"
        self.previous = directory / "jobs.prev.json"
        self._sums = directory / "jobs.json.sum"
        self._last_sum = ""
        self._written: tuple[int, int, int] | None = None

    def clean(self) -> None:
        """Remove temporary files of a killed process."""
        for pattern in ("jobs*", "runs-*.jsonl", "audit-*.jsonl", "messages-*.jsonl"):
            for stray in self._directory.glob(pattern + TEMPORARY):
                remove(stray)

    def load(self, now: datetime) -> tuple[Contents, str]:
        """The newest valid generation, and why it is not the current one, if so."""
        content = read(self.current)
        if content is not None:
            protect(self.current)
            try:
                contents = decode(content, now)
            except BadFile as bad:
                aside = move_aside(self.current, "jobs.bad")
                reason = _(
                    "jobs.json could not be loaded ({why}) and was kept as {file}",
                    why=bad.args[0],
                    file=aside.name,
                )
            else:
                self._tell_hand_edit(content)
                return contents, ""
        elif self.previous.exists():
            reason = _("jobs.json is missing")
        else:
            return Contents(), ""
        contents, found = self._load_previous(now)
        reason = joined("; ", (reason, found))
        _log.error("%s", reason)
        return contents, reason

    def _load_previous(self, now: datetime) -> tuple[Contents, str]:
        content = read(self.previous)
        if content is None:
            return Contents(), _("started empty")
        try:
            return decode(content, now), _("the previous generation was loaded")
        except BadFile as bad:
            aside = move_aside(self.previous, "jobs.bad")
            return Contents(), _(
                "so was the previous one ({why}; {file}); started empty",
                why=bad.args[0],
                file=aside.name,
            )

    def _tell_hand_edit(self, content: bytes) -> None:
        recorded = (read(self._sums) or b"").decode("ascii", "replace")
        self._last_sum = _sum(content)
        if recorded and self._last_sum not in recorded:
            _log.warning("jobs.json was edited since it was last written; using the edited file")

    def write(self, content: bytes) -> None:
        """Atomic. Raises OSError; the current generation is then intact."""
        temporary = prepare(self.current, content)
        try:
            this_sum = _sum(content)
            overwrite(self._sums, f"{self._last_sum:>85}\n{this_sum}\n".encode())
            self._keep_outgoing()
            rename_into_place(temporary, self.current)
            self._written = _identity(self.current)
        except BaseException:
            remove(temporary)
            raise
        sync_directory(self._directory)
        self._last_sum = this_sum

    def _keep_outgoing(self) -> None:
        if self._written in (None, _identity(self.current)):
            keep_as(self.current, self.previous)
            return
        with contextlib.suppress(FileNotFoundError):
            kept = free_name(self.current, "jobs.edited")
            keep_as(self.current, kept)
            _log.warning(
                "jobs.json was changed while Chimes was running, which counts only at its start; "
                "the change was kept as %s",
                kept.name,
            )

    def finish(self) -> None:
        """After the last write: copy the current generation, so that later damage to jobs.json can
        be undone."""
        content = read(self.current)
        if content is not None and _sum(content) == self._last_sum:
            replace(self.previous, content)
            sync_directory(self._directory)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _sum(content: bytes) -> str:
    return f"{len(content):>20} {hashlib.sha256(content).hexdigest()}"


# --- one process per directory: an advisory lock that ends with its process

if sys.platform == "win32":
    import msvcrt

    def _wait(descriptor: int, *, shared: bool) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _take(descriptor: int) -> None:
        # Far behind the pid, because a locked range cannot be read by others.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _wait(descriptor: int, *, shared: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DirectoryLock:
    """The file is never removed: a process waiting on a removed file would lock nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        self._descriptor: int | None = None

    def take(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take(descriptor)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        except (BlockingIOError, PermissionError):
            os.lseek(descriptor, 0, os.SEEK_SET)
            pid = os.read(descriptor, 20).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLocked(
                _(
                    "{directory} is in use by process {pid}",
                    directory=self._path.parent,
                    pid=pid or _("(unknown)"),
                ),
                pid=pid,
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


# --- a second lock, by which other processes read all files of one generation


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Waits until no process copies the files."""
    with _locked(directory / ".snapshot", os.O_RDWR | os.O_CREAT, shared=False):
        yield


@contextlib.contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Waits until the current write of another process is complete."""
    with _locked(directory / ".snapshot", os.O_RDWR | os.O_CREAT, shared=True):
        yield


@contextlib.contextmanager
def _locked(path: Path, flags: int, *, shared: bool) -> Iterator[None]:
    descriptor = os.open(path, flags, 0o600)
    try:
        _wait(descriptor, shared=shared)
        try:
            yield
        finally:
            _unlock(descriptor)
    finally:
        # Nothing was written, and the lock is released.
        with contextlib.suppress(OSError):
            os.close(descriptor)
