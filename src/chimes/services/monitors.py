"""Monitors: create, change, list, ping, and what turns their events into deliveries (ADR 75).

Each monitor is a document (ADR 37) that every ping changes with compare-and-set. Three more
documents belong to all of them: the index (owner, name, status and version of each monitor, written
when one of these changes), the revision of the index, which nodes read instead of it, and, for each
monitor, the logs of its last pings.

A change of the status is written with the ping or check that caused it. `settle` then writes the
deliveries, whose ids are derived from the event, and the index, and marks the event as settled. It
may be interrupted at any point: the next check repeats it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from chimes.errors import (
    AlreadyExists,
    InvalidInput,
    InvalidTrigger,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    StaleVersion,
    StoreError,
)
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import MonitorId
from chimes.model.monitor import (
    MAX_GRACE,
    MAX_LOG_LENGTH,
    MAX_LOGS,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    MIN_GRACE,
    SEVERITY,
    Monitor,
    MonitorEvent,
    MonitorStatus,
    PingKind,
    check_monitor,
    edit_monitor,
    is_settled,
    pause_monitor,
    record_ping,
    resume_monitor,
    settle_monitor,
    status_at,
)
from chimes.model.notification import plan_monitor_deliveries
from chimes.model.policy import Policy
from chimes.model.recipient import Recipient
from chimes.model.validation import check_text, clean_name
from chimes.redaction import mask_secrets, mask_text
from chimes.services.documents import Document, DocumentStore
from chimes.services.schedules.rules import ScheduleRules, check_chats, with_default_zones
from chimes.store.codec.values import Part, declare_codec, recipient_to_plain
from chimes.store.port import Store
from chimes.triggers import EventTrigger, Trigger, format_duration_iso, trigger_from_dict

_log = logging.getLogger("chimes.monitors")

INDEX = "monitors"
REVISION = "monitors:revision"
_MONITOR = "monitor:"
#: Of all owners: the index is one document.
MAX_MONITORS = 5000
MAX_MONITORS_PER_OWNER = 1000
_ALPHABET = string.ascii_lowercase + string.digits
_ID_LENGTH = 12
_SECRET_LENGTH = 24
_TOKEN = re.compile(rf"[a-z0-9]{{{_ID_LENGTH + _SECRET_LENGTH}}}")
#: Characters of a name in the index, which sorts by it.
_INDEXED_NAME = 60
#: The statuses that need attention.
PROBLEMS = (MonitorStatus.DOWN, MonitorStatus.LATE)
#: Documents read at the same time.
_READERS = 16
#: Control characters and bidirectional overrides, which can disguise a text.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_codec = declare_codec(
    Monitor,
    always=("ping_count",),
    read={"trigger": Part("trigger", trigger_from_dict)},
)


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEntry:
    """What is known of a monitor without reading it."""

    id: MonitorId
    owner: str
    name: str
    #: As noticed by the last check or ping.
    status: MonitorStatus
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorDraft:
    name: str
    trigger: Trigger
    grace: timedelta
    owner: Owner | None = None
    tags: tuple[str, ...] = ()
    delivery: tuple[Recipient, ...] = ()
    paused: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NewMonitor:
    """A monitor whose secrets are known now, and perhaps never again."""

    monitor: Monitor
    ping_token: str
    badge_token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorOverview:
    """For Today and metrics."""

    counts: Mapping[MonitorStatus, int]
    #: Down or late, the most severe and then by name.
    problems: tuple[Monitor, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def problem_count(self) -> int:
        return sum(self.counts.get(each, 0) for each in PROBLEMS)


NO_MONITORS = MonitorOverview(counts={})


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorPage:
    monitors: tuple[Monitor, ...]
    next: tuple[str, str] | None
    counts: Mapping[MonitorStatus, int]


class MonitorService:
    """Monitors of other owners are NotFound, except for operators and admins."""

    def __init__(self, store: Store, rules: ScheduleRules) -> None:
        self._store = store
        self._rules = rules
        self._documents = MonitorDocuments(store)

    # --- reading ------------------------------------------------------------------------------
    async def get(self, actor: Actor, monitor_id: str) -> Monitor:
        monitor = await self._documents.read(MonitorId(monitor_id))
        if monitor is None or not actor.may_see(monitor.owner):
            raise _not_found(monitor_id)
        return monitor

    async def find(
        self,
        actor: Actor,
        *,
        owner: Owner | None = None,
        statuses: Collection[MonitorStatus] = (),
        text: str = "",
        after: tuple[str, str] | None = None,
        limit: int,
    ) -> MonitorPage:
        """By name. `text`: part of the name, upper or lower case."""
        visible = [
            each
            for each in await self._documents.read_index()
            if _visible(actor, each.owner)
            and (owner is None or each.owner == str(owner))
            and text.lower() in each.name.lower()
        ]
        counts = Counter(each.status for each in visible)
        chosen = sorted(
            (each for each in visible if not statuses or each.status in statuses),
            key=_position,
        )
        if after is not None:
            chosen = [each for each in chosen if _position(each) > after]
        shown, rest = chosen[:limit], chosen[limit:]
        found = await self._documents.read_all(each.id for each in shown)
        return MonitorPage(
            monitors=tuple(found), next=_position(shown[-1]) if rest else None, counts=counts
        )

    async def overview(self, actor: Actor, *, limit: int) -> MonitorOverview:
        visible = [
            each for each in await self._documents.read_index() if _visible(actor, each.owner)
        ]
        counts = Counter(each.status for each in visible)
        problems = sorted(
            (each for each in visible if each.status in PROBLEMS),
            key=lambda each: (SEVERITY.index(each.status), *_position(each)),
        )[:limit]
        found = await self._documents.read_all(each.id for each in problems)
        return MonitorOverview(counts=counts, problems=tuple(found))

    async def read_logs(self, monitor: Monitor) -> dict[int, str]:
        """The kept logs of pings, by number."""
        return await self._documents.read_logs(monitor.id)

    # --- creating and changing ----------------------------------------------------------------
    async def create(self, actor: Actor, draft: MonitorDraft, *, new_id: str = "") -> NewMonitor:
        """`new_id`: text from which the id is derived, so that a repeated request finds what the
        first one created."""
        now = await self._store.now()
        monitor, tokens = await self._prepare(actor, draft, now, new_id)
        if new_id and (known := await self._documents.read(monitor.id)) is not None:
            return _with_tokens(known)
        audit = entry(
            actor,
            "create_monitor",
            "monitor",
            monitor.id,
            at=now,
            owner=monitor.owner,
            changes=_changes(None, monitor),
        )
        await self._documents.add(monitor, audit)
        return NewMonitor(monitor=monitor, ping_token=tokens[0], badge_token=tokens[1])

    async def check_draft(self, actor: Actor, draft: MonitorDraft) -> None:
        """Raises as `create` would."""
        await self._prepare(actor, draft, await self._store.now(), "")

    async def _prepare(
        self, actor: Actor, draft: MonitorDraft, now: datetime, new_id: str
    ) -> tuple[Monitor, tuple[str, str]]:
        owner = draft.owner or actor.owner
        if actor.is_agent or not actor.may_write(owner):
            raise NotAllowed()
        monitor_id = _derived_id(new_id) if new_id else MonitorId(_random(_ID_LENGTH))
        ping, badge = _random(_SECRET_LENGTH), _random(_SECRET_LENGTH)
        monitor = Monitor(
            id=monitor_id,
            name=draft.name,
            owner=owner,
            trigger=draft.trigger,
            grace=draft.grace,
            tags=draft.tags,
            delivery=draft.delivery,
            created_at=now,
            updated_at=now,
            created_by=actor.name,
            updated_by=actor.name,
            counts_from=now,
            paused_at=now if draft.paused else None,
            noticed=MonitorStatus.PAUSED if draft.paused else MonitorStatus.NEW,
        )
        monitor = self._with_secrets(await self._complete(actor, monitor, None, now), ping, badge)
        return replace(monitor, indexed=monitor.noticed), (monitor_id + ping, monitor_id + badge)

    async def _complete(
        self, actor: Actor, monitor: Monitor, before: Monitor | None, now: datetime
    ) -> Monitor:
        """The monitor with the zone of its owner, checked."""
        rules = self._rules
        await rules.refresh_limits()
        zone = await rules.zone_for(monitor.owner, monitor.trigger)
        trigger = monitor.trigger.with_default_zone(zone)
        policy = with_default_zones(Policy(delivery=monitor.delivery), zone, trigger)
        monitor = replace(
            monitor,
            name=clean_name(monitor.name),
            trigger=trigger,
            tags=_checked_tags(monitor.tags),
            delivery=policy.delivery,
        )
        if not MIN_GRACE <= monitor.grace <= MAX_GRACE:
            raise InvalidInput(
                _("grace must be between 1 second and 365 days"), field="grace", code="out_of_range"
            )
        if before is None or trigger != before.trigger:
            if isinstance(trigger, EventTrigger):
                raise InvalidTrigger(
                    _("a monitor needs a trigger with times: cron, every or once"),
                    field="trigger",
                    code="not_supported",
                )
            if trigger.max_runs is not None:
                raise InvalidTrigger(
                    _("the trigger of a monitor has no max_runs: set end_at, or pause the monitor"),
                    field="trigger.max_runs",
                    code="not_supported",
                )
            rules.check_trigger(actor, monitor.owner, trigger, now)
        known = () if before is None else before.delivery
        if monitor.delivery != known:
            rules.check_recipients(monitor.delivery)
            _refuse_escalation(monitor.delivery)
            await rules.check_secrets(actor, monitor.owner, None, monitor.delivery)
            await check_chats(self._store, actor, monitor.delivery, known)
        return monitor

    def _with_secrets(self, monitor: Monitor, ping: str, badge: str) -> Monitor:
        """The URLs can be shown again only if the store encrypts their secret parts."""
        keyring = self._store.keyring
        kept = (ping, badge) if keyring.can_seal or not keyring.durable else ()
        return replace(monitor, ping_hash=_hash(ping), badge_hash=_hash(badge), secrets=kept)

    async def edit(
        self,
        actor: Actor,
        monitor_id: str,
        change: Callable[[Monitor], Monitor],
        *,
        version: int | None = None,
    ) -> Monitor:
        """`change` sets fields that people choose. `version`: the expected one, or StaleVersion."""
        before = await self._writable(actor, monitor_id)
        now = await self._store.now()
        wanted = await self._complete(actor, change(before), before, now)

        def apply(stored: Monitor) -> Monitor:
            if version is not None and stored.version != version:
                raise StaleVersion(version=stored.version)
            after = replace(
                stored,
                name=wanted.name,
                trigger=wanted.trigger,
                grace=wanted.grace,
                tags=wanted.tags,
                delivery=wanted.delivery,
            )
            return edit_monitor(stored, after, now, actor.name)

        return await self._change(actor, "update_monitor", before, apply, now)

    async def pause(self, actor: Actor, monitor_id: str) -> Monitor:
        before = await self._operable(actor, monitor_id)
        now = await self._store.now()
        change = partial(pause_monitor, now=now, by=actor.name)
        return await self._change(actor, "pause_monitor", before, change, now)

    async def resume(self, actor: Actor, monitor_id: str) -> Monitor:
        before = await self._operable(actor, monitor_id)
        now = await self._store.now()
        change = partial(resume_monitor, now=now, by=actor.name)
        return await self._change(actor, "resume_monitor", before, change, now)

    async def rotate(self, actor: Actor, monitor_id: str) -> NewMonitor:
        """New URLs of ping and badge; the old ones are unknown at once."""
        before = await self._writable(actor, monitor_id)
        now = await self._store.now()
        ping, badge = _random(_SECRET_LENGTH), _random(_SECRET_LENGTH)

        def apply(stored: Monitor) -> Monitor:
            after = self._with_secrets(stored, ping, badge)
            return replace(after, version=stored.version + 1, updated_at=now, updated_by=actor.name)

        after = await self._change(actor, "rotate_monitor", before, apply, now)
        return NewMonitor(monitor=after, ping_token=before.id + ping, badge_token=before.id + badge)

    async def delete(self, actor: Actor, monitor_id: str) -> None:
        before = await self._writable(actor, monitor_id)
        now = await self._store.now()
        audit = entry(actor, "delete_monitor", "monitor", before.id, at=now, owner=before.owner)
        await self._documents.remove(before.id, audit)

    async def _change(
        self,
        actor: Actor,
        verb: str,
        monitor: Monitor,
        change: Callable[[Monitor], Monitor],
        now: datetime,
    ) -> Monitor:
        def audited(before: Monitor, after: Monitor) -> AuditEntry:
            changes = _changes(before, after)
            return entry(
                actor, verb, "monitor", monitor.id, at=now, owner=monitor.owner, changes=changes
            )

        after = await self._documents.change(monitor.id, change, audited)
        await self._documents.publish(after)
        return await self._documents.settle(after)

    async def _writable(self, actor: Actor, monitor_id: str) -> Monitor:
        monitor = await self.get(actor, monitor_id)
        if actor.is_agent or not actor.may_write(monitor.owner):
            raise NotAllowed()
        return monitor

    async def _operable(self, actor: Actor, monitor_id: str) -> Monitor:
        monitor = await self.get(actor, monitor_id)
        if not actor.may_operate(monitor.owner):
            raise NotAllowed()
        return monitor

    # --- pings and badges ---------------------------------------------------------------------
    async def ping(
        self,
        token: str,
        kind: PingKind,
        *,
        exit_code: int | None = None,
        rid: str = "",
        address: str = "",
        body: bytes = b"",
    ) -> Monitor:
        """Records a ping. Raises NotFound for an unknown token, StoreUnavailable."""
        monitor_id, secret = _split(token)
        now = await self._store.now()

        def apply(stored: Monitor) -> Monitor:
            if not hmac.compare_digest(stored.ping_hash, _hash(secret)):
                raise NotFound()
            return record_ping(
                stored, kind, now, exit_code=exit_code, rid=rid, address=address, size=len(body)
            )

        monitor = await self._documents.change(monitor_id, apply)
        try:
            if monitor.pending:
                # Lets nodes check it: this process may end before it has settled it.
                await self._documents.publish(monitor)
            settled = await self._documents.settle(monitor)
            if body:
                await self._documents.add_log(monitor, readable_log(body))
            return settled
        except StoreError:
            # The ping is recorded: the next check of a node settles it.
            return monitor

    async def badge_status(self, token: str) -> tuple[str, MonitorStatus]:
        """Name and status of the monitor with this badge. Raises NotFound."""
        monitor_id, secret = _split(token)
        monitor = await self._documents.read(monitor_id)
        if monitor is None or not hmac.compare_digest(monitor.badge_hash, _hash(secret)):
            raise NotFound()
        return monitor.name, status_at(monitor, await self._store.now())


class MonitorDocuments:
    """How monitors are stored; for the service and for the duty that watches them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = DocumentStore(store, INDEX)
        self._revision = DocumentStore(store, REVISION)

    async def read(self, monitor_id: MonitorId) -> Monitor | None:
        """None if there is none, or it cannot be read."""
        if not _ID.fullmatch(monitor_id):
            return None
        stored = await self._document(monitor_id).read()
        return _decode(stored) if stored else None

    async def read_all(self, ids: Iterable[MonitorId]) -> list[Monitor]:
        """Those that exist, in this order."""
        readers = asyncio.Semaphore(_READERS)

        async def read(monitor_id: MonitorId) -> Monitor | None:
            async with readers:
                return await self.read(monitor_id)

        found = await asyncio.gather(*(read(each) for each in ids))
        return [each for each in found if each is not None]

    async def read_index(self) -> list[IndexEntry]:
        return [
            _entry(MonitorId(name), value)
            for name, value in (await self._index.read()).items()
            if isinstance(value, dict)
        ]

    async def read_revision(self) -> int:
        """Rises with every monitor that is created, edited, paused, resumed or deleted."""
        found = (await self._revision.read()).get("number", 0)
        return found if isinstance(found, int) else 0

    async def read_logs(self, monitor_id: MonitorId) -> dict[int, str]:
        stored = await self._logs(monitor_id).read()
        return {int(number): str(text) for number, text in stored.items() if number.isdigit()}

    async def add(self, monitor: Monitor, audit: AuditEntry) -> None:
        """The index first: an entry without a document is removed by `forget`, but a document
        without an entry would never be checked."""
        await self._index.change(partial(_with_new, monitor=monitor))

        def create(stored: Document) -> tuple[Document, AuditEntry]:
            if stored:
                raise AlreadyExists(_("monitor {id} already exists", id=monitor.id))
            return _codec.encode(monitor), audit

        await self._document(monitor.id).change(create)
        await self._raise_revision()

    async def change(
        self,
        monitor_id: MonitorId,
        change: Callable[[Monitor], Monitor],
        audit: Callable[[Monitor, Monitor], AuditEntry] | None = None,
    ) -> Monitor:
        """Applies a pure function. Raises NotFound. Events that it adds are logged."""
        numbers: list[int] = []

        def apply(stored: Document) -> tuple[Document, AuditEntry | None]:
            before = _decode(stored) if stored else None
            if before is None:
                raise _not_found(monitor_id)
            after = change(before)
            numbers[:] = range(before.event_count + 1, after.event_count + 1)
            if after == before:
                return stored, None
            note = None if audit is None else audit(before, after)
            return _codec.encode(after), note

        monitor = _decode(await self._document(monitor_id).change(apply))
        if monitor is None:
            raise _not_found(monitor_id)
        for event in monitor.events:
            if event.number in numbers:
                _report(monitor, event)
        return monitor

    async def publish(self, monitor: Monitor) -> None:
        """Writes the index entry of a changed monitor, and lets nodes read it."""
        await self._index.change(partial(_with_entry, monitor=monitor))
        await self._raise_revision()

    async def settle(self, monitor: Monitor) -> Monitor:
        """Writes the deliveries of pending events and the status in the index."""
        if is_settled(monitor):
            return monitor
        hit("monitor.before_deliveries")
        now = await self._store.now()
        pending = [each for each in monitor.events if each.number in monitor.pending]
        for event in pending:
            for delivery in plan_monitor_deliveries(monitor, event, now):
                await self._store.add_delivery(delivery)
        hit("monitor.after_deliveries")
        if monitor.indexed is not monitor.noticed:
            await self._index.change(partial(_with_entry, monitor=monitor))
        settled = partial(settle_monitor, events=monitor.pending, indexed=monitor.noticed)
        return await self.change(monitor.id, settled)

    async def check(self, monitor_id: MonitorId) -> Monitor | None:
        """The monitor with what has become late or down, settled. None: it does not exist."""
        monitor = await self.read(monitor_id)
        if monitor is None:
            return None
        now = await self._store.now()
        if check_monitor(monitor, now) is not monitor:
            try:
                monitor = await self.change(monitor_id, partial(check_monitor, now=now))
            except NotFound:
                return None
        return await self.settle(monitor)

    async def remove(self, monitor_id: MonitorId, audit: AuditEntry) -> None:
        def delete(stored: Document) -> tuple[Document, AuditEntry]:
            if not stored:
                raise _not_found(monitor_id)
            return {}, audit

        await self._document(monitor_id).change(delete)
        await self._logs(monitor_id).change(lambda stored: ({}, None))
        await self.forget(monitor_id)

    async def forget(self, monitor_id: MonitorId) -> None:
        """Removes the entry of a monitor that does not exist."""

        def remove(index: Document) -> tuple[Document, None]:
            return {name: value for name, value in index.items() if name != monitor_id}, None

        await self._index.change(remove)
        await self._raise_revision()

    async def add_log(self, monitor: Monitor, text: str) -> None:
        def add(stored: Document) -> tuple[Document, None]:
            logs = stored | {str(monitor.ping_count): text}
            kept = sorted(logs, key=int)[-MAX_LOGS:]
            return {name: logs[name] for name in kept}, None

        await self._logs(monitor.id).change(add)

    async def _raise_revision(self) -> None:
        def add(stored: Document) -> tuple[Document, None]:
            number = stored.get("number", 0)
            return {"number": (number if isinstance(number, int) else 0) + 1}, None

        await self._revision.change(add)

    def _document(self, monitor_id: MonitorId) -> DocumentStore:
        return DocumentStore(self._store, f"{_MONITOR}{monitor_id}")

    def _logs(self, monitor_id: MonitorId) -> DocumentStore:
        return DocumentStore(self._store, f"{_MONITOR}{monitor_id}:logs")


