"""Converts a store of layout 1, in which each run and schedule was one hash.

The hashes are replaced in batches, each by one script, so that a conversion that was interrupted
continues where it stopped. The index sets stay as they are. No node may be running; processes of
the old layout that are connected all the same lose the store, because it gets a new id.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from uuid import uuid4

from chimes.errors import SchemaMismatch
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.planning import concurrency_key
from chimes.store.codec.records import run_from_plain
from chimes.store.codec.values import content_digest, schedule_from_plain
from chimes.store.redis.context import Context
from chimes.store.redis.rows import RunRows
from chimes.store.redis.wire import Wire, flat, items, rows, text, texts

#: Records per script.
BATCH = 200
Progress = Callable[[str, int, int], None]

#: Fields of a run that are the same in both layouts.
_RUN = (
    *("schedule", "slot", "mark", "parent", "flow", "key", "limit", "created", "planned"),
    *("source", "task", "pair", "score", "rest", "status", "blocked", "attempt", "fence"),
    *("holder", "started", "stop", "available", "claimed", "first", "finished", "rev"),
)
#: Fields of a schedule that people write, and those of its cursor.
_WRITTEN = (
    *("body", "name", "namespace", "owner", "created", "updated", "enabled", "snoozed"),
    "deleted",
)
_CURSOR = (
    *("next_slot", "next_run", "last_slot", "last_enqueued", "fired", "purged", "last_run"),
    *("last_status", "last_error", "last_success", "rev", "summary_rev", "key", "own", "depends"),
)


async def convert(ctx: Context, progress: Progress) -> None:
    """Raises SchemaMismatch while nodes are running."""
    hit("migrate.step")
    _now, (live, store_id, schedules, runs) = await ctx.write("begin_conversion", uuid4().hex)
    if rows(live):
        raise SchemaMismatch(
            _(
                "nodes are running on this store: {nodes}. Stop all nodes, wait until their leases"
                " have expired, and repeat the command",
                nodes=", ".join(texts(live)),
            )
        )
    ctx.store_id = text(store_id)
    await _convert_all(ctx, "schedules", "schedules:ever", int(text(schedules)), progress)
    await _convert_all(ctx, "runs", "runs", int(text(runs)), progress)
    hit("migrate.step")
    await ctx.write("end_conversion", "held:")


async def _convert_all(ctx: Context, kind: str, index: str, total: int, progress: Progress) -> None:
    for start in range(0, total, BATCH):
        _now, (answer,) = await ctx.write("old_records", kind, index, str(start), str(BATCH))
        definitions: dict[str, str] = {}
        converted: list[Wire] = []
        for record_id, fields in map(items, rows(answer)):
            words = texts(fields)
            old = dict(zip(words[::2], words[1::2], strict=True))
            if kind == "runs":
                converted.append([record_id, _run(ctx.run_rows, old, definitions)])
            else:
                converted.append([record_id, *_schedule(old)])
        hit("migrate.step")
        await ctx.write("convert", kind, converted, definitions=definitions)
        progress(kind, min(start + BATCH, total), total)
    if not total:
        progress(kind, 0, 0)


def _run(run_rows: RunRows, old: Mapping[str, str], definitions: dict[str, str]) -> list[str]:
    new = {name: old.get(name, "") for name in _RUN}
    for name, usual in (("limit", "1"), ("attempt", "0"), ("fence", "0"), ("mark", new["slot"])):
        if new[name] == usual:
            new[name] = ""
    if new["status"] == "queued":
        new["member"] = old.get("member", "")
    try:
        plain = json.loads(old["body"])
        run = run_from_plain(plain | {"status": "queued", "available_at": plain["created_at"]})
        words = run_rows.new_fields(run, definitions)
        encoded = dict(zip(words[::2], words[1::2], strict=True))
        new |= {name: encoded.get(name, "") for name in ("def", "args", "body")}
    except Exception:
        # It stays unreadable, with all that is known of it.
        body = old.get("body") or "unreadable"
        new["def"] = content_digest(body)
        definitions[new["def"]] = body
    return flat((name, value) for name, value in new.items() if value)


def _schedule(old: Mapping[str, str]) -> list[list[str]]:
    written = {name: old.get(name, "") for name in _WRITTEN}
    cursor = {name: old.get(name, "") for name in _CURSOR}
    cursor["revision"] = content_digest(written["body"])
    cursor["live"] = "deleted" if written["deleted"] else written["enabled"]
    # Earlier versions stored the key without the owner. A corrupt schedule keeps it as it is.
    with contextlib.suppress(Exception):
        cursor["key"] = concurrency_key(schedule_from_plain(json.loads(written["body"])))
    return [flat(written.items()), flat(cursor.items())]
