"""The Lua of this store, put together from its files: one script that writes, one that cannot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

#: A script without this flag is refused as a whole while the server is out of memory (F45); one
#: with it also works there, and on a replica.
_READING = "#!lua flags=no-writes\n"
_WRITING = "#!lua\n"
_READER = ("00_begin", "10_runs", "20_schedules", "50_reading", "99_end")
_WRITER = ("00_begin", "10_runs", "20_schedules", "30_commit", "40_queue", "99_end")
_FOUND = ("05_founding",)


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str


def _script(first: str, names: tuple[str, ...]) -> Script:
    folder = files("chimes.store.redis") / "lua"
    text = first + "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


READING = _script(_READING, _READER)
WRITING = _script(_WRITING, _WRITER)
FOUNDING = _script(_WRITING, _FOUND)