def _refuse_escalation(recipients: Sequence[Recipient]) -> None:
    for place, recipient in enumerate(recipients):
        if recipient.after is not None:
            raise InvalidInput(
                _("monitors have no escalation: leave `after` out, or lengthen the grace"),
                field=f"delivery[{place}].after",
                code="not_supported",
            )


# --- tokens ---------------------------------------------------------------------------------------
_ID = re.compile(rf"[a-z0-9]{{{_ID_LENGTH}}}")


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _place in range(length))


def _derived_id(text: str) -> MonitorId:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    digits = []
    for _place in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return MonitorId("".join(digits))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _split(token: str) -> tuple[MonitorId, str]:
    if not _TOKEN.fullmatch(token):
        raise NotFound()
    return MonitorId(token[:_ID_LENGTH]), token[_ID_LENGTH:]


def ping_token(monitor: Monitor) -> str:
    """Empty if the store does not have it."""
    return monitor.id + monitor.secrets[0] if monitor.secrets else ""


def badge_token(monitor: Monitor) -> str:
    return monitor.id + monitor.secrets[1] if monitor.secrets else ""


def _with_tokens(monitor: Monitor) -> NewMonitor:
    return NewMonitor(
        monitor=monitor, ping_token=ping_token(monitor), badge_token=badge_token(monitor)
    )


