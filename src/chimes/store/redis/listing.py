"""Lists of runs and schedules: scan the best sorted set in order, in batches, and filter here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chimes.clock import to_micros
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId, canonical_namespace
from chimes.model.listing import Page, Position, RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import OWN_KEY_PREFIX, Run
from chimes.model.schedule import Schedule
from chimes.store.redis.context import Context
from chimes.store.redis.wire import Wire, flag, micros, rows, texts
from chimes.store.selection import (
    group_by_zone,
    matches_run,
    matches_schedule,
    run_value,
    schedule_value,
    select_runs,
    select_schedules,
)

T = TypeVar("T", Run, Schedule, Delivery, InboxItem)

Decode = Callable[[Sequence[Wire]], Awaitable[list[T]]]

#: Minimum and maximum batch size.
LEAST, MOST = 50, 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """A scan of a range of a sorted set, in one direction."""

    facet: str
    kind: str
    descending: bool = False
    lowest: str = ""
    highest: str = ""
    #: All scores are equal; members are ordered by bytes.
    lexical: bool = False


# --- runs


async def list_runs(ctx: Context, query: RunQuery) -> Page[Run]:
    if query.ids is not None:
        stored = await ctx.read_runs(query.ids)
        return select_runs([run for run, _ in stored.values()], query)
    facets = await _run_facets(ctx, query)
    scans = [_run_scan(facet, query) for facet in facets]
    if any(scan is None for scan in scans):
        # The set has another order: read all of it, which is small.
        every = [_all_of(facet) for facet in facets]
        runs = [run for scan in every async for run in scan_records(ctx, scan, ctx.decode_runs)]
        return select_runs(runs, query)
    found_runs: list[Run] = []
    for scan in scans:
        assert scan is not None
        found_runs += await matching_records(
            ctx,
            scan,
            ctx.decode_runs,
            query.after,
            query.limit,
            lambda run: matches_run(run, query),
        )
    return select_runs(found_runs, query)


async def _run_facets(ctx: Context, query: RunQuery) -> list[str]:
    """Sets that together contain every match, with the fewest records."""
    groups: list[list[str]] = []
    if query.parent_id is not None:
        groups.append([f"runs:parent:{query.parent_id}"])
    if query.holder is not None:
        groups.append([f"claims:{query.holder}"])
    if query.concurrency_key is not None:
        prefix, _, name = query.concurrency_key.partition(":")
        # Runs with the own key of their schedule are in its set.
        own = [f"runs:schedule:{name}"] if f"{prefix}:" == OWN_KEY_PREFIX else []
        groups.append([f"runs:key:{query.concurrency_key}", *own])
    if query.requirement is not None and query.requirement.startswith("sync:"):
        groups.append([f"runs:needs:{query.requirement}"])
    if query.schedule_id is not None:
        groups.append([f"runs:schedule:{query.schedule_id}"])
    if query.statuses:
        groups.append([f"runs:status:{status}" for status in dict.fromkeys(query.statuses)])
    return await smallest_group(ctx, groups or [["runs"]])


async def smallest_group(ctx: Context, groups: Sequence[list[str]]) -> list[str]:
    """The group of sets with the fewest records."""
    if len(groups) == 1:
        return groups[0]
    _, (answer,) = await ctx.read("sizes", [facet for group in groups for facet in group])
    sizes = iter(int(each) for each in texts(answer))
    return min(groups, key=lambda group: sum(next(sizes) for _ in group))


# --- schedules


async def list_schedules(ctx: Context, query: ScheduleQuery) -> Page[Schedule]:
    if query.ids is not None:
        _, (answer,) = await ctx.read("schedules", list(dict.fromkeys(query.ids)), "")
        return select_schedules(await ctx.decode_schedules([row[0] for row in rows(answer)]), query)
    found: list[Schedule] = []
    for scan in _schedule_scans(query, await _schedule_facet(ctx, query)):
        left = None if query.limit is None else query.limit - len(found)
        if left is not None and left < 0:
            break
        after = query.after
        if after is not None and _is_idle(scan) != (after[0] is None):
            if _is_idle(scan):
                after = None
            else:
                continue
        found += await matching_records(
            ctx,
            scan,
            ctx.decode_schedules,
            after if _keeps_order(scan, query) else None,
            left if _keeps_order(scan, query) else None,
            lambda schedule: matches_schedule(schedule, query),
        )
    return select_schedules(found, query)


async def zones_in_use(ctx: Context, owner: Owner | None) -> dict[str, tuple[ScheduleId, ...]]:
    query = ScheduleQuery(owner=owner, enabled=True)
    scan = Scan(facet=_schedule_facets(query)[0], kind="schedule")
    # Keep only the names: there may be very many.
    return group_by_zone(
        [
            (each.trigger.zone, each.id)
            async for each in scan_records(ctx, scan, ctx.decode_schedules)
            if each.next_run_at is not None and matches_schedule(each, query)
        ]
    )


async def count_schedules(ctx: Context, query: ScheduleQuery) -> int:
    every = replace(query, after=None, limit=None, sort=ScheduleSort.CREATED_AT)
    facets = _schedule_facets(query)
    in_facet = query.namespace is None or not _is_default(query.namespace)
    neither = replace(every, owner=None, namespace=None if in_facet else query.namespace)
    if len(facets) == 1 and neither == ScheduleQuery(limit=None, descending=query.descending):
        _, (answer,) = await ctx.read("sizes", facets)
        return int(texts(answer)[0])
    return len((await list_schedules(ctx, every)).items)


async def _schedule_facet(ctx: Context, query: ScheduleQuery) -> str:
    """The smallest set, ordered by creation, that contains every match."""
    facets = _schedule_facets(query)
    if len(facets) == 1 or not _by_creation(query):
        return facets[0]
    _, (answer,) = await ctx.read("sizes", facets)
    return min(zip(map(int, texts(answer)), facets, strict=True))[1]


# --- scanning


async def matching_records(
    ctx: Context,
    scan: Scan,
    decode: Decode[T],
    after: Position | None,
    limit: int | None,
    matches: Callable[[T], bool],
) -> list[T]:
    """The first matches, one more than the limit, to detect another page."""
    found: list[T] = []
    chunk = MOST if limit is None else min(MOST, max(LEAST, limit + 1))
    async for row in scan_records(ctx, scan, decode, after, chunk):
        if matches(row):
            found.append(row)
            if limit is not None and len(found) > limit:
                break
    return found


async def scan_records(
    ctx: Context,
    scan: Scan,
    decode: Decode[T],
    after: Position | None = None,
    chunk: int = MOST,
) -> AsyncIterator[T]:
    while True:
        score, member = _place(scan, after)
        _, (answer, more) = await ctx.read(
            "page",
            scan.facet,
            flag(scan.descending),
            scan.lowest,
            scan.highest,
            score,
            member,
            str(chunk),
            scan.kind,
        )
        found = await decode([record for record in rows(answer) if record])
        for each in found:
            yield each
        if more != "1" or not found:
            return
        after = _position(scan, found[-1])
        chunk = MOST


def _place(scan: Scan, after: Position | None) -> tuple[str, str]:
    """Score and member of the last record of the previous page."""
    if after is None:
        return ("lex" if scan.lexical else "", "")
    value, row_id = after
    if scan.kind == "name":
        return "lex", f"{value}\0{row_id}"
    return ("lex" if scan.lexical else str(value), row_id)


def _position(scan: Scan, row: Run | Schedule | Delivery | InboxItem) -> Position:
    if isinstance(row, Delivery | InboxItem):
        return to_micros(row.created_at), row.id
    if isinstance(row, Run):
        planned = scan.facet.startswith("runs:planned")
        return run_value(row, RunSort.PLANNED_AT if planned else RunSort.CREATED_AT), row.id
    if scan.kind == "name":
        return row.name, row.id
    sort = {
        "schedules:updated": ScheduleSort.UPDATED_AT,
        "schedules:next": ScheduleSort.NEXT_RUN_AT,
    }.get(scan.facet, ScheduleSort.CREATED_AT)
    return schedule_value(row, sort), row.id


def _all_of(facet: str) -> Scan:
    return Scan(facet=facet, kind="run")


def _run_scan(facet: str, query: RunQuery) -> Scan | None:
    """None: the set has another order than the query."""
    if query.sort is RunSort.PLANNED_AT:
        if facet == "runs":
            facet = "runs:planned"
        elif facet.startswith("runs:schedule:"):
            facet = facet.replace("runs:schedule:", "runs:planned:schedule:", 1)
        else:
            return None
        lowest, highest = micros(query.since), f"({micros(query.until)}" if query.until else ""
    else:
        lowest, highest = micros(query.created_since), micros(query.created_until)
    return Scan(
        facet=facet, kind="run", descending=query.descending, lowest=lowest, highest=highest
    )


def _is_default(namespace: str) -> bool:
    return canonical_namespace(namespace) == DEFAULT_NAMESPACE


def _schedule_facets(query: ScheduleQuery) -> list[str]:
    """Sets ordered by creation, each of which contains every match."""
    found: list[str] = []
    if query.owner is not None:
        found.append(f"schedules:owner:{query.owner}")
    # Schedules of the default namespace may be stored under other names.
    if query.namespace is not None and not _is_default(query.namespace):
        found.append(f"schedules:namespace:{query.namespace}")
    return found or ["schedules"]


def _by_creation(query: ScheduleQuery) -> bool:
    return query.name is None and query.sort is ScheduleSort.CREATED_AT


def _schedule_scans(query: ScheduleQuery, facet: str) -> list[Scan]:
    """`facet`: the set to use for the order by creation."""
    down = query.descending
    if query.name is not None:
        return [
            Scan(
                facet="schedules:name",
                kind="name",
                descending=down,
                lowest=f"[{query.name}\0",
                highest=f"({query.name}\x01",
                lexical=True,
            )
        ]
    if query.sort is ScheduleSort.NAME:
        return [Scan(facet="schedules:name", kind="name", descending=down, lexical=True)]
    if query.sort is ScheduleSort.NEXT_RUN_AT:
        planned = Scan(
            facet="schedules:next",
            kind="schedule",
            descending=down,
            highest=micros(query.due_by),
        )
        if query.due_by is not None:
            return [planned]
        return [
            planned,
            Scan(facet="schedules:idle", kind="schedule", descending=down, lexical=True),
        ]
    if query.sort is ScheduleSort.UPDATED_AT:
        return [Scan(facet="schedules:updated", kind="schedule", descending=down)]
    return [Scan(facet=facet, kind="schedule", descending=down)]


def _is_idle(scan: Scan) -> bool:
    return scan.facet == "schedules:idle"


def _keeps_order(scan: Scan, query: ScheduleQuery) -> bool:
    """Whether the scan has the order of the query; else all records are sorted here."""
    return scan.kind != "name" or query.sort is ScheduleSort.NAME
