"""The order in which the workers of a session run its tests.

Each worker gets one piece of the list (`--dist worksteal`), and a worker that is done takes tests
from the end of another piece. So slow tests come first and are spread evenly: no worker is left
with a slow test at the end, and only quick tests move between workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: Tests that start processes and wait for them. Not files whose tests share an expensive fixture:
#: each worker would set it up.
SLOW = (
    "tests/system/",
    "tests/sdk/",
    "tests/browser/",
    "tests/engine/test_crashes.py",
    "tests/engine/test_deliver_crashes.py",
    "tests/engine/test_flow_crashes.py",
    "tests/store_contract/test_machine.py",
    "tests/store/test_pairs.py",
    "tests/web/test_store_outage.py",
    "tests/targets/test_python_process.py",
    "tests/targets/test_sync_command.py",
    "tests/targets/test_sync_processes.py",
)


def is_slow(test_id: str) -> bool:
    return test_id.startswith(SLOW)


def distribute(slow: Sequence[T], quick: Sequence[T], workers: int) -> list[T]:
    """Concatenates one piece per worker; each piece starts with its share of the slow tests."""
    left: list[T] = [*quick]
    found: list[T] = []
    total = len(slow) + len(quick)
    for number in range(workers):
        mine = slow[number::workers]
        size = (total - len(found)) // (workers - number)
        more = max(0, size - len(mine))
        found += [*mine, *left[:more]]
        del left[:more]
    return found + left
