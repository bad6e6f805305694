"""The Lua scripts of the store, assembled from files: writing ones, and a read-only one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from chimes.model.checkpoint import run_checkpoint_names, schedule_checkpoint_names
from chimes.model.ids import RunId, ScheduleId

#: A script without this flag is rejected while the server is out of memory; one with it also works
#: then, and on a replica.
_READING = "#!lua flags=no-writes\n"
_WRITING = "#!lua\n"
#: For writes that must succeed even when memory is full: leases, completions of runs and
#: deliveries, and rate limits, which every request needs.
_URGENT = "#!lua flags=allow-oom\n"
_BASE = ("00_begin", "10_runs", "15_shared")
_MESSAGES = ("16_outbox", "17_inbox")
_END = ("99_end",)
#: Each call defines all functions of its script again, so hot commands have small scripts.
_WRITERS = {
    ("16_outbox", "40_queue"): ("add", "add_unless_active", "claim", "start", "append_logs"),
    (*_MESSAGES, "20_schedules", "30_commit", "45_firing"): ("commit", "fire", "take_due"),
    (*_MESSAGES, "47_messages"): ("claim_deliveries", "prune_messages", "forget_inbox"),
    (*_MESSAGES, "20_schedules", "46_records"): (
        *("drop_logs", "keep_state", "prune", "forget_runs", "join", "beat", "epoch", "load"),
        *("remember", "answer", "forget_request", "purge_schedules", "drop_definitions", "reseal"),
        "clear",
    ),
    ("20_schedules", "60_migration"): (
        *("begin_conversion", "old_records", "convert", "end_conversion"),
    ),
}
#: What the files name but Python defines, as Lua expressions of the variable `id`.
_MACROS = {
    "RUN_CHECKPOINTS(id)": run_checkpoint_names(RunId("@")),
    "SCHEDULE_CHECKPOINTS(id)": schedule_checkpoint_names(ScheduleId("@")),
}


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str


def _script(first: str, names: tuple[str, ...]) -> Script:
    folder = files("chimes.store.redis") / "lua"
    text = first + "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    for macro, checkpoints in _MACROS.items():
        text = text.replace(macro, ", ".join(map(_lua_name, checkpoints)))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _lua_name(name: str) -> str:
    before, _id, after = name.partition("@")
    return f"'{before}' .. id .. '{after}'"


READING = _script(
    _READING, (*_BASE, *_MESSAGES, "20_schedules", "50_reading", "51_insights", *_END)
)
URGENT = {
    "beat": _script(_URGENT, (*_BASE, *_MESSAGES, "20_schedules", "46_records", *_END)),
    "commit": _script(_URGENT, (*_BASE, *_MESSAGES, "20_schedules", "30_commit", *_END)),
    "take_tokens": _script(_URGENT, ("00_begin", "48_tokens", *_END)),
}
FOUNDING = _script(_WRITING, ("05_founding",))
#: By command.
WRITING = {
    verb: script
    for files_, verbs in _WRITERS.items()
    for script in [_script(_WRITING, (*_BASE, *files_, *_END))]
    for verb in verbs
}
