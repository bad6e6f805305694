"""Encodes what the engine and the services record: runs, deliveries, nodes, audit entries, keys."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from chimes.envelope import Keyring
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import NodeId
from chimes.model.node import NodeReport
from chimes.model.notification import Artifact, Delivery, InboxItem
from chimes.model.policy import RunDefaults
from chimes.model.run import Attempt, LogEntry, Run, RunDefinition
from chimes.store.codec.values import (
    Plain,
    codec_of,
    declare_codec,
    open_text,
    policy_from_plain,
    policy_to_plain,
    seal_text,
)

# --- runs, attempts and log entries ---------------------------------------------------------------
_attempt = declare_codec(Attempt, missing={"node": NodeId("")})
attempt_to_plain = _attempt.encode
attempt_from_plain = _attempt.decode

_log = declare_codec(LogEntry, always=("number",), required=("number", "level"))
log_to_plain = _log.encode
log_from_plain = _log.decode

_definition = codec_of(RunDefinition)
definition_to_plain = _definition.encode
definition_from_plain = _definition.decode
# A run whose status is lost must not be queued again.
_run = declare_codec(Run, without=("definition",), required=("status",))


def run_to_plain(run: Run) -> Plain:
    """The fields of the definition stand beside those of the run."""
    return _definition.encode(run.definition) | _run.encode(run)


def run_from_plain(data: object) -> Run:
    definition = _definition.decode(data, beside=_run.names)
    return _run.decode(data, beside=_definition.names, definition=definition)


def run_state_to_plain(run: Run) -> Plain:
    """Without the definition."""
    return _run.encode(run)


def run_state_from_plain(data: object, definition: RunDefinition) -> Run:
    return _run.decode(data, definition=definition)


# --- deliveries and inbox items -------------------------------------------------------------------
_delivery = declare_codec(Delivery, missing={"owner": SYSTEM_OWNER})
delivery_to_plain = _delivery.encode
delivery_from_plain = _delivery.decode

_artifact = declare_codec(Artifact, always=("name", "url"), missing={"name": "", "url": ""})
_inbox = declare_codec(InboxItem, missing={"owner": SYSTEM_OWNER, "title": ""})
inbox_to_plain = _inbox.encode
inbox_from_plain = _inbox.decode


def artifacts_to_plain(artifacts: tuple[Artifact, ...]) -> list[Plain]:
    return [_artifact.encode(each) for each in artifacts]


def artifacts_from_plain(data: object) -> tuple[Artifact, ...]:
    if not isinstance(data, list):
        raise InvalidInput(_("expected a list, got {type}", type=type(data).__name__))
    return tuple(_artifact.decode(each) for each in data)


# --- node reports and run defaults ----------------------------------------------------------------
def report_to_text(report: NodeReport | None) -> str:
    if report is None:
        return ""
    plain = {
        "running": report.running,
        "sending": report.sending,
        "claims_per_minute": report.claims_per_minute,
        "memory": report.memory,
        "queues": list(report.queues),
        "draining": report.draining,
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def report_from_text(text: str) -> NodeReport | None:
    """None for a report of a newer version that cannot be read."""
    try:
        plain = json.loads(text) if text else None
        if plain is None:
            return None
        memory = plain.get("memory")
        return NodeReport(
            running=int(plain.get("running", 0)),
            sending=int(plain.get("sending", 0)),
            claims_per_minute=float(plain.get("claims_per_minute", 0.0)),
            memory=None if memory is None else int(memory),
            queues=tuple(str(each) for each in plain.get("queues", ())),
            draining=bool(plain.get("draining", False)),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def defaults_to_plain(defaults: RunDefaults | None) -> dict[str, object] | None:
    if defaults is None:
        return None
    plain: dict[str, object] = {
        "policy": policy_to_plain(defaults.policy),
        "priority": defaults.priority,
    }
    if defaults.arguments:
        plain["arguments"] = dict(defaults.arguments)
    return plain


def defaults_from_plain(capabilities: object) -> dict[str, RunDefaults]:
    """Defaults by capability. A list has only names; entries of a newer version that cannot be read
    are ignored."""
    found: dict[str, RunDefaults] = {}
    for requirement, plain in capabilities.items() if isinstance(capabilities, Mapping) else ():
        if plain is None:
            continue
        with contextlib.suppress(InvalidInput, ValueError, KeyError, TypeError):
            arguments = plain.get("arguments")
            found[requirement] = RunDefaults(
                policy=policy_from_plain(plain["policy"]),
                priority=int(plain["priority"]),
                arguments=arguments if isinstance(arguments, dict) else {},
            )
    return found


# --- audit entries, keys and checkpoints ----------------------------------------------------------
_audit = declare_codec(
    AuditEntry,
    always=AuditEntry.__struct_fields__,
    required=("number",),
)
audit_to_plain = _audit.encode


def audit_from_plain(data: object) -> AuditEntry:
    if isinstance(data, Mapping) and "door" in data and data.get("interface") is None:
        # Entries stored and exported before the field was renamed.
        data = {"interface" if name == "door" else name: value for name, value in data.items()}
    return _audit.decode(data)


_key = declare_codec(
    ApiKey,
    always=ApiKey.__struct_fields__,
    missing={"name": "", "created_by": "", "owner": SYSTEM_OWNER},
)
key_to_plain = _key.encode
key_from_plain = _key.decode

_checkpoint = declare_codec(Checkpoint, always=Checkpoint.__struct_fields__)
checkpoint_to_plain = _checkpoint.encode
checkpoint_from_plain = _checkpoint.decode


def seal_checkpoint(checkpoint: Checkpoint, keyring: Keyring) -> Plain:
    value = seal_text(checkpoint.value, checkpoint.name, keyring)
    return _checkpoint.encode(replace(checkpoint, value=value))


def open_checkpoint(data: object) -> Checkpoint:
    stored = _checkpoint.decode(data)
    return replace(stored, value=open_text(stored.value, stored.name))