# --- documents ------------------------------------------------------------------------------------
def _decode(stored: Document) -> Monitor | None:
    try:
        return _codec.decode(stored)
    except (InvalidInput, ValueError, TypeError) as error:
        _log.warning("a monitor cannot be read: %s", error)
        return None


def _entry(monitor_id: MonitorId, value: Mapping[str, object]) -> IndexEntry:
    status = str(value.get("status", ""))
    return IndexEntry(
        id=monitor_id,
        owner=str(value.get("owner", "")),
        name=str(value.get("name", "")),
        status=MonitorStatus(status) if status in set(MonitorStatus) else MonitorStatus.NEW,
        version=cast(int, value.get("version", 0)),
    )


def _with_entry(index: Document, monitor: Monitor) -> tuple[Document, None]:
    if monitor.id not in index:
        # Deleted meanwhile.
        return index, None
    return index | {monitor.id: _plain_entry(monitor)}, None


def _with_new(index: Document, monitor: Monitor) -> tuple[Document, None]:
    owned = sum(
        isinstance(each, dict) and each.get("owner") == str(monitor.owner)
        for each in index.values()
    )
    for count, most in ((len(index), MAX_MONITORS), (owned, MAX_MONITORS_PER_OWNER)):
        if count >= most and monitor.id not in index:
            raise QuotaExceeded(
                _(
                    "there are {count} monitors already, and at most {most} are possible: delete "
                    "some first",
                    count=count,
                    most=most,
                )
            )
    return index | {monitor.id: _plain_entry(monitor)}, None


