"""What the verbs of a store are given and answer with."""

from __future__ import annotations

from dataclasses import dataclass

from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.delivery import Delivery, InboxItem
from chimes.model.ids import NodeId, RunId
from chimes.model.kept_state import KeptState
from chimes.model.run import LogEntry, Run
from chimes.model.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """A node's offer to carry runs out at once."""

    node_id: NodeId
    #: What its runners can carry out: `http`, `task:NAME`, `flow:NAME` (`target.needs`).
    offers: frozenset[str]
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fired:
    #: Runs that were inserted already claimed for the node that offered places.
    claimed: tuple[Run, ...] = ()
    #: Every other row that was inserted: waiting, missed, skipped.
    others: tuple[Run, ...] = ()
    #: Schedules that could not be planned and were set aside, with the error in last_error.
    broken: tuple[Schedule, ...] = ()
    #: True if due schedules may be left: call again.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What became of a batch of verdicts."""

    #: The runs as they are now, in the order of the accepted verdicts.
    accepted: tuple[Run, ...] = ()
    #: Ownership was lost before the verdict came (fenced): the worker's word does not count.
    refused: tuple[RunId, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """The first request under an idempotency key. `status` 0: it is still under way."""

    fingerprint: str
    status: int = 0
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreStatus:
    kind: str
    #: Where the data is, without any password.
    location: str
    schema: str
    #: Why the store is not in full order, e.g. a corrupt file was set aside; empty when it is.
    degraded: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLog:
    """The whole log of a run, for export."""

    run_id: RunId
    entries: tuple[LogEntry, ...]


#: What a store consists of, apart from what only lives as long as the processes (nodes, requests).
Item = Schedule | Run | RunLog | AuditEntry | ApiKey | KeptState | Delivery | InboxItem
