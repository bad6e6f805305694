"""jobs.json and what lies around it: which generation is loaded, and how the next one is written.

jobs.json       the current generation
jobs.prev.json  the one before it, or a copy of the current one after a clean stop
jobs.json.sum   length and SHA-256 of the last two; only to tell a hand edit
jobs.bad.json   what could not be loaded (jobs.bad.1.json, …), never touched again (C27)
jobs.edited.json  a hand edit made while the process ran: it came too late to count
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from datetime import datetime
from pathlib import Path

from chimes.store.jsonfile import disk
from chimes.store.jsonfile.document import BadFile, Contents, decode
from chimes.wording import joined, say

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
        """What a killed process left half done (F34)."""
        for pattern in ("jobs*", "runs-*.jsonl", "audit-*.jsonl", "messages-*.jsonl"):
            for stray in self._directory.glob(pattern + disk.TEMPORARY):
                disk.remove(stray)

    def load(self, now: datetime) -> tuple[Contents, str]:
        """What the newest good generation holds, and why it is not the current one, if so."""
        content = disk.read(self.current)
        if content is not None:
            disk.protect(self.current)
            try:
                contents = decode(content, now)
            except BadFile as bad:
                aside = disk.set_aside(self.current, "jobs.bad")
                reason = say(
                    "jobs.json could not be loaded ({why}) and was kept as {file}",
                    why=bad.args[0],
                    file=aside.name,
                )
            else:
                self._tell_hand_edit(content)
                return contents, ""
        elif self.previous.exists():
            reason = say("jobs.json is missing")
        else:
            return Contents(), ""
        contents, found = self._load_previous(now)
        reason = joined("; ", (reason, found))
        _log.error("%s", reason)
        return contents, reason

    def _load_previous(self, now: datetime) -> tuple[Contents, str]:
        content = disk.read(self.previous)
        if content is None:
            return Contents(), say("started empty")
        try:
            return decode(content, now), say("the previous generation was loaded")
        except BadFile as bad:
            aside = disk.set_aside(self.previous, "jobs.bad")
            return Contents(), say(
                "so was the previous one ({why}; {file}); started empty",
                why=bad.args[0],
                file=aside.name,
            )

    def _tell_hand_edit(self, content: bytes) -> None:
        recorded = (disk.read(self._sums) or b"").decode("ascii", "replace")
        self._last_sum = _sum(content)
        if recorded and self._last_sum not in recorded:
            _log.warning("jobs.json was edited by hand since it was last written; it counts")

    def write(self, content: bytes) -> None:
        """All of it or nothing (R3.27). Raises OSError; the current generation is then intact."""
        temporary = disk.prepare(self.current, content)
        try:
            this_sum = _sum(content)
            disk.overwrite(self._sums, f"{self._last_sum:>85}\n{this_sum}\n".encode())
            self._keep_outgoing()
            disk.put_in_place(temporary, self.current)
            self._written = _identity(self.current)
        except BaseException:
            disk.remove(temporary)
            raise
        disk.sync_directory(self._directory)
        self._last_sum = this_sum

    def _keep_outgoing(self) -> None:
        if self._written in (None, _identity(self.current)):
            disk.keep_as(self.current, self.previous)
            return
        with contextlib.suppress(FileNotFoundError):
            kept = disk.free_name(self.current, "jobs.edited")
            disk.keep_as(self.current, kept)
            _log.warning(
                "jobs.json was changed while Chimes was running, which counts only at its start; "
                "the change was kept as %s",
                kept.name,
            )

    def finish(self) -> None:
        """After the last write: a copy of its own of what is current, so that whatever happens to
        jobs.json while nobody runs can be undone."""
        content = disk.read(self.current)
        if content is not None and _sum(content) == self._last_sum:
            disk.replace(self.previous, content)
            disk.sync_directory(self._directory)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _sum(content: bytes) -> str:
    return f"{len(content):>20} {hashlib.sha256(content).hexdigest()}"
