"""Expected slots of a schedule from its known versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.system.torture.oracle import SECOND
from tests.system.torture.records import Case, Version

#: Slots this close to the end may have no row yet.
LAST_MOMENTS = 5 * SECOND


@dataclass
class Expected:
    """Expected slots of one schedule. A slot in `doubtful` may have a record or not, because a lost
    answer leaves the current version unknown."""

    must: set[int] = field(default_factory=set)
    doubtful: list[tuple[int, int]] = field(default_factory=list)

    def allows(self, slot: int) -> bool:
        return slot in self.must or any(after < slot <= until for after, until in self.doubtful)


def known_versions(case: Case) -> dict[str, dict[int, list[Version]]]:
    """Versions by schedule and number; two values for one number contradict each other."""
    found: dict[str, dict[int, list[Version]]] = defaultdict(lambda: defaultdict(list))
    stored = [schedule.version for schedule in case.schedules.values()]
    for version in (*case.versions, *stored):
        same = found[version.schedule_id][version.number]
        if not any(_facts(version) == _facts(other) for other in same):
            same.append(version)
    return found


def expectations(case: Case) -> dict[str, Expected]:
    """Only for stored schedules: a missing schedule is another violation."""
    known = known_versions(case)
    return {
        each: _expected((versions[0] for _, versions in sorted(known[each].items())), case)
        for each in case.schedules
    }


def _expected(versions: Iterable[Version], case: Case) -> Expected:
    """A slot belongs to the version that was current at its time."""
    ordered = list(versions)
    found = Expected()
    first, last = ordered[0], ordered[-1]
    if first.number > 1:
        found.doubtful.append((0, first.at))
    for before, after in pairwise(ordered):
        if after.number > before.number + 1:
            found.doubtful.append((before.at, after.at))
        elif before.enabled and not before.deleted:
            found.must.update(before.spec.slots(before.at, after.at))
    if last.enabled and not last.deleted:
        end = case.stopped - LAST_MOMENTS
        found.must.update(last.spec.slots(last.at, end))
        found.doubtful.append((max(end, last.at), case.stopped + 3600 * SECOND))
    return found


def _facts(version: Version) -> tuple[object, ...]:
    return version.at, version.enabled, version.spec, version.deleted
