"""`chimes import`: preview, consent, and what is created."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chimes.cli.imports import SHOWN_FIRES
from tests.cli.conftest import Cli

CRONTAB = """MAILTO=ops@example.com
LEVEL=full
# Nightly backup
30 2 * * * backup.sh --all%yes%please
*/15 * * * * curl -fsS https://example.com/ping
@reboot /usr/bin/thing
"""
ALLOWED = {"CHIMES_ALLOW_COMMANDS": "true", "CHIMES_STORE": "sqlite:///chimes.db"}


def test_a_crontab_is_created_only_with_consent(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "my.cron"
    file.write_text(CRONTAB)
    arguments = ("import", "crontab", str(file), "--tz", "Europe/Berlin")
    shown = cli(*arguments, **ALLOWED)
    assert shown.code == 2
    for words in (
        *("Nightly backup", "02:30", "not imported: @reboot is not a time"),
        *("GET https://example.com/ping", "+01:00", "backup.sh --all < 'yes\\nplease\\n'"),
    ):
        assert words in shown.out.replace("+02:00", "+01:00"), words
    assert "Nothing was created" in shown.err
    assert not (tmp_path / "chimes.db").exists()
    assert cli(*arguments, "--dry-run", **ALLOWED).code == 0
    assert not (tmp_path / "chimes.db").exists()

    made = cli(*arguments, "--yes", "--json", **ALLOWED)
    assert made.code == 0, made.err
    rows = {each["place"]: each for each in json.loads(made.out)}
    assert rows["4"]["old_fires"] is None
    assert all(each[10:19] == "T02:30:00" for each in rows["4"]["new_fires"])
    again = cli(*arguments, "--yes", **ALLOWED)
    assert "0 schedules created" in again.err
    listed = json.loads(cli("ls", "--json", **ALLOWED).out)
    assert len(listed) == 2
    (stored,) = [each for each in listed if each["id"] == rows["4"]["id"]]
    assert stored["name"] == "Nightly backup"
    assert stored["trigger"]["timezone"] == "Europe/Berlin"
    assert stored["target"]["shell"] == "backup.sh --all"
    assert stored["target"]["stdin"] == "yes\nplease\n"
    assert stored["target"]["env"] == {"LEVEL": "full"}
    assert stored["labels"] == {"imported": "crontab"}
    assert [(each["to"], each["on"]) for each in stored["delivery"]] == [
        ("ops@example.com", ["failure"])
    ]
    assert rows["6"]["definition"] is None


def test_commands_that_no_node_allows_are_reported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("0 2 * * * root backup.sh\n")
    store = {"CHIMES_STORE": "sqlite:///chimes.db"}
    done = cli("import", "crontab", "c", "--system", "--yes", **store)
    assert done.code == 1
    assert "CHIMES_ALLOW_COMMANDS" in done.err
    assert "0 schedules created" in done.err


def test_other_systems_are_loaded_without_starting_them(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "beat_of_shop.py").write_text(
        "from celery import Celery\nfrom celery.schedules import crontab\n"
        "app = Celery('shop', broker='memory://')\napp.conf.timezone = 'Asia/Tokyo'\n"
        "app.conf.beat_schedule = {'night': {'task': 'a', 'schedule': crontab(hour=2, minute=0)}}\n"
    )
    (tmp_path / "jobs_of_shop.py").write_text(
        "from apscheduler.schedulers.blocking import BlockingScheduler\n"
        "scheduler = BlockingScheduler(timezone='UTC')\ndef job(): pass\n"
        "scheduler.add_job(job, 'cron', hour=3, id='early')\nscheduler.start()\n"
    )
    (tmp_path / "cron.yaml").write_text(
        "kind: CronJob\nmetadata: {name: j}\nspec: {schedule: '@daily', jobTemplate: {spec:"
        " {template: {spec: {containers: [{image: i, command: [x]}]}}}}}\n"
    )
    for arguments, zone in (
        (("celery-beat", "beat_of_shop:app"), "Asia/Tokyo"),
        (("apscheduler", "jobs_of_shop.py"), "UTC"),
        (("k8s", "cron.yaml"), "UTC"),
    ):
        shown = cli("import", *arguments, "--dry-run", "--json", **ALLOWED)
        assert shown.code == 0, shown.err
        (row,) = json.loads(shown.out)
        assert row["definition"]["trigger"]["timezone"] == zone
        assert len(row["new_fires"]) == SHOWN_FIRES
        assert row["old_fires"] == (None if arguments[0] == "k8s" else row["new_fires"])
    for arguments in (("celery-beat", "json"), ("apscheduler", "json"), ("k8s", "nowhere.yaml"),
                      ("celery-beat", "no_such_module"), ("crontab", "nowhere")):  # fmt: skip
        refused = cli("import", *arguments)
        assert refused.code == 2, arguments
        assert refused.err


def test_the_preview_of_an_interval_shows_the_slots_that_it_gets(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "often.py").write_text(
        "beat_schedule = {'e': {'task': 't', 'schedule': 31536000.0}}"
    )
    words = ("import", "celery-beat", "often.py", "--as", "task", "--json")
    (row,) = json.loads(cli(*words, "--yes", **ALLOWED).out)
    (made,) = json.loads(cli("ls", "--json", **ALLOWED).out)
    assert row["id"] == made["id"]
    first = datetime.fromisoformat(row["new_fires"][0])
    assert (first - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(days=365) == timedelta()
    assert datetime.fromisoformat(made["next_run_at"]) == first


def test_job_store_of_apscheduler(cli: Cli, tmp_path: Path) -> None:
    """Written by a process of its own, as an application would."""
    (tmp_path / "stored_jobs.py").write_text(
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore\n"
        "def job(): pass\n"
        "if __name__ == '__main__':\n"
        "    import stored_jobs\n"
        "    s = BackgroundScheduler(jobstores={'default': SQLAlchemyJobStore("
        "'sqlite:///jobs.sqlite')}, timezone='UTC')\n"
        "    s.add_job(stored_jobs.job, 'cron', hour=3, id='early')\n"
        "    s.start(paused=True); s.shutdown()\n"
    )
    subprocess.run([sys.executable, "stored_jobs.py"], cwd=tmp_path, check=True, timeout=100)
    shown = cli("import", "apscheduler", "jobs.sqlite", "--dry-run", "--json")
    assert shown.code == 0, shown.err
    (row,) = json.loads(shown.out)
    assert row["definition"]["target"] == {"kind": "task", "name": "job", "args": {}}
    (tmp_path / "other.db").write_bytes(b"x")
    assert cli("import", "apscheduler", "other.db").code == 2
