"""docs/reference.md lists every setting, field, status, reason, role and exit code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chimes.cli import command as failure
from chimes.config import Settings
from chimes.config.settings import FIELDS
from chimes.model.access import Role
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap
from chimes.model.run import Reason, RunStatus
from chimes.services.schedules.templates import TEMPLATES
from chimes.store.memory.state import State
from chimes.store.sql.tables import metadata
from chimes.targets.base import run_facts
from chimes.targets.flow.advance import FailReason, SkipReason
from chimes.triggers import trigger_from_dict
from chimes.web.api.responses import NodeOut
from chimes.web.api.schemas import FlowTargetIn, HttpTargetIn, PolicyIn, ScheduleIn, TaskTargetIn
from tests.builders import a_run

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "reference.md").read_text()
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def section(title: str) -> str:
    found = re.search(rf"^(#+) {title}\n(.*?)(?=^#{{1,3}} |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def first_cells(title: str) -> set[str]:
    """Names in the first column of a section's tables."""
    rows = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_setting_is_listed_with_its_aliases() -> None:
    assert first_cells("Settings") == {field.name for field in fields(Settings)}
    for field in FIELDS.values():
        row = next(
            line
            for line in section("Settings").splitlines()
            if line.startswith(f"| `{field.name}`")
        )
        assert re.findall(r"`([^`]+)`", row.split("|")[2]) == list(field.variable_aliases)


def test_every_field_of_schedule_policy_and_targets_is_listed() -> None:
    assert first_cells("Schedule") == set(ScheduleIn.model_fields)
    assert first_cells("Policy") == set(PolicyIn.model_fields)
    assert first_cells("HTTP callbacks") == set(HttpTargetIn.model_fields)
    own = {*TaskTargetIn.model_fields, *FlowTargetIn.model_fields}
    assert first_cells("Tasks and flows") == own
    for choice in (Misfire, Overlap, Backoff, OnLost):
        assert all(f"`{word}`" in section("Policy") for word in choice)


def test_every_status_and_reason_of_runs_is_listed() -> None:
    listed = first_cells("Runs")
    assert {status.value for status in RunStatus} <= listed
    assert {word for name, word in vars(Reason).items() if name.isupper()} <= listed


def test_every_reason_of_tasks_and_flows_is_listed() -> None:
    listed = first_cells("Runs")
    for reasons in (SkipReason, FailReason):
        assert {word for name, word in vars(reasons).items() if name.isupper()} <= listed


def test_every_node_field_and_template_is_listed() -> None:
    assert all(f"`{name}`" in section("Nodes") for name in NodeOut.model_fields)
    rows = [line.split("|")[1:3] for line in section("Templates").splitlines() if "`" in line]
    listed = {(name.strip(), spec.strip(" `")) for name, spec in (row for row in rows if row[1:])}
    assert {(each.name, each.cron_spec) for each in TEMPLATES} <= listed


def test_every_placeholder_is_listed() -> None:
    names = run_facts(a_run(), NOON)
    of_run = {f"{{{{{name}}}}}" for name in names}
    assert first_cells("Placeholders") == {*of_run, "{{secret.NAME}}"}


def test_every_role_and_exit_code_is_listed() -> None:
    assert all(f" {role} |" in section("Roles") for role in Role)
    codes = {
        value for name, value in vars(failure).items() if name.isupper() and isinstance(value, int)
    }
    listed = re.findall(r"^\| ([0-9]+) \|", section("Exit codes"), re.MULTILINE)
    assert {int(code) for code in listed} == codes


@pytest.mark.parametrize("sample", re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL))
def test_trigger_samples_are_valid(sample: str) -> None:
    given = json.loads(sample)
    if "exclude" in given:
        given = {"kind": "every", "every": "1h"} | given
    assert trigger_from_dict(given).next_after(NOON) is not None


def cells(title: str, column: int) -> set[str]:
    rows = [line.split("|")[column] for line in section(title).splitlines() if line[:3] == "| `"]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_table_has_a_bound() -> None:
    rows = [line.split("|") for line in section("Retention").splitlines() if line[:3] == "| `"]
    assert [row[1].strip(" `") for row in rows if len(row[4].strip()) < 5] == []
    assert cells("Retention", 1) == set(metadata.tables)


def test_every_family_of_redis_keys_has_a_bound() -> None:
    scripts = (ROOT / "src/chimes/store/redis/lua").glob("*.lua")
    text = "\n".join(path.read_text() for path in scripts)
    names = re.findall(r"(?:C \.\. |\bat\(|\bby\()'([a-z_]+)", text)
    tasks = {name[:10] for name in re.findall(r"P \.\. '([a-z_]+)", text)} - {"chimes"}
    # Hashes whose names the scripts get as arguments.
    passed = {"keys", "states"}
    assert cells("Retention", 2) == {*names, *tasks, *passed}


def test_every_part_of_the_memory_store_has_a_bound() -> None:
    assert cells("Retention", 3) == {field.name for field in fields(State)}
