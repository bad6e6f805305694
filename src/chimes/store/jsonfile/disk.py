"""Files that are whole or not there: the only module of this store that writes to the disk.

Every file is 0600 (S71). A file is replaced by writing `<name>.tmp` beside it and renaming (R3.27).
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from chimes.wording import say

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
    """Bytes of all files in it. One that goes meanwhile counts nothing."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def prepare(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """The content in the temporary file of `path`, on the disk unless `sync` is False."""
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
    """A full disk may take a part of what is written without an error (F35)."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    size = os.fstat(descriptor).st_size
    if size != len(content):
        raise OSError(
            say(
                "{file} has {size} bytes instead of {wanted}",
                file=path.name,
                size=size,
                wanted=len(content),
            )
        )


def put_in_place(temporary: Path, path: Path) -> None:
    try:
        os.replace(temporary, path)
    except OSError:
        if not WINDOWS:
            remove(temporary)
            raise
        # R3.45: somebody has the old file open there. The previous generation covers the moment
        # in which there is none.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.rename(temporary, path)


def replace(path: Path, content: bytes, *, sync: bool = True) -> None:
    put_in_place(prepare(path, content, sync=sync), path)


def overwrite(path: Path, content: bytes) -> None:
    """In place and unsynced, for what may be torn; always of the same length."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def keep_as(path: Path, previous: Path) -> None:
    """Give the file its second name, atomically and without writing its content again."""
    temporary = previous.with_name(previous.name + TEMPORARY)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        if os.path.samefile(path, previous):
            return  # renaming one name of a file to another of its names does nothing
    except FileNotFoundError:
        pass
    try:
        os.link(path, temporary)
    except FileNotFoundError:
        return
    except OSError:  # a file system without hard links
        replace(previous, path.read_bytes(), sync=False)
        return
    put_in_place(temporary, previous)


def append(path: Path, content: bytes) -> None:
    """All of it on the disk, or the file as long as before."""
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
    """Makes a rename last; Windows has no such call."""
    if WINDOWS:
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def protect(path: Path) -> None:
    """A file that somebody else made may be readable for all."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o600)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def free_name(path: Path, name: str) -> Path:
    """`<name>.json`, or the first of `<name>.1.json`, … that is free (C27)."""
    number = 0
    while True:
        free = path.with_name(f"{name}.{number}.json" if number else f"{name}.json")
        if not free.exists() and not free.is_symlink():
            return free
        number += 1


def set_aside(path: Path, name: str) -> Path:
    aside = free_name(path, name)
    os.rename(path, aside)
    protect(aside)
    sync_directory(path.parent)
    return aside
