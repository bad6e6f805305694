"""Identities: what they look like and how they are made."""

from __future__ import annotations

import base64
import hashlib
import secrets
import uuid
from datetime import datetime
from functools import lru_cache
from typing import NewType

ScheduleId = NewType("ScheduleId", str)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
KeyId = NewType("KeyId", str)
DeliveryId = NewType("DeliveryId", str)
InboxId = NewType("InboxId", str)

SLOT_NAMESPACE = uuid.UUID("8a3f6b52-6f0e-5d0b-9d5c-3c1c0c4d1e57")
DECLARED_NAMESPACE = uuid.UUID("0c5a4a1c-3f5e-5a34-9a34-3f7f1b2a6d10")
_SLOT_BYTES = SLOT_NAMESPACE.bytes


def uuid7(now: datetime) -> str:
    """A time-ordered id (RFC 9562, version 7): rows made together lie together."""
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
    """Twenty characters, the time first, as users of KWeaver know them."""
    data = (int(now.timestamp()) & 0xFFFFFFFF).to_bytes(4) + secrets.token_bytes(8)
    return ScheduleId(base64.b32hexencode(data).decode().rstrip("=").lower())


def declared_id(namespace: str, name: str, generation: int) -> ScheduleId:
    """The same wherever a schedule is declared, so that of two that create it at once one is told
    so; and the same in both modes, so that a slot has one run whoever computes it (C12). An id is
    never used again after a delete: the next generation has its own slots."""
    return ScheduleId(str(uuid.uuid5(DECLARED_NAMESPACE, f"{namespace}\0{name}\0{generation}")))


def manual_run_id(now: datetime) -> RunId:
    return RunId(uuid7(now))


def slot_run_id(schedule_id: ScheduleId, slot: datetime) -> RunId:
    """The same slot of the same schedule has the same run id for ever, on every node and store."""
    return RunId(_uuid5(slot_key(schedule_id, slot)))


def step_run_id(parent: RunId, step: str, index: int | None = None) -> RunId:
    """The same step of the same flow run has the same run id, whoever asks for it and however
    often; `index` is the place in a mapped list."""
    place = "" if index is None else f":{index}"
    return RunId(_uuid5(f"step:{parent}:{step}{place}"))


def _uuid5(name: str) -> str:
    """`str(uuid.uuid5(SLOT_NAMESPACE, name))` without making UUIDs: every fire needs one."""
    digest = bytearray(hashlib.sha1(_SLOT_BYTES + name.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def slot_key(schedule_id: ScheduleId, slot: datetime) -> str:
    """C5. Microseconds appear only where a slot has them, so whole seconds read as in the seed."""
    return f"schedule:{schedule_id}:{_slot_text(slot)}"


# Those of a crowd have the same.
@lru_cache(maxsize=256)
def _slot_text(slot: datetime) -> str:
    seconds, micros = divmod(round(slot.timestamp() * 1_000_000), 1_000_000)
    return f"{seconds}" + (f".{micros:06d}" if micros else "")
