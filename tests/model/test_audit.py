"""The hash chain of the audit trail."""

from __future__ import annotations

import pytest
from msgspec.structs import fields

from chimes.model import replace
from chimes.model.audit import AuditEntry, chain_entry, entry_hash, verify_chain
from chimes.store.codec.records import audit_from_plain, audit_to_plain
from tests.builders import HOUR, NOW, an_entry


def chain(length: int) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for number in range(1, length + 1):
        before = entries[-1].hash if entries else ""
        entries.append(chain_entry(an_entry(verb=str(number)), number=number, previous_hash=before))
    return entries


def test_unchanged_chain_is_valid() -> None:
    assert verify_chain([]) is None
    assert verify_chain(chain(1)) is None
    assert verify_chain(chain(5)) is None


def test_part_of_a_chain_is_valid() -> None:
    assert verify_chain(chain(5)[2:]) is None


def test_hash_of_an_entry_is_independent_of_key_order() -> None:
    (entry,) = chain(1)
    assert entry.hash == entry_hash(replace(entry, hash="anything"))
    turned = replace(entry, changes=dict(reversed(list(entry.changes.items()))))
    assert entry_hash(turned) == entry.hash


CHANGES = {
    "at": NOW + HOUR,
    "actor": "x",
    "interface": "x",
    "verb": "x",
    "object_kind": "x",
    "object_id": "x",
    "owner": "x",
    "changes": {},
    "reason": "x",
    "address": "x",
    "allowed": False,
    "number": 77,
    "previous_hash": "x",
    "hash": "x",
}


def test_hashes_of_earlier_versions_verify() -> None:
    """An entry stored when the field `interface` was named `door`."""
    stored = {
        "number": 1,
        "at": "2026-01-02T03:04:05Z",
        "actor": "key:k1",
        "door": "ksana",
        "verb": "create",
        "object_kind": "schedule",
        "object_id": "s1",
        "owner": "user:alice",
        "changes": {"enabled": [True, False]},
        "reason": "",
        "address": "127.0.0.1",
        "allowed": True,
        "previous_hash": "",
        "hash": "64a5629358116f89d0e7b8ad7471a8bbf2cb8c551350ad9002407cf27a31306c",
    }
    entry = audit_from_plain(stored)
    assert entry.interface == "ksana"
    assert verify_chain([entry]) is None
    written = audit_to_plain(entry)
    assert written["interface"] == "ksana"
    assert "door" not in written
    assert audit_from_plain(written) == entry


def test_changes_cover_every_field() -> None:
    assert set(CHANGES) == {field.name for field in fields(AuditEntry)}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_any_field_breaks_the_chain(name: str) -> None:
    entries = chain(3)
    entries[1] = replace(entries[1], **{name: CHANGES[name]})
    assert verify_chain(entries) is entries[1]


def test_a_missing_entry_breaks_the_chain() -> None:
    entries = chain(4)
    del entries[1]
    assert verify_chain(entries) is entries[1]


def test_a_changed_entry_with_a_new_hash_breaks_its_follower() -> None:
    entries = chain(3)
    forged = replace(entries[0], actor="nobody")
    entries[0] = replace(forged, hash=entry_hash(forged))
    assert verify_chain(entries) is entries[1]
