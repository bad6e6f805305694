"""Schedules of cron, Kubernetes, Celery beat and APScheduler: definitions, losses, fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from celery import Celery
from celery.schedules import crontab
from cronsim import CronSim

from chimes.errors import InvalidInput
from chimes.model.validation import check_target
from chimes.services.schedules.definitions import target_from_json
from chimes.services.schedules.imports import (
    ImportedSchedule,
    beat_schedule_in,
    import_apscheduler,
    import_celery_beat,
    import_crontab,
    import_k8s,
)

ZONE = "Europe/Berlin"
#: Shortly before the clocks go back and, five months later, forward.
BEFORE_CHANGES = (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2027, 3, 27, 12, tzinfo=UTC))


def by_place(items: tuple[ImportedSchedule, ...]) -> dict[str, ImportedSchedule]:
    for each in items:
        if each.definition is not None:
            target: Any = each.definition["target"]
            check_target(target_from_json(target))
    return {each.place: each for each in items}


def target_of(item: ImportedSchedule) -> Any:
    assert item.definition is not None, item.error
    return item.definition["target"]


def assert_same_fires(item: ImportedSchedule, after: datetime, count: int = 20) -> None:
    trigger = item.trigger
    assert trigger is not None
    new = [fire.at for fire in trigger.fires(after, count)]
    assert item.old_fires is not None
    old = [at.astimezone(UTC) for at in item.old_fires(after, count)]
    assert old == new != [], item.text


def test_fires_of_a_crontab_are_those_of_cron() -> None:
    """cronsim implements the rules of Debian's cron, also at clock changes."""
    expressions = (
        *("30 2 * * *", "0 3 * * *", "*/20 * * * *", "15 * * * *", "0 2 * * 1-5", "59 1-3 * * *"),
        *("0 0 1 * 1", "0 12 */2 * *", "5 4 29 2 *", "0 22 * * sun", "10-50/20 2,3 * * *"),
    )
    for after in BEFORE_CHANGES:
        for expression in expressions:
            (item,) = import_crontab(f"{expression} /bin/true", zone=ZONE, users=False)
            count = 4 if "29 2" in expression else 100
            known = CronSim(expression, after.astimezone(ZoneInfo(ZONE)))
            expected = [next(known).astimezone(UTC) for _ in range(count)]
            assert item.trigger is not None
            fires = [fire.at for fire in item.trigger.fires(after, count)]
            assert fires == expected, expression


CRONJOBS = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop}
spec:
  schedule: "30 2 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 120
  suspend: true
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 600
      template:
        spec:
          restartPolicy: Never
          nodeSelector: {disk: ssd}
          containers:
          - name: main
            image: example/report:1
            command: [report]
            args: ["--all", "$(LEVEL)"]
            workingDir: /srv
            env:
            - {name: LEVEL, value: full}
            - {name: DB, valueFrom: {secretKeyRef: {name: db, key: password}}}
            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            resources: {limits: {memory: 1Gi}}
---
kind: List
items:
- kind: CronJob
  metadata: {name: plain}
  spec:
    schedule: "@hourly"
    jobTemplate: {spec: {template: {spec: {containers: [{image: x, command: [a]}]}}}}
- kind: CronJob
  metadata: {name: image-only}
  spec: {schedule: "@hourly", jobTemplate: {spec: {template: {spec: {containers: [{image: x}]}}}}}
- kind: CronJob
  metadata: {name: wrong}
  spec: {schedule: "99 * * * *", jobTemplate: {}}
- kind: Service
  metadata: {name: other}