def _plain_entry(monitor: Monitor) -> Document:
    return {
        "owner": str(monitor.owner),
        "name": monitor.name[:_INDEXED_NAME],
        "status": monitor.noticed.value,
        "version": monitor.version,
    }


def _position(each: IndexEntry) -> tuple[str, str]:
    return each.name.lower(), each.id


def _visible(actor: Actor, owner: str) -> bool:
    kind, _colon, name = owner.partition(":")
    if kind not in set(OwnerType):
        return actor.sees_everything
    return actor.may_see(Owner(type=OwnerType(kind), id=name))


def _not_found(monitor_id: str) -> NotFound:
    return NotFound(_("there is no monitor {id!r}", id=monitor_id[:100]))


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    cleaned = tuple(dict.fromkeys(each.strip() for each in tags if each.strip()))
    if len(cleaned) > MAX_TAGS or any(len(each) > MAX_TAG_LENGTH for each in cleaned):
        raise InvalidInput(
            _(
                "a monitor has at most {most} tags of up to {length} characters",
                most=MAX_TAGS,
                length=MAX_TAG_LENGTH,
            ),
            field="tags",
            code="too_many",
        )
    return tuple(check_text(each, "tags") for each in cleaned)


def readable_log(body: bytes) -> str:
    """The end of a body as text: without control characters, secrets masked."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    text = _UNSAFE.sub("", text)
    # Masked before it is cut, so that no half of a secret is kept.
    return mask_text(text)[-MAX_LOG_LENGTH:]


def _changes(before: Monitor | None, after: Monitor) -> dict[str, object]:
    old = {} if before is None else _audited(before)
    new = _audited(after)
    return {name: [old.get(name), new[name]] for name in new if old.get(name) != new[name]}


def _audited(monitor: Monitor) -> dict[str, object]:
    recipients = [mask_secrets(recipient_to_plain(each)) for each in monitor.delivery]
    return {
        "name": monitor.name,
        "trigger": monitor.trigger.to_dict(),
        "grace": format_duration_iso(monitor.grace),
        "tags": list(monitor.tags),
        "delivery": recipients,
        "paused": monitor.paused_at is not None,
    }


def _report(monitor: Monitor, event: MonitorEvent) -> None:
    _log.info(
        "monitor %s",
        event.kind.value,
        extra={
            "monitor": monitor.id,
            "name_of_monitor": monitor.name,
            "cause": "" if event.cause is None else event.cause.value,
        },
    )
