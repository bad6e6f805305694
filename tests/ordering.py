"""In which order the workers of a session get its tests.

Each worker gets one piece of the list (`--dist worksteal`), and who is done takes from the end of
another's. So the slow ones come first, dealt out evenly: no worker is left with one of them when
the others have nothing more to do, and what is taken away are small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: Where tests start processes and wait for them; without fixtures that several tests share.
SLOW = (
    "tests/system/",
    "tests/sdk/",
    "tests/browser/",
    "tests/engine/test_crashes.py",
    "tests/engine/test_flow_crashes.py",
    "tests/store_contract/test_machine.py",
    "tests/store/test_pairs.py",
    "tests/web/test_store_outage.py",
    "tests/targets/test_python_task_process.py",
)


def is_slow(test_id: str) -> bool:
    return test_id.startswith(SLOW)


def dealt_out(slow: Sequence[T], quick: Sequence[T], workers: int) -> list[T]:
    """As many pieces, one after another, as there are workers."""
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
