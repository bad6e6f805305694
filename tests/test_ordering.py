from __future__ import annotations

from pathlib import Path

from tests.ordering import SLOW, distribute
from tests.tables import each_row


@each_row("workers", [1, 2, 3, 4, 7])
@each_row(("slow", "quick"), [(0, 0), (1, 0), (0, 5), (5, 40), (40, 5), (13, 100), (60, 700)])
def test_each_piece_has_its_share_of_slow_tests_and_ends_with_quick_ones(
    slow: int, quick: int, workers: int
) -> None:
    slow_tests = [f"s{n}" for n in range(slow)]
    quick_tests = [f"q{n // 10}.{n}" for n in range(quick)]
    items = distribute(slow_tests, quick_tests, workers, _file)
    assert sorted(items) == sorted([*slow_tests, *quick_tests])
    assert [each for each in items if each[0] == "q"] == quick_tests
    left = items
    for number in range(workers):
        size = len(left) // (workers - number)
        piece, left = left[:size], left[size:]
        if quick >= slow and piece:
            kinds = [each[0] for each in piece]
            assert abs(kinds.count("s") - slow / workers) < 1
            last = len(piece) - len("".join(kinds).rpartition("s")[2])
            assert len(piece) - last >= (kinds.count("q") - 1) // 4


@each_row("slow", [2, 30])
def test_slow_tests_stand_between_files_of_quick_tests(slow: int) -> None:
    quick = [f"q{n // 10}.{n}" for n in range(100)]
    items = distribute([f"s{n}" for n in range(slow)], quick, 1, _file)
    for before, test, after in zip(items, items[1:], items[2:], strict=False):
        if test[0] == "s" and before[0] == after[0] == "q":
            assert _file(before) != _file(after)
    runs = "".join(each[0] for each in items).split("q")
    assert max(map(len, runs)) <= slow // 8 + 1, "spread evenly"
    assert items[0][0] == "s" or slow < 8


def _file(test: str) -> str:
    return test.partition(".")[0]


def test_paths_of_slow_tests_exist() -> None:
    root = Path(__file__).parents[1]
    assert [each for each in SLOW if not (root / each).exists()] == []
