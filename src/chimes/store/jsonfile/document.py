"""Encodes and decodes jobs.json: Ksana's `{"version": 1, "updated_at", "jobs": [...]}`, and the
data of Chimes under `chimes`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from chimes.envelope import NO_KEYS, Keyring
from chimes.errors import InvalidInput, SchemaMismatch, message_of
from chimes.i18n import _, joined
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import DeliveryId, RunId, ScheduleId, new_schedule_id
from chimes.model.notification import Delivery, InboxItem
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import Schedule
from chimes.store.codec.records import (
    audit_from_plain,
    audit_to_plain,
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
    key_from_plain,
    key_to_plain,
    log_from_plain,
    log_to_plain,
    open_checkpoint,
    run_from_plain,
    run_to_plain,
    seal_checkpoint,
)
from chimes.store.codec.values import (
    RESPONSE,
    Plain,
    Reader,
    moment,
    open_parts,
    open_text,
    schedule_from_plain,
    schedule_to_plain,
    seal_plain,
    seal_text,
    to_text,
)
from chimes.store.jsonfile.jobs import DETAILS, NO_EXTRAS, LoadedJob, job_to_plain, read_job
from chimes.store.jsonfile.state import Generation, Mark, Requests, marks_to_plain
from chimes.store.port import IdempotencyRecord

VERSION = 1
TOP_KEYS = frozenset({"version", "updated_at", "jobs", DETAILS})


class BadFile(Exception):
    """The file is not a valid jobs.json"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    jobs: tuple[LoadedJob, ...] = ()
    deleted: tuple[Schedule, ...] = ()
    runs: tuple[Run, ...] = ()
    logs: Mapping[RunId, list[LogEntry]] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    states: tuple[Checkpoint, ...] = ()
    requests: Requests = field(default_factory=dict)
    deliveries: tuple[Delivery, ...] = ()
    inbox: tuple[InboxItem, ...] = ()
    #: Archived messages: ids of deliveries, and marks of items.
    filed_deliveries: tuple[DeliveryId, ...] = ()
    filed_items: tuple[object, ...] = ()
    #: Missing schedules of queued or running runs.
    absent: frozenset[str] = frozenset()
    pruned_until: Mark | None = None
    #: Unknown keys of the file.
    extras: Plain = field(default_factory=dict)


def decode(content: bytes, now: datetime) -> Contents:
    """Raises BadFile, or SchemaMismatch for a newer version; single invalid jobs do not (see
    `read_job`)."""
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadFile(_("it is not JSON: {error}", error=str(error))) from None
    if not isinstance(data, dict) or type(data.get("version")) is not int:
        raise BadFile(_("it has no version"))
    if data["version"] > VERSION:
        # Not damaged: it must not be moved away.
        raise SchemaMismatch(
            _(
                "jobs.json has version {found}, which this version of Chimes (version {known}) is"
                " too old for: update Chimes",
                found=data["version"],
                known=VERSION,
            )
        )
    if data["version"] != VERSION:
        raise BadFile(
            _("its version is {found}, not {version}", found=data["version"], version=VERSION)
        )
    jobs = [] if data.get("jobs", 0) is None else data.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise BadFile(_("jobs is not a list of objects"))
    try:
        return _contents(data, jobs, now)
    except (InvalidInput, ValueError, TypeError, OverflowError) as error:
        raise BadFile(joined(": ", (DETAILS, message_of(error)))) from None


def _contents(data: Plain, jobs: list[Plain], now: datetime) -> Contents:
    written_at = now
    with contextlib.suppress(InvalidInput, ValueError):  # nothing depends on it
        written_at = moment(data.get("updated_at"))
    read = Reader(data.get(DETAILS) or {})
    deleted = tuple(schedule_from_plain(open_parts(each)) for each in read.items("deleted"))
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
        runs=tuple(run_from_plain(open_parts(each)) for each in read.items("runs")),
        logs={
            RunId(run_id): [log_from_plain(line) for line in _list(lines)]
            for run_id, lines in read.mapping("logs").items()
        },
        audit=tuple(audit_from_plain(each) for each in read.items("audit")),
        keys=tuple(key_from_plain(each) for each in read.items("keys")),
        states=tuple(open_checkpoint(each) for each in read.items("states")),
        requests=dict(_request_from_plain(each) for each in read.items("requests")),
        deliveries=tuple(
            delivery_from_plain(open_parts(each)) for each in read.items("deliveries")
        ),
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
    """Generate an id if it is empty or already used by another job."""
    given = raw.get("id")
    if isinstance(given, str) and given and given not in taken:
        return ScheduleId(given)
    return ScheduleId(new_schedule_id(now).replace("-", ""))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidInput(_("expected a list, got {type}", type=type(value).__name__))
    return value


