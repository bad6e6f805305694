"""Rows of definitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from chimes.errors import message_of
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER
from chimes.model.policy import Policy
from chimes.model.run import RunDefinition
from chimes.model.target import HttpTarget, SyncTarget, Target
from chimes.store.sql.rows.values import (
    TargetTexts,
    Value,
    owner_of,
    policy_of,
    policy_text,
    schedule_number,
    target_of,
)

_log = logging.getLogger(__name__)


def definition_values(definition: RunDefinition) -> dict[str, Value]:
    """Without key, digest and mark of use."""
    target, schedule_id = definition.target, definition.schedule_id
    return {
        "schedule": None if schedule_id is None else schedule_number(schedule_id),
        "schedule_id": schedule_id,
        "schedule_name": definition.schedule_name,
        "schedule_version": definition.schedule_version,
        "namespace": definition.namespace,
        "owner_type": definition.owner.type.value,
        "owner_id": definition.owner.id,
        "kind": target.kind,
        "target": TargetTexts()(target),
        "policy": policy_text(definition.policy),
        "needs": target.requirement,
    }


def definition_of(row: Sequence[Any]) -> tuple[RunDefinition, str]:
    """The definition, and why it cannot be read: parts that cannot be decoded are replaced by
    placeholders."""
    (
        _key,
        _digest,
        _schedule,
        schedule_id,
        schedule_name,
        schedule_version,
        namespace,
        owner_type,
        owner_id,
        kind,
        target,
        policy,
        needs,
        _used_at,
    ) = row
    damage: list[str] = []
    reason = ""
    values: dict[str, Any] = {}
    for name, decode, instead in (
        ("owner", lambda: owner_of(owner_type, owner_id), lambda: SYSTEM_OWNER),
        ("target", lambda: target_of(target), lambda: _placeholder(kind, needs)),
        ("policy", lambda: policy_of(policy), Policy),
    ):
        try:
            values[name] = decode()
        except Exception as error:
            _log.warning("%s of definition %s cannot be read: %s", name, _key, error)
            values[name] = instead()
            damage.append(name)
            reason = message_of(error)
    message = ""
    if damage:
        parts = ", ".join(sorted(damage))
        message = str(_("{parts} of this run cannot be read: {error}", parts=parts, error=reason))
    definition = RunDefinition(
        schedule_id=schedule_id,
        schedule_name=schedule_name,
        schedule_version=schedule_version,
        namespace=namespace,
        **values,
    )
    return definition, message


def _placeholder(kind: str, needs: str) -> Target:
    """The source of a sync run is in another column, so that it is still listed for its source."""
    if kind == "sync":
        return SyncTarget(source=needs.removeprefix("sync:"), collection="unreadable")
    return HttpTarget(url="unreadable:")
