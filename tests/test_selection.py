from __future__ import annotations

from collections import Counter

from tests.selection import EMBEDDED, representative

STORES = ("memory", "sqlite", "json", "postgresql", "mariadb", "redis")


def variants(name: str, *cases: str) -> dict[str, str]:
    """Ids of a test of the stores, which runs on every store."""
    return {
        f"tests/store/test_a.py::{name}[{'-'.join((store, *case))}]": store
        for store in STORES
        for case in ([(each,) for each in cases] or [()])
    }


def test_each_test_of_the_stores_runs_on_an_embedded_store_and_on_a_server() -> None:
    for number in range(20):
        stores = variants(f"test_{number}")
        chosen = [stores[each] in EMBEDDED for each in representative(stores)]
        assert sorted(chosen) == [False, True]


def test_each_case_of_a_test_of_the_stores_runs_on_two_stores() -> None:
    stores = variants("test_x", "json", "one", "two")
    cases = Counter(each.rpartition("-")[2] for each in representative(stores))
    assert cases == {"json]": 2, "one]": 2, "two]": 2}


def test_other_and_slow_tests_run_on_one_store() -> None:
    for file in ("tests/engine/test_a.py", "tests/system/test_a.py", "tests/store/test_pairs.py"):
        stores = {f"{file}::test_x[{store}]": store for store in STORES}
        assert len(representative(stores)) == 1, file


def test_tests_are_spread_evenly_over_the_stores() -> None:
    stores = {test: store for n in range(300) for test, store in variants(f"test_{n}").items()}
    share = Counter(stores[each] for each in representative(stores))
    assert set(share) == set(STORES)
    assert min(share.values()) > 300 / 3 * 0.7


def test_selection_does_not_depend_on_order_or_on_other_tests() -> None:
    stores = variants("test_x") | variants("test_y")
    backwards = dict(reversed(stores.items()))
    assert representative(backwards) == representative(stores)
    assert representative(variants("test_x")) < representative(stores)


def test_test_for_a_single_store_is_always_selected() -> None:
    only = {"tests/test_a.py::test_x[redis]": "redis"}
    assert representative(only) == set(only)
