"""`chimes store import-kweaver`: imports into the same and another database, and invalid tables."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chimes.cli.store.import_kweaver import ImportPlan, plan_import, schedule_from_row, zone_matches
from chimes.errors import InvalidInput
from chimes.model.access import SYSTEM_OWNER
from chimes.model.policy import Policy
from chimes.model.target import ActionTarget
from chimes.store.sql.database.kweaver_table import ActionRow, ActionTable
from chimes.web.compat.kweaver.translate import schedule_out
from tests.forking import run_chimes
from tests.store.mariadb_rig import opened, sql

TABLE = (Path(__file__).parents[2] / "deploy" / "kweaver" / "action_schedule.sql").read_text()
NOW = datetime(2026, 11, 16, 10, 30, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def at(hour: int, day: int = 17) -> int:
    return ms(datetime(2026, 11, day, hour, tzinfo=UTC))


def a_row(**given: Any) -> ActionRow:
    usual: dict[str, Any] = {
        "id": "cq1",
        "name": "nightly «คืน»",
        "kn_id": "kn-1",
        "branch": "main",
        "action_type_id": "at-1",
        "cron_expression": "0 3 * * *",
        "identities": '[{"id": "o-1"}]',
        "params": '{"level": 3}',
        "status": "active",
        "last_run_time": at(3, 16),
        "next_run_time": at(3),
        "lock_holder": "",
        "lock_time": 0,
        "creator": "u-1",
        "creator_type": "user",
        "updater": "u-2",
        "updater_type": "app",
        "create_time": at(1, 1),
        "update_time": at(2, 2),
    }
    return ActionRow(**(usual | given))


def imported_schedule(**given: Any) -> Any:
    return schedule_from_row(
        a_row(**given), timezone="UTC", owner=SYSTEM_OWNER, policy=Policy(), now=NOW
    )


async def fill(url: str, *rows: str) -> None:
    columns = "f_id, f_name, f_kn_id, f_action_type_id, f_cron_expression, f_status,"
    columns += " f_next_run_time, f_unique_identities"
    await sql(url, TABLE, *(f"INSERT INTO t_action_schedule ({columns}) VALUES {r}" for r in rows))


def row(id: str, cron: str = "0 3 * * *", status: str = "active", next: int = 0) -> str:
    return f"""('{id}', 'n-{id}', 'kn-1', 'at-1', '{cron}', '{status}', {next}, '[{{"id": 1}}]')"""


def chimes(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_chimes(["store", "import-kweaver", *words], cwd=home)


def test_row_is_imported_completely() -> None:
    schedule, on_grid = imported_schedule()
    assert on_grid
    assert schedule.target == ActionTarget(
        action_type_id="at-1",
        kn_id="kn-1",
        branch="main",
        identities=({"id": "o-1"},),
        params={"level": 3},
        account_id="u-1",
        account_type="user",
    )
    assert (schedule.id, schedule.namespace, schedule.name) == ("cq1", "kweaver", "nightly «คืน»")
    assert (ms(schedule.next_run_at), ms(schedule.last_run_at)) == (at(3), at(3, 16))
    assert (ms(schedule.created_at), ms(schedule.updated_at)) == (at(1, 1), at(2, 2))
    assert (schedule.created_by, schedule.updated_by) == ("u-1", "u-2")
    shown = schedule_out(schedule)
    assert shown["updater"] == {"id": "u-2", "type": "app"}
    assert shown["cron_expression"] == "0 3 * * *"


def test_imported_cron_expression_is_shown_unchanged() -> None:
    schedule, _ = imported_schedule(cron_expression="0 9 ? * MON", next_run_time=0)
    assert schedule_out(schedule)["cron_expression"] == "0 9 ? * MON"


def test_time_in_the_past_stays_due() -> None:
    """The misfire policy decides about it."""
    schedule, _ = imported_schedule(next_run_time=at(3, 16))
    assert ms(schedule.next_slot) == at(3, 16)


def test_time_that_does_not_match_the_cron_is_recomputed() -> None:
    schedule, on_grid = imported_schedule(next_run_time=at(5))
    assert not on_grid
    assert ms(schedule.next_run_at) == at(3)


def test_inactive_row_has_no_next_time() -> None:
    schedule, _ = imported_schedule(status="inactive", next_run_time=0)
    assert (schedule.enabled, schedule.next_run_at) == (False, None)


async def test_import_into_another_store(mariadb_url: str, tmp_path: Path) -> None:
    await fill(mariadb_url, row("a", next=at(3)), row("b", status="inactive"), row("c"))
    store = f"sqlite:///{tmp_path}/chimes.db"
    tried = chimes(mariadb_url, "--store", store, "--dry-run", "--json", home=tmp_path)
    assert (tried.returncode, json.loads(tried.stdout)["new"]) == (0, 3), tried.stderr
    assert not (tmp_path / "chimes.db").exists()
    done = chimes(mariadb_url, "--store", store, "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["rows"], json.loads(done.stdout)["new"]) == (3, 3)
    again = chimes(mariadb_url, "--store", store, "--json", home=tmp_path)
    assert json.loads(again.stdout)["new"] == 0
    assert await sql(mariadb_url, "SELECT COUNT(*) FROM t_action_schedule") == [(3,)]


async def test_take_over_replaces_the_table_with_the_view(mariadb_url: str, tmp_path: Path) -> None:
    await fill(mariadb_url, row("a", next=at(3)), row("b", status="inactive"))
    async with opened(mariadb_url):
        """Creating a store does not change an existing table of that name."""
    assert await sql(mariadb_url, "SELECT COUNT(*) FROM t_action_schedule") == [(2,)]
    tried = chimes(mariadb_url, "--store", mariadb_url, "--take-over", "--dry-run", home=tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert await sql(mariadb_url, "SELECT COUNT(*) FROM t_action_schedule") == [(2,)]
    elsewhere = chimes(
        mariadb_url, "--store", f"sqlite:///{tmp_path}/c.db", "--take-over", home=tmp_path
    )
    assert (elsewhere.returncode, "database of the store" in elsewhere.stderr) == (2, True)
    done = chimes(mariadb_url, "--store", mariadb_url, "--take-over", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["table_is_now"] == "t_action_schedule_imported"
    shown = await sql(
        mariadb_url,
        "SELECT f_id, f_kn_id, f_action_type_id, f_cron_expression, f_unique_identities, f_status,"
        " f_next_run_time FROM t_action_schedule ORDER BY f_id",
    )
    assert shown == [
        ("a", "kn-1", "at-1", "0 3 * * *", '[{"id": 1}]', "active", at(3)),
        ("b", "kn-1", "at-1", "0 3 * * *", '[{"id": 1}]', "inactive", 0),
    ]
    kept = await sql(mariadb_url, "SELECT COUNT(*) FROM t_action_schedule_imported")
    assert kept == [(2,)]
    over = chimes(mariadb_url, "--store", mariadb_url, home=tmp_path)
    assert (over.returncode, "is the view" in over.stderr) == (2, True)


async def test_invalid_row_stops_the_import(mariadb_url: str, tmp_path: Path) -> None:
    await fill(mariadb_url, row("good", next=at(3)), row("feb", cron="0 0 31 2 *"))
    store = f"sqlite:///{tmp_path}/chimes.db"
    refused = chimes(mariadb_url, "--store", store, home=tmp_path)
    assert refused.returncode == 6
    assert "feb" in refused.stderr
    assert not (tmp_path / "chimes.db").exists(), "nothing was written"
    rest = chimes(mariadb_url, "--store", store, "--skip-unreadable", "--json", home=tmp_path)
    assert rest.returncode == 0, rest.stderr
    report = json.loads(rest.stdout)
    assert (report["new"], [each["id"] for each in report["refused"]]) == (1, ["feb"])


async def test_locked_row_stops_the_import(mariadb_url: str, tmp_path: Path) -> None:
    await fill(mariadb_url, row("a", next=at(3)))
    now = ms(datetime.now(UTC))
    await sql(mariadb_url, f"UPDATE t_action_schedule SET f_lock_holder='pod', f_lock_time={now}")
    store = f"sqlite:///{tmp_path}/chimes.db"
    held = chimes(mariadb_url, "--store", store, home=tmp_path)
    assert (held.returncode, "stop the old workers" in held.stderr) == (5, True)
    old = now - ms(datetime(1970, 1, 1, 0, 6, tzinfo=UTC))
    await sql(mariadb_url, f"UPDATE t_action_schedule SET f_lock_time = {old}")
    assert chimes(mariadb_url, "--store", store, home=tmp_path).returncode == 0


async def test_times_of_another_zone_stop_the_import(mariadb_url: str, tmp_path: Path) -> None:
    shanghai = at(3) - ms(datetime(1970, 1, 1, 8, tzinfo=UTC))
    await fill(mariadb_url, *(row(f"s{n}", next=shanghai) for n in range(3)))
    store = f"sqlite:///{tmp_path}/chimes.db"
    wrong = chimes(mariadb_url, "--store", store, home=tmp_path)
    assert (wrong.returncode, "--timezone" in wrong.stderr) == (6, True)
    anew = chimes(
        mariadb_url, "--store", f"{store}2", "--new-times", "--dry-run", "--json", home=tmp_path
    )
    assert len(json.loads(anew.stdout)["times_computed_anew"]) == 3
    right = chimes(
        mariadb_url, "--store", store, "--timezone", "Asia/Shanghai", "--json", home=tmp_path
    )
    assert json.loads(right.stdout)["new"] == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"identities": "{"}, "invalid JSON"),
        ({"identities": '{"a": 1}'}, "array of objects"),
        ({"params": "[]"}, "not a JSON object"),
        ({"status": "odd"}, "expected active or inactive"),
        ({"cron_expression": "@hourly"}, "5 fields"),
        ({"next_run_time": 10**18}, "f_next_run_time"),
        ({"next_run_time": 2**63 - 1}, "f_next_run_time"),
        ({"last_run_time": 10**15}, "f_last_run_time"),
        ({"create_time": 253_402_300_799_999}, "f_create_time"),
        ({"update_time": 10**18}, "f_update_time"),
    ],
)
def test_invalid_rows_have_a_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        imported_schedule(**given)


def test_out_of_range_time_rejects_only_its_row() -> None:
    locked = a_row(id="locked", lock_holder="pod-1", lock_time=10**18)
    rows = (a_row(id="odd", next_run_time=10**18), a_row(id="good"), locked)
    found = plan_import(
        ActionTable(rows=rows, read_at=ms(NOW)),
        timezone="UTC",
        owner=SYSTEM_OWNER,
        policy=Policy(),
    )
    assert [each.id for each in found.rejected] == ["odd"]
    assert [each.id for each in found.schedules] == ["good", "locked"]
    assert found.locked == ("locked",)


async def test_missing_or_invalid_table_name_is_an_error(mariadb_url: str, tmp_path: Path) -> None:
    gone = chimes(mariadb_url, "--store", f"sqlite:///{tmp_path}/c.db", home=tmp_path)
    assert (gone.returncode, "there is no table" in gone.stderr) == (3, True)
    odd = chimes(mariadb_url, "--table", "a b; DROP", home=tmp_path)
    assert odd.returncode == 2


async def test_time_without_a_whole_minute_does_not_count_as_another_zone(
    mariadb_url: str, tmp_path: Path
) -> None:
    """KWeaver falls back to "in an hour" if it cannot compute a time."""
    await fill(mariadb_url, row("a", next=at(3) + 1234567))
    done = chimes(mariadb_url, "--store", f"sqlite:///{tmp_path}/c.db", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["times_computed_anew"] == ["a"]


def test_few_mismatches_do_not_count_as_another_zone() -> None:

    schedules = tuple(imported_schedule(id=f"s{n}")[0] for n in range(3))
    odd = ImportPlan(
        schedules=schedules, rejected=(), locked=(), off_schedule=("s1",), other_zone=("s1",)
    )
    assert zone_matches(odd)
