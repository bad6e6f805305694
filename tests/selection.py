"""Which tests `make test` runs, and what it leaves to `make test-all`.

`make test` takes minutes, `make test-all` takes everything. Two things make the difference:

- Tests with the marker `long`: whole classes of faults, mutation, long torture, further looks of
  the pages.
- Tests that run once for each store: `make test` runs them on one embedded store and on one server
  only. The name of the test decides which, so a test stays with its stores, and each store gets its
  share of every folder.

`pytest --long` runs everything, and so does `CHIMES_TEST_LONG=1 pytest`. A test that is named by
its id (`pytest tests/x.py::test_y`) and a selection by marker (`pytest -m long`) are taken as they
are.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

EMBEDDED = ("memory", "sqlite", "json")
SERVERS = ("postgresql", "postgres", "pg", "mariadb", "redis")
STORES = frozenset((*EMBEDDED, *SERVERS))


def is_everything(config: pytest.Config) -> bool:
    """Whether the command line asks for more than `make test` does."""
    named = any("::" in argument for argument in config.args)
    return bool(config.getoption("--long") or config.option.markexpr or named)


def split(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of `make test`, and those that it leaves out; both in the order given."""
    short = [item for item in items if item.get_closest_marker("long") is None]
    stores = {item.nodeid: store for item in short if (store := _store(item)) is not None}
    left_out = {item.nodeid for item in items} - {item.nodeid for item in short}
    left_out |= set(stores) - representative(stores)
    return (
        [item for item in items if item.nodeid not in left_out],
        [item for item in items if item.nodeid in left_out],
    )


def representative(stores: dict[str, str]) -> set[str]:
    """Of the ids of tests, each with the store that it runs on, one on an embedded store and one on
    a server for each test."""
    variants: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for test_id, store in stores.items():
        variants[_without(test_id, store), store in SERVERS].append(test_id)
    return {_chosen(name, ids) for (name, _), ids in variants.items()}


def _chosen(name: str, ids: Iterable[str]) -> str:
    ordered = sorted(ids)
    return ordered[zlib.crc32(name.encode()) % len(ordered)]


def _without(test_id: str, store: str) -> str:
    """The id that all variants of a test have in common: `test_x[*-case]`."""
    name, bracket, parameters = test_id.partition("[")
    return name + bracket + re.sub(rf"(?<![^-]){store}(?![^\]-])", "*", parameters, count=1)


def _store(item: pytest.Item) -> str | None:
    """The name of the store that a test is parametrised with; with two of them, of the last."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    found = None
    for value in callspec.params.values():
        name = value if isinstance(value, str) else getattr(value, "name", None)
        if name in STORES and _without(item.nodeid, name) != item.nodeid:
            found = name
    return found
