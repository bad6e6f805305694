from __future__ import annotations

from pathlib import Path

from tests.ordering import SLOW, distribute
from tests.tables import each_row


@each_row("workers", [1, 2, 3, 4, 7])
@each_row(("slow", "quick"), [(0, 0), (1, 0), (0, 5), (5, 40), (40, 5), (13, 100)])
def test_each_worker_starts_with_its_share_of_slow_tests(
    slow: int, quick: int, workers: int
) -> None:
    items = distribute([f"s{n}" for n in range(slow)], [f"q{n}" for n in range(quick)], workers)
    assert sorted(items) == sorted([f"s{n}" for n in range(slow)] + [f"q{n}" for n in range(quick)])
    left = items
    for number in range(workers):
        size = len(left) // (workers - number)
        piece, left = left[:size], left[size:]
        kinds = [each[0] for each in piece]
        if quick >= slow:
            assert kinds == sorted(kinds, reverse=True), "slow tests first"
            assert abs(kinds.count("s") - slow / workers) < 1


def test_paths_of_slow_tests_exist() -> None:
    root = Path(__file__).parents[1]
    assert [each for each in SLOW if not (root / each).exists()] == []
