"""Id types, how ids are generated, and the namespaces of names and ids."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import uuid
from datetime import datetime
from functools import lru_cache
from typing import Final, NewType

DEFAULT_NAMESPACE: Final = "default"
#: Names of the default namespace in data of earlier versions: the native API and the SDK (ADR 36).
_FORMER: Final = ("native", "catbird")
_DEFAULT_AND_FORMER: Final = (DEFAULT_NAMESPACE, *_FORMER)


def canonical_namespace(name: str) -> str:
    """`default` for its former names, else the name itself."""
    return DEFAULT_NAMESPACE if name in _FORMER else name


def stored_namespaces(name: str) -> tuple[str, ...]:
    """All names under which rows of a namespace may be stored."""
    return _DEFAULT_AND_FORMER if name in _DEFAULT_AND_FORMER else (name,)


def id_namespace(name: str) -> str:
    """The name from which ids are derived. The default namespace keeps the one of the SDK, so that
    nodes of different versions derive the same ids."""
    return "catbird" if name == DEFAULT_NAMESPACE else name


_DECLARED: Final = re.compile(r".{8}-.{4}-5.{3}-.{4}-.{12}", re.DOTALL)

ScheduleId = NewType("ScheduleId", str)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
KeyId = NewType("KeyId", str)
DeliveryId = NewType("DeliveryId", str)
InboxId = NewType("InboxId", str)
MonitorId = NewType("MonitorId", str)

SLOT_NAMESPACE = uuid.UUID("8a3f6b52-6f0e-5d0b-9d5c-3c1c0c4d1e57")
DECLARED_NAMESPACE = uuid.UUID("0c5a4a1c-3f5e-5a34-9a34-3f7f1b2a6d10")
_SLOT_HASH = hashlib.sha1(SLOT_NAMESPACE.bytes, usedforsecurity=False)
#: The digit that has the variant of the UUID in its upper bits, by the digit of the hash.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_GENERATIONS = 20


def uuid7(now: datetime) -> str:
    """A time-ordered id (RFC 9562, version 7): rows created together are stored together."""
    milliseconds = int(now.timestamp() * 1000) & ((1 << 48) - 1)
    value = (
        milliseconds << 80
        | 0x7 << 76
        | secrets.randbits(12) << 64
        | 0b10 << 62
        | secrets.randbits(62)
    )
    return str(uuid.UUID(int=value))


def new_schedule_id(now: datetime) -> ScheduleId:
    return ScheduleId(uuid7(now))


def new_short_schedule_id(now: datetime) -> ScheduleId:
    """Twenty characters, time first, as in KWeaver."""
    data = (int(now.timestamp()) & 0xFFFFFFFF).to_bytes(4) + secrets.token_bytes(8)
    return ScheduleId(base64.b32hexencode(data).decode().rstrip("=").lower())


def declared_id(namespace: str, name: str, generation: int) -> ScheduleId:
    """Deterministic, so that concurrent creates conflict and a slot has one run in every mode. It
    is never reused after a delete: the next generation has its own slots."""
    return ScheduleId(
        str(uuid.uuid5(DECLARED_NAMESPACE, f"{id_namespace(namespace)}\0{name}\0{generation}"))
    )


def is_declared_id(schedule_id: str) -> bool:
    """Whether it has the form of a `declared_id`, a UUID of version 5; other ids are of version 7,
    short, or chosen by people."""
    return _DECLARED.fullmatch(schedule_id) is not None


def declared_ids(namespace: str, name: str) -> frozenset[ScheduleId]:
    """The ids of the first generations of a declared schedule."""
    return frozenset(declared_id(namespace, name, each) for each in range(1, _GENERATIONS + 1))


def manual_run_id(now: datetime) -> RunId:
    return RunId(uuid7(now))


def slot_run_id(schedule_id: ScheduleId, slot: datetime) -> RunId:
    """Deterministic per schedule and slot, on every node and store."""
    return RunId(_uuid5(slot_key(schedule_id, slot)))


def event_run_id(schedule_id: ScheduleId, delivery_id: str) -> RunId:
    """Deterministic per schedule and event, so that a repeated event starts no other run."""
    return RunId(_uuid5(f"event:{schedule_id}:{delivery_id}"))


def step_run_id(parent: RunId, step: str, index: int | None = None) -> RunId:
    """Deterministic per flow run and step; `index` is the position in a mapped list."""
    place = "" if index is None else f":{index}"
    return RunId(_uuid5(f"step:{parent}:{step}{place}"))


def _uuid5(name: str) -> str:
    """`str(uuid.uuid5(SLOT_NAMESPACE, name))` without UUID objects: every fired slot needs one."""
    digest = _SLOT_HASH.copy()
    digest.update(name.encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def slot_key(schedule_id: ScheduleId, slot: datetime) -> str:
    """The key of a slot; microseconds appear only where a slot has them."""
    return f"schedule:{schedule_id}:{_slot_text(slot)}"


# Many schedules share a slot.
@lru_cache(maxsize=256)
def _slot_text(slot: datetime) -> str:
    seconds, micros = divmod(round(slot.timestamp() * 1_000_000), 1_000_000)
    return f"{seconds}" + (f".{micros:06d}" if micros else "")
