"""The order in which the workers of a session run its tests.

Each worker gets one piece of the list (`--dist worksteal`), and a worker that is done takes tests
from the end of another piece. So slow tests are spread evenly and stand in the first three quarters
of a piece: no worker is left with a slow test at the end, and only quick tests move between
workers. Between the slow tests, which wait most of the time, a worker runs quick ones, so that the
cores are never idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: Tests that start processes and wait for them. Not files whose tests share an expensive fixture:
#: each worker would set it up.
SLOW = (
    "tests/ha/",
    "tests/system/",
    "tests/sdk/",
    "tests/clients/",
    "tests/browser/",
    "tests/engine/test_crashes.py",
    "tests/engine/test_deliver_crashes.py",
    "tests/engine/test_monitors.py",
    "tests/engine/test_flow_crashes.py",
    "tests/engine/test_event_triggers.py",
    "tests/engine/test_prefetch.py",
    "tests/engine/test_sync_retries.py",
    "tests/runtime/test_lazy_imports.py",
    "tests/integrations/",
    "tests/store_contract/test_machine.py",
    "tests/store/test_jsonfile_kill.py",
    "tests/store/test_pairs.py",
    "tests/test_deployment.py",
    "tests/test_package.py",
    "tests/web/test_events_api.py",
    "tests/web/test_store_outage.py",
    "tests/targets/test_brokers.py",
    "tests/targets/test_command.py",
    "tests/targets/test_python_process.py",
    "tests/targets/test_sync_command.py",
    "tests/targets/test_sync_processes.py",
)


def is_slow(test_id: str) -> bool:
    return test_id.startswith(SLOW)


def distribute(
    slow: Sequence[T], quick: Sequence[T], workers: int, file: Callable[[T], object]
) -> list[T]:
    """Concatenates one piece per worker, each with its share of the slow tests.

    `file` returns the file of a test. No slow test separates quick tests of one file, which may
    share a fixture.
    """
    left: list[T] = [*quick]
    found: list[T] = []
    total = len(slow) + len(quick)
    for number in range(workers):
        mine = slow[number::workers]
        size = (total - len(found)) // (workers - number)
        more = max(0, size - len(mine))
        found += _mix(mine, left[:more], file)
        del left[:more]
    return found + left


def _mix(slow: Sequence[T], quick: Sequence[T], file: Callable[[T], object]) -> list[T]:
    """Puts slow tests before the files of quick tests, in the first three quarters of them."""
    starts = [
        place
        for place, test in enumerate(quick[: len(quick) * 3 // 4 + 1])
        if place == 0 or file(test) != file(quick[place - 1])
    ]
    found: list[T] = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(quick)
        share = slice(
            len(slow) * number // len(starts),
            len(slow) * (number + 1) // len(starts),
        )
        found += [*slow[share], *quick[start:end]]
    return found or [*slow]
