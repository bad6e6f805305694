"""The whole file: `{"version": 1, "updated_at", "jobs": [...]}` (R3.14) and, under `chimes`, what
Ksana's jobs have no place for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from chimes.errors import InvalidInput, told
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, InboxItem
from chimes.model.ids import DeliveryId, RunId, ScheduleId, new_schedule_id
from chimes.model.kept_state import KeptState
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import Schedule
from chimes.store.codec.messages import delivery_from_plain, inbox_from_plain
from chimes.store.codec.records import (
    audit_from_plain,
    kept_state_from_plain,
    key_from_plain,
)
from chimes.store.codec.run import log_from_plain, run_from_plain
from chimes.store.codec.schedule import schedule_from_plain
from chimes.store.jsonfile.job import DETAILS
from chimes.store.jsonfile.reading import LoadedJob, read_job
from chimes.store.jsonfile.state import Mark, Requests
from chimes.store.plain import Plain, Reader, moment
from chimes.store.port import Remembered
from chimes.wording import joined, say

VERSION = 1
TOP_KEYS = frozenset({"version", "updated_at", "jobs", DETAILS})


class BadFile(Exception):
    """The file does not hold what a jobs.json holds"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    jobs: tuple[LoadedJob, ...] = ()
    deleted: tuple[Schedule, ...] = ()
    runs: tuple[Run, ...] = ()
    logs: Mapping[RunId, list[LogEntry]] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    states: tuple[KeptState, ...] = ()
    requests: Requests = field(default_factory=dict)
    deliveries: tuple[Delivery, ...] = ()
    inbox: tuple[InboxItem, ...] = ()
    #: Of messages that lie in an archive: the ids of deliveries, and what owners made of items.
    filed_deliveries: tuple[DeliveryId, ...] = ()
    filed_items: tuple[object, ...] = ()
    #: Schedules of waiting or running runs that were not there when the file was written.
    absent: frozenset[str] = frozenset()
    pruned_until: Mark | None = None
    #: Keys of the file that nobody here knows.
    extras: Plain = field(default_factory=dict)


def decode(content: bytes, now: datetime) -> Contents:
    """Raises BadFile; single jobs that make no sense do not (see `read_job`)."""
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadFile(say("it is not JSON: {error}", error=str(error))) from None
    if not isinstance(data, dict) or type(data.get("version")) is not int:
        raise BadFile(say("it has no version"))
    if data["version"] != VERSION:
        raise BadFile(
            say("its version is {found}, not {version}", found=data["version"], version=VERSION)
        )
    jobs = [] if data.get("jobs", 0) is None else data.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise BadFile(say("jobs is not a list of objects"))
    try:
        return _contents(data, jobs, now)
    except (InvalidInput, ValueError, TypeError, OverflowError) as error:
        raise BadFile(joined(": ", (DETAILS, told(error)))) from None


def _contents(data: Plain, jobs: list[Plain], now: datetime) -> Contents:
    written_at = now
    with contextlib.suppress(InvalidInput, ValueError):  # nothing depends on it
        written_at = moment(data.get("updated_at"))
    read = Reader(data.get(DETAILS) or {})
    deleted = tuple(schedule_from_plain(each) for each in read.items("deleted"))
    ids = {schedule.id for schedule in deleted}
    loaded = []
    for raw in jobs:
        job_id = _job_id(raw, ids, now)
        ids.add(job_id)
        loaded.append(read_job(raw, job_id, now=now, written_at=written_at))
    pruned = read.items("pruned_until")
    contents = Contents(
        jobs=tuple(loaded),
        deleted=deleted,
        runs=tuple(run_from_plain(each) for each in read.items("runs")),
        logs={
            RunId(run_id): [log_from_plain(line) for line in _list(lines)]
            for run_id, lines in read.mapping("logs").items()
        },
        audit=tuple(audit_from_plain(each) for each in read.items("audit")),
        keys=tuple(key_from_plain(each) for each in read.items("keys")),
        states=tuple(kept_state_from_plain(each) for each in read.items("states")),
        requests=dict(_request_from_plain(each) for each in read.items("requests")),
        deliveries=tuple(delivery_from_plain(each) for each in read.items("deliveries")),
        inbox=tuple(inbox_from_plain(each) for each in read.items("inbox")),
        filed_deliveries=tuple(DeliveryId(str(e)) for e in read.items("filed_deliveries")),
        filed_items=tuple(read.items("filed_inbox")),
        absent=frozenset(str(each) for each in read.items("absent")),
        pruned_until=(moment(pruned[0]), str(pruned[1])) if len(pruned) == 2 else None,
        extras={name: value for name, value in data.items() if name not in TOP_KEYS},
    )
    read.done()
    return contents


def _job_id(raw: Plain, taken: set[ScheduleId], now: datetime) -> ScheduleId:
    """R3.30: an empty id is made; so is the second of two jobs that were copied with their id."""
    given = raw.get("id")
    if isinstance(given, str) and given and given not in taken:
        return ScheduleId(given)
    return ScheduleId(new_schedule_id(now).replace("-", ""))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidInput(say("expected a list, got {type}", type=type(value).__name__))
    return value


def _request_from_plain(
    data: object,
) -> tuple[tuple[str, str], tuple[Remembered, datetime]]:
    read = Reader(data)
    answer = Remembered(
        fingerprint=read.text("fingerprint"),
        status=read.integer("status", 0),
        body=read.text("body", ""),
        headers=tuple((str(k), str(v)) for k, v in map(_list, read.items("headers"))),
    )
    request = (read.text("scope"), read.text("key")), (answer, read.time("until"))
    read.done()
    return request