def _request_from_plain(
    data: object,
) -> tuple[tuple[str, str], tuple[IdempotencyRecord, datetime]]:
    read = Reader(data)
    answer = IdempotencyRecord(
        fingerprint=read.text("fingerprint"),
        status=read.integer("status", 0),
        body=open_text(read.text("body", ""), RESPONSE),
        headers=tuple((str(k), str(v)) for k, v in map(_list, read.items("headers"))),
    )
    request = (read.text("scope"), read.text("key")), (answer, read.time("until"))
    read.done()
    return request


# --- encoding

K = TypeVar("K")
V = TypeVar("V")


class Encoder:
    """Caches the encoded rows, so that a write encodes only what changed."""

    def __init__(self, contents: Contents, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._jobs = {job.schedule.id: job for job in contents.jobs}
        self._extras = contents.extras
        self._rows: dict[str, dict[object, tuple[object, bytes]]] = {}

    def encode(self, generation: Generation, now: datetime) -> bytes:
        present = {k: s for k, s in generation.schedules.items() if s.deleted_at is None}
        deleted = {k: s for k, s in generation.schedules.items() if s.deleted_at is not None}
        absent = {
            run.schedule_id
            for run in generation.runs.values()
            if not run.status.terminal and run.schedule_id not in generation.schedules
        }
        pruned = generation.pruned_until
        sections = [
            ("runs", self._section("runs", generation.runs, self._sealed(run_to_plain)), b"[]"),
            ("logs", self._logs(generation), b"{}"),
            (
                "audit",
                self._section("audit", {e.number: e for e in generation.audit}, audit_to_plain),
                b"[]",
            ),
            ("keys", self._section("keys", generation.keys, key_to_plain), b"[]"),
            ("states", self._section("states", generation.states, self._checkpoint), b"[]"),
            (
                "deliveries",
                self._section("deliveries", generation.deliveries, self._sealed(delivery_to_plain)),
                b"[]",
            ),
            ("inbox", self._section("inbox", generation.inbox, inbox_to_plain), b"[]"),
            ("filed_deliveries", [_dump(each) for each in generation.filed_deliveries], b"[]"),
            (
                "filed_inbox",
                self._section("filed_inbox", generation.filed_items, marks_to_plain),
                b"[]",
            ),
            ("requests", self._requests(generation.requests), b"[]"),
            ("deleted", self._section("deleted", deleted, self._sealed(schedule_to_plain)), b"[]"),
            ("absent", [_dump(each) for each in sorted(filter(None, absent))], b"[]"),
            (
                "pruned_until",
                [_dump(to_text(pruned[0])), _dump(pruned[1])] if pruned else [],
                b"[]",
            ),
        ]
        parts = [
            b'{\n  "version": %d,\n  "updated_at": %s,\n' % (VERSION, _dump(to_text(now))),
            *(b"  %s: %s,\n" % (_dump(name), _dump(self._extras[name])) for name in self._extras),
            b'  "jobs": ',
            *_block(self._section("jobs", present, self._job, dump=_dump_job), b"[]", b"    "),
        ]
        start = b',\n  "%s": {' % DETAILS.encode()
        for name, rows, ends in sections:
            if rows:
                parts += [start, b"\n    %s: " % _dump(name), *_block(rows, ends, b"      ")]
                start = b","
        parts.append(b"\n  }\n}\n" if start == b"," else b"\n}\n")
        return b"".join(parts)

    def _job(self, schedule: Schedule) -> Plain:
        loaded = self._jobs.get(schedule.id)
        if loaded is None:
            return job_to_plain(schedule, self._keyring)
        read = loaded.schedule
        untouched = schedule.trigger == read.trigger and schedule.target == read.target
        if loaded.broken is not None and untouched:
            return loaded.broken
        extras = NO_EXTRAS if loaded.broken is not None else loaded.extras
        return job_to_plain(schedule, self._keyring, extras)

    def _sealed(self, to_plain: Callable[[V], Plain]) -> Callable[[V], Plain]:
        return lambda value: seal_plain(to_plain(value), self._keyring)

    def _checkpoint(self, checkpoint: Checkpoint) -> Plain:
        return seal_checkpoint(checkpoint, self._keyring)

    def forget(self) -> None:
        """Encodes every row again at the next write."""
        self._rows.clear()

    def _section(
        self,
        name: str,
        values: Mapping[K, V],
        to_plain: Callable[[V], Plain],
        *,
        dump: Callable[[object], bytes] | None = None,
    ) -> list[bytes]:
        before = self._rows.get(name, {})
        rows: dict[object, tuple[object, bytes]] = {}
        for key, value in values.items():
            row = before.get(key)
            if row is None or row[0] is not value:
                row = (value, (dump or _dump)(to_plain(value)))
            rows[key] = row
        self._rows[name] = rows
        return [row[1] for row in rows.values()]

    def forget_logs(self) -> None:
        """Call after a failed write: logs are compared by length, and undone entries may be
        replaced by others."""
        self._rows.pop("logs", None)

    def _logs(self, generation: Generation) -> list[bytes]:
        before = self._rows.get("logs", {})
        rows: dict[object, tuple[object, bytes]] = {}
        for run_id, logs in generation.logs.items():
            row = before.get(run_id)
            if row is None or row[0] != logs.length:
                lines = [log_to_plain(entry) for entry in logs.entries()]
                row = (logs.length, b"%s: %s" % (_dump(run_id), _dump(lines)))
            rows[run_id] = row
        self._rows["logs"] = rows
        return [row[1] for row in rows.values()]

    def _requests(self, requests: Requests) -> list[bytes]:
        def plain(kept: tuple[IdempotencyRecord, datetime]) -> Plain:
            answer, until = kept
            return {
                "until": to_text(until),
                "fingerprint": answer.fingerprint,
                "status": answer.status,
                "body": seal_text(answer.body, RESPONSE, self._keyring),
                "headers": [list(header) for header in answer.headers],
            }

        rows = self._section("requests", requests, plain)
        names = (_dump({"scope": scope, "key": key}) for scope, key in requests)
        return [b"%s,%s" % (name[:-1], row[1:]) for name, row in zip(names, rows, strict=True)]


def encode_line(value: object) -> bytes:
    return _dump(value) + b"\n"


_readable = json.JSONEncoder(ensure_ascii=False)
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _dump(value: object, encoder: json.JSONEncoder = _compact) -> bytes:
    try:
        return encoder.encode(value).encode()
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8, only an escape
        return json.dumps(value).encode()


def _dump_job(job: object) -> bytes:
    """One line per key that users edit; the `chimes` part is one line. Formatted here, because
    `json` with indentation is ten times slower."""
    assert isinstance(job, dict)
    lines = []
    for name, value in job.items():
        if name in ("http", "schedule") and isinstance(value, dict) and value:
            inner = b",".join(
                b"\n        %s: %s" % (_dump(key), _dump(each, _readable))
                for key, each in value.items()
            )
            lines.append(b"      %s: {%s\n      }" % (_dump(name), inner))
        else:
            encoder = _compact if name == DETAILS else _readable
            lines.append(b"      %s: %s" % (_dump(name), _dump(value, encoder)))
    return b"{\n%s\n    }" % b",\n".join(lines)


def _block(rows: Iterable[bytes], ends: bytes, indent: bytes) -> list[bytes]:
    """One row per line, as pieces that are joined once."""
    joined = (b",\n" + indent).join(rows)
    if not joined:
        return [ends]
    return [ends[:1], b"\n", indent, joined, b"\n", indent[2:], ends[1:]]
