"""Access rules: roles, scopes and owners."""

from __future__ import annotations

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role, revoke
from chimes.model.ids import KeyId
from tests.builders import ALICE, BOB, HOUR, NOW, a_key


@pytest.mark.parametrize(
    ("role", "own", "others"),
    [
        # see, write, operate
        (Role.VIEWER, (True, False, False), (False, False, False)),
        (Role.MEMBER, (True, True, True), (False, False, False)),
        (Role.OPERATOR, (True, False, True), (True, False, True)),
        (Role.ADMIN, (True, True, True), (True, True, True)),
    ],
)
def test_permissions_of_each_role(
    role: Role, own: tuple[bool, bool, bool], others: tuple[bool, bool, bool]
) -> None:
    actor = Actor(owner=ALICE, role=role)
    for owner, expected in ((ALICE, own), (BOB, others)):
        may = (actor.may_see(owner), actor.may_write(owner), actor.may_operate(owner))
        assert may == expected
    assert actor.sees_everything == others[0]


def test_owner_of_another_type_is_another_owner() -> None:
    chat = Owner(type=OwnerType.CHAT, id=ALICE.id)
    assert not Actor(owner=ALICE, role=Role.MEMBER).may_see(chat)
    assert str(chat) == "chat:alice"


def test_actor_name_is_its_key_or_owner() -> None:
    assert Actor(owner=ALICE).name == "user:alice"
    assert Actor(owner=ALICE, key_id=KeyId("k1")).name == "key:k1"


def test_a_key_is_usable_until_it_expires_or_is_revoked() -> None:
    key = a_key(expires_at=NOW + HOUR)
    assert key.usable(NOW)
    assert not key.usable(NOW + HOUR)
    assert a_key().usable(NOW + 10_000 * HOUR)
    assert not revoke(key, NOW).usable(NOW)


def test_a_key_is_revoked_once() -> None:
    key = a_key()
    once = revoke(key, NOW)
    assert once == replace(key, revoked_at=NOW)
    assert revoke(once, NOW + HOUR) is once
