"""Checks of slots and acknowledged changes: every slot has exactly one record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.system.torture.oracle import SECOND, text_of
from tests.system.torture.records import Case, Run
from tests.system.torture.timeline import Expected, expectations, known_versions

#: Kind of violation and description.
Found = tuple[str, str]
#: Tolerance for rounding.
EARLY = SECOND // 20
BY_SCHEDULE = ("schedule",)


def slot_violations(case: Case) -> Iterator[Found]:
    expected = expectations(case)
    rows: dict[str, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in case.runs:
        if run.slot is not None:
            rows[run.schedule_id][run.slot].append(run)
    for schedule_id, wanted in expected.items():
        yield from _of_schedule(schedule_id, wanted, rows[schedule_id])
    for schedule_id in rows.keys() - expected.keys():
        yield "history_mismatch", f"{schedule_id} has runs, and no row of its own"


def _of_schedule(schedule_id: str, wanted: Expected, rows: dict[int, list[Run]]) -> Iterator[Found]:
    missed = [run for runs in rows.values() for run in runs if run.status == "missed"]
    for slot, runs in rows.items():
        name = f"{schedule_id} {text_of(slot)}"
        if len(runs) > 1:
            yield "slot_doubled", f"{name} has runs {sorted(run.id for run in runs)}"
        if not wanted.allows(slot):
            yield "slot_invented", f"{name} is no slot of the version that was current then"
        for run in runs:
            if run.status in ("missed", "skipped") and not run.reason:
                yield "slot_lost", f"{name} is {run.status} without a reason"
    for slot in wanted.must:
        covering = [each for each in missed if _covers(each, slot)]
        records = len(rows.get(slot, ())) + sum(each.slot != slot for each in covering)
        if not records:
            yield "slot_lost", f"{schedule_id} {text_of(slot)} has no record"
        elif records > 1 and covering:
            yield "slot_doubled", f"{schedule_id} {text_of(slot)} has a run and is missed"
    for each in missed:
        inside = sum(_covers(each, slot) for slot in wanted.must)
        if inside != each.missed_count and not wanted.doubtful:
            yield (
                "history_mismatch",
                f"{each.id} stands for {each.missed_count} missed slots, there are {inside}",
            )


def _covers(missed: Run, slot: int) -> bool:
    assert missed.slot is not None
    return missed.slot <= slot <= (missed.missed_until or missed.slot)


def sink_violations(case: Case) -> Iterator[Found]:
    """A slot has one run id at the receiver, and no call is early."""
    runs = {run.id: run for run in case.runs}
    ids: dict[tuple[str, int], set[str]] = defaultdict(set)
    for effect in case.effects:
        run = runs.get(effect.run_id)
        if run is not None and run.origin not in BY_SCHEDULE:
            continue
        ids[effect.schedule_id, effect.slot].add(effect.run_id)
        if effect.at < effect.slot - EARLY:
            early = (effect.slot - effect.at) / SECOND
            yield "early", f"run {effect.run_id} was called {early:.3f} s before its slot"
        if run is not None and run.slot != effect.slot:
            yield "history_mismatch", f"run {effect.run_id} was called for another slot"
    for (schedule_id, slot), found in ids.items():
        if len(found) > 1:
            yield "slot_doubled", f"{schedule_id} {text_of(slot)} was called as {sorted(found)}"


def acknowledgement_violations(case: Case) -> Iterator[Found]:
    """Every confirmed change is stored once, as requested."""
    for version in case.versions:
        if version.asked is not None and version.asked != version.spec:
            yield (
                "ack_lost",
                f"{version.schedule_id} version {version.number} is not what was asked for",
            )
    for schedule_id, by_number in known_versions(case).items():
        confirmed = [v for each in by_number.values() for v in each if v.acknowledged]
        stored = case.schedules.get(schedule_id)
        if stored is None:
            if confirmed:
                yield "ack_lost", f"schedule {schedule_id} was confirmed and is gone"
            continue
        newest = max((version.number for version in confirmed), default=0)
        if newest > stored.version.number:
            yield (
                "ack_lost",
                f"{schedule_id} was confirmed as version {newest}, is {stored.version.number}",
            )
        for number, versions in by_number.items():
            if len(versions) > 1:
                yield "ack_lost", f"{schedule_id} version {number} has {len(versions)} contents"
    made = Counter(run.schedule_id for run in case.runs if run.origin == "manual")
    asked = Counter(trigger.schedule_id for trigger in case.triggers)
    for schedule_id, count in made.items():
        if count > asked[schedule_id]:
            yield (
                "slot_doubled",
                f"{schedule_id} was triggered {asked[schedule_id]} times and has {count} runs",
            )
    ids = {run.id for run in case.runs}
    for trigger in case.triggers:
        if trigger.run_id and trigger.run_id not in ids:
            yield "ack_lost", f"run {trigger.run_id} was confirmed and is gone"


def unmatched(case: Case) -> Iterator[Found]:
    """Matches succeeded slots with calls by time, ignoring run ids, to detect wrong ids. Sorted
    greedy matching is exact because all windows have the same width."""
    calls: dict[str, list[int]] = defaultdict(list)
    for effect in case.effects:
        calls[effect.path.rpartition("/")[2]].append(effect.at)
    served: dict[str, list[int]] = defaultdict(list)
    width = 0
    for run in case.runs:
        if run.origin in BY_SCHEDULE and run.status == "succeeded" and run.slot is not None:
            served[run.schedule_id].append(run.slot)
            width = max(width, (run.finished or run.slot) - run.slot + SECOND)
    for schedule_id, slots in served.items():
        times = iter(sorted(calls[schedule_id]))
        for slot in sorted(slots):
            call = next((at for at in times if at >= slot - EARLY), None)
            if call is None or call > slot + width:
                yield "hollow_success", f"{schedule_id} {text_of(slot)}: no call is left for it"
                break
