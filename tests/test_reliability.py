"""docs/reliability.md agrees with the kept results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    place = ROOT / "tools" / "torture_results.py"
    spec = importlib.util.spec_from_file_location("torture_results", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_is_the_sum_of_the_kept_rows(results: ModuleType) -> None:
    document = results.DOCUMENT.read_text()
    assert results.with_table(document, results.read_rows()) == document


def test_kept_rows_are_distinct_and_have_no_violation(results: ModuleType) -> None:
    rows = results.read_rows()
    assert len({(row["kind"], row.get("seeds"), row.get("seed")) for row in rows}) == len(rows)
    for row in rows:
        assert row["violations"] == {}, row
        assert (row["lost"], row["doubled"], row["results_changed"]) == (0, 0, 0)
        assert row["result"] != "violation"
        assert sum(row["faults_by_class"].values()) == row["faults"]


def test_a_report_of_a_planted_bug_is_rejected(results: ModuleType) -> None:
    with pytest.raises(SystemExit, match="planted bug"):
        results.row_of({"planted_bug": "no_fence"})
