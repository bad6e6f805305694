"""Selects the tests of `make test`; `make test-all` runs all tests.

`make test` leaves out:

- Tests with the marker `long`: fault classes, mutation testing, torture runs, additional
  languages, themes and widths of the pages.
- Variants of tests that run once per store: `make test` runs the tests of the stores themselves on
  one embedded store and one server, and all others on one store, also those that start processes
  (`tests.ordering.SLOW`). A hash of the test's name chooses them, so a test keeps its stores and
  every store gets a share of every folder.

`pytest --long` and `CHIMES_TEST_LONG=1 pytest` run everything. Tests named by id
(`pytest tests/x.py::test_y`) or selected by marker (`pytest -m long`) are run as selected.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from tests.ordering import is_slow

EMBEDDED = ("memory", "sqlite", "json")
SERVERS = ("postgresql", "postgres", "pg", "mariadb", "redis")
STORES = frozenset((*EMBEDDED, *SERVERS))
#: Folders whose tests run on two stores.
OF_STORES = ("tests/store/", "tests/store_contract/")


def is_everything(config: pytest.Config) -> bool:
    """Whether the command line disables this selection."""
    named = any("::" in argument for argument in config.args)
    return bool(config.getoption("--long") or config.option.markexpr or named)


def split(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of `make test` and the tests that it leaves out, both in the given order."""
    short = [item for item in items if item.get_closest_marker("long") is None]
    stores = {item.nodeid: store for item in short if (store := _store(item)) is not None}
    left_out = {item.nodeid for item in items} - {item.nodeid for item in short}
    left_out |= set(stores) - representative(stores)
    return (
        [item for item in items if item.nodeid not in left_out],
        [item for item in items if item.nodeid in left_out],
    )


def representative(stores: dict[str, str]) -> set[str]:
    """Chooses one variant of each test, or one on an embedded store and one on a server for a quick
    test of the stores.

    `stores` maps test ids to the stores that they run on.
    """
    variants: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for test_id, store in stores.items():
        on_two = test_id.startswith(OF_STORES) and not is_slow(test_id)
        variants[_without(test_id, store), on_two and store in SERVERS].append(test_id)
    return {_chosen(name, ids) for (name, _), ids in variants.items()}


def _chosen(name: str, ids: Iterable[str]) -> str:
    ordered = sorted(ids)
    return ordered[zlib.crc32(name.encode()) % len(ordered)]


def _without(test_id: str, store: str) -> str:
    """The id that all store variants of a test share: `test_x[*-case]`."""
    name, bracket, parameters = test_id.partition("[")
    return name + bracket + re.sub(rf"(?<![^-]){store}(?![^\]-])", "*", parameters, count=1)


def _store(item: pytest.Item) -> str | None:
    """Name of the store that a test is parametrised with, the last one if there are several."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    found = None
    for value in callspec.params.values():
        name = value if isinstance(value, str) else getattr(value, "name", None)
        if name in STORES and _without(item.nodeid, name) != item.nodeid:
            found = name
    return found