"""


def test_cronjobs() -> None:
    items = by_place(import_k8s(CRONJOBS))
    report = items["report"]
    assert report.definition == {
        "name": "shop/report",
        "trigger": {
            "kind": "cron",
            "expression": "30 2 * * *",
            "timezone": ZONE,
            "dst": "robfig",
        },
        "target": {
            "kind": "command",
            "command": ["report", "--all", "$(LEVEL)"],
            "env": {"LEVEL": "full", "DB": "{{secret.DB}}"},
            "cwd": "/srv",
        },
        "policy": {
            "overlap": "skip",
            "misfire": "skip",
            "misfire_grace": "PT120S",
            "timeout": "PT600S",
            "max_retries": 2,
        },
        "enabled": False,
    }
    notes = " ".join(str(each) for each in report.notes)
    for lost in ("example/report:1", "nodeSelector, resources", "env POD", "set DB", "$(NAME)"):
        assert lost in notes, lost
    # robfig/cron: twice in the repeated hour, never in the skipped one.
    for after, expected in zip(
        BEFORE_CHANGES,
        (
            ["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-26T01:30Z"],
            ["2027-03-29T00:30Z", "2027-03-30T00:30Z", "2027-03-31T00:30Z"],
        ),
        strict=True,
    ):
        assert report.trigger is not None
        fires = report.trigger.fires(after, 3)
        assert [f"{fire.at:%Y-%m-%dT%H:%MZ}" for fire in fires] == expected
    plain = items["plain"].definition
    assert plain is not None
    assert plain["policy"] == {"overlap": "allow", "misfire": "one", "max_retries": 6}
    assert "UTC" in str(items["plain"].notes[0])
    assert "image" in items["image-only"].error
    assert "minute" in items["wrong"].error
    assert set(items) == {"report", "plain", "image-only", "wrong"}
    for text in ("a: [", "kind: Service"):
        with pytest.raises(InvalidInput):
            import_k8s(text)


def test_celery_beat() -> None:
    app = Celery("shop", broker="memory://")
    app.conf.timezone = ZONE
    app.conf.beat_schedule = {
        "nightly": {"task": "a", "schedule": crontab(hour=2, minute=30), "args": (1, "x")},
        "weekly": {
            "task": "b",
            "schedule": crontab(hour=7, minute="*/30", day_of_week="mon,fri", month_of_year="1-6"),
            "kwargs": {"day": 1},
            "options": {"queue": "q", "priority": 3},
        },
        "sundays": {"task": "e", "schedule": crontab(hour="*/6", minute=5, day_of_week=0)},
        "first": {"task": "f", "schedule": crontab(hour=0, minute=0, day_of_month="1,15")},
        "fast": {"task": "c", "schedule": 30.0},
        "slow": {"task": "d", "schedule": timedelta(hours=2)},
        "both": {"task": "x", "schedule": crontab(0, 0, day_of_month=1, day_of_week=1)},
        "odd": {"task": "x", "schedule": object()},
        "unnamed": {"schedule": 5},
        "object": {"task": "x", "schedule": 5, "args": (object(),)},
    }

    class module:
        celery_app = app

    ((name, entries, conf),) = beat_schedule_in(module, "")
    assert (name, conf.timezone) == ("celery_app", ZONE)
    items = by_place(import_celery_beat(entries, zone=ZONE, app="shop:app", as_task=False))
    assert target_of(items["nightly"])["command"] == [
        *("celery", "-A", "shop:app", "call", "a", "--args", '[1, "x"]')
    ]
    weekly = target_of(items["weekly"])["command"]
    assert weekly[-4:] == ["--kwargs", '{"day": 1}', "--queue", "q"]
    assert "priority" in str(items["weekly"].notes)
    after = datetime(2026, 11, 2, 12, tzinfo=UTC)
    for place in ("nightly", "weekly", "sundays", "first"):
        assert_same_fires(items[place], after)
    # Celery has no run in the skipped hour, Chimes one right after it.
    nightly = items["nightly"]
    assert nightly.trigger is not None
    assert nightly.old_fires is not None
    (old,) = nightly.old_fires(BEFORE_CHANGES[1], 1)
    (new,) = nightly.trigger.fires(BEFORE_CHANGES[1], 1)
    assert (old.day, new.at.day) == (29, 28)
    assert items["fast"].trigger is not None
    assert items["slow"].definition is not None
    assert items["slow"].definition["trigger"]["every"] == "PT2H"  # type: ignore[index]
    for place, words in (
        *(("both", "both day_of_month and day_of_week"), ("odd", "type object")),
        *(("unnamed", "no task"), ("object", "not JSON")),
    ):
        assert words in items[place].error, place
    tasks = by_place(import_celery_beat(entries, zone=ZONE, app="", as_task=True))
    assert target_of(tasks["weekly"]) == {"kind": "task", "name": "b", "args": {"day": 1}}
    assert "by name" in tasks["nightly"].error


def tick(a: int = 1) -> None:
    """A job."""


def test_apscheduler() -> None:
    scheduler = BackgroundScheduler(timezone=ZONE)
    for place, trigger, given in (
        ("five", "interval", {"minutes": 5, "start_date": "2026-11-01 00:00:00"}),
        ("weekdays", "cron", {"day_of_week": "mon-fri", "hour": 9}),
        ("numbers", "cron", {"day_of_week": "0,6", "hour": "8-18/2", "minute": "*/20"}),
        ("last", "cron", {"day": "last", "hour": 9, "minute": 30}),
        ("seconds", "cron", {"second": "*/10"}),
        ("once", "date", {"run_date": "2030-01-01 10:00:00"}),
        ("nth", "cron", {"day": "2nd fri", "hour": 9}),
        ("week", "cron", {"week": 3}),
        ("both", "cron", {"day": 1, "day_of_week": "mon"}),
    ):
        more = {"max_instances": 3, "misfire_grace_time": 60} if place == "weekdays" else {}
        scheduler.add_job(tick, trigger, id=place, kwargs={"a": 2}, **given, **more)
    jobs = scheduler.get_jobs()
    items = by_place(import_apscheduler(jobs, as_task=True))
    assert target_of(items["five"]) == {"kind": "task", "name": "tick", "args": {"a": 2}}
    weekdays = items["weekdays"].definition
    assert weekdays is not None
    assert weekdays["name"] == "weekdays"
    assert weekdays["policy"] == {
        "misfire": "skip",
        "misfire_grace": "PT60S",
        "max_concurrent_runs": 3,
        "overlap": "skip",
    }
    after = datetime(2026, 11, 2, 12, tzinfo=UTC)
    for place in ("five", "weekdays", "numbers", "last", "seconds", "once"):
        assert_same_fires(items[place], after)
    for place, words in (("nth", "2nd fri"), ("week", "week"), ("both", "both day and")):
        assert words in items[place].error, place
    commands = by_place(import_apscheduler(jobs, as_task=False, python="python3"))
    command = target_of(commands["five"])["command"]
    assert command[:2] == ["python3", "-c"]
    assert command[-2:] == ["[]", '{"a": 2}']
    compile(command[2], "job", "exec")
