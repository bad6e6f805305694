"""pressure: the load of `sustained` while another transaction holds a snapshot, so that vacuum
removes no dead row."""

from __future__ import annotations

from suite.bench import Bench
from suite.report import Line

from rows.sustained import measure_load


def measure(bench: Bench) -> list[Line]:
    return measure_load(bench, "pressure", pinned=True)
