"""List queries of the store, and pages of rows."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct, field

from chimes.model.access import Owner
from chimes.model.ids import DeliveryId, NodeId, RunId, ScheduleId
from chimes.model.notification import DeliveryState
from chimes.model.recipient import Channel
from chimes.model.run import Origin, RunStatus

Row = TypeVar("Row", covariant=True)

#: Where a page ended: the sort value of its last row (None where it has none), and the row's id.
Position = tuple[str | int | None, str]


class Page(Struct, Generic[Row], frozen=True):
    items: tuple[Row, ...]
    #: Pass it as `after` to get the next page; None: last page.
    next: Position | None


class ScheduleSort(StrEnum):
    NEXT_RUN_AT = "next_run_at"
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    NAME = "name"


class RunSort(StrEnum):
    CREATED_AT = "created_at"
    PLANNED_AT = "planned_at"


class ScheduleQuery(Struct, frozen=True, kw_only=True):
    """None: any. Rows without a sort value (no next run) come last in both directions."""

    owner: Owner | None = None
    namespace: str | None = None
    name: str | None = None
    #: Substring of the name, taken literally, case-sensitive.
    text: str | None = None
    enabled: bool | None = None
    kind: str | None = None
    #: Kinds of the trigger; empty: any.
    triggers: tuple[str, ...] = ()
    label: str | None = None
    #: With `label`: only where the label has this value.
    label_value: str | None = None
    #: With `kind`: required field values of the target, e.g. ("kn_id", "kn1").
    target: tuple[tuple[str, str], ...] = ()
    #: Only these, at most a thousand.
    ids: tuple[ScheduleId, ...] | None = None
    #: Status of the last run; empty: any.
    last_statuses: tuple[RunStatus, ...] = ()
    #: Next run at or before.
    due_by: datetime | None = None
    sort: ScheduleSort = ScheduleSort.CREATED_AT
    descending: bool = False
    after: Position | None = None
    limit: int | None = 50


class RunQuery(Struct, frozen=True, kw_only=True):
    owner: Owner | None = None
    namespace: str | None = None
    schedule_id: ScheduleId | None = None
    statuses: tuple[RunStatus, ...] = ()
    origin: Origin | None = None
    #: Only the steps of this flow run.
    parent_id: RunId | None = None
    #: Only in-flight runs of this node.
    holder: NodeId | None = None
    #: Only these, at most a thousand.
    ids: tuple[RunId, ...] | None = None
    #: Target requirement and concurrency key.
    requirement: str | None = None
    concurrency_key: str | None = None
    #: Planned at or after / before.
    since: datetime | None = None
    until: datetime | None = None
    #: Created at or after / at or before.
    created_since: datetime | None = None
    created_until: datetime | None = None
    sort: RunSort = RunSort.CREATED_AT
    descending: bool = True
    after: Position | None = None
    limit: int | None = 50


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Newest first; `before` is an entry's number."""

    owner: str | None = None
    object_id: str | None = None
    #: Objects (at most a thousand) and verbs.
    object_ids: tuple[str, ...] | None = None
    verbs: tuple[str, ...] | None = None
    #: Written at or after / at or before.
    since: datetime | None = None
    until: datetime | None = None
    verb: str | None = None
    actor: str | None = None
    interface: str | None = None
    before: int | None = None
    limit: int = 50


class DeliveryQuery(Struct, frozen=True, kw_only=True):
    """Newest first (created_at, id)."""

    owner: Owner | None = None
    run_id: RunId | None = None
    #: Only of these, at most a thousand.
    run_ids: tuple[RunId, ...] | None = None
    schedule_id: ScheduleId | None = None
    states: tuple[DeliveryState, ...] = ()
    channel: Channel | None = None
    #: Only these, at most a thousand.
    ids: tuple[DeliveryId, ...] | None = None
    after: Position | None = None
    limit: int | None = 50


class InboxQuery(Struct, frozen=True, kw_only=True):
    """Newest first (created_at, id)."""

    owner: Owner | None = None
    run_id: RunId | None = None
    schedule_id: ScheduleId | None = None
    unread: bool | None = None
    starred: bool | None = None
    archived: bool | None = False
    #: Not snoozed at this time; None: all.
    awake_at: datetime | None = None
    #: Snoozed at this time.
    asleep_at: datetime | None = None
    #: `InboxItem.status` is one of these; empty: all.
    statuses: tuple[str, ...] = ()
    after: Position | None = None
    limit: int | None = 50


class Counts(Struct, frozen=True, kw_only=True):
    schedules: int
    enabled: int
    #: Due now and not yet fired.
    due: int
    runs: dict[RunStatus, int]
    #: Deliveries by state.
    deliveries: dict[DeliveryState, int] = field(default_factory=dict)
