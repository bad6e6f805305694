"""Concurrency keys belong to an owner, a schedule, or what Chimes itself limits."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.planning import manual_run, retry_run
from chimes.model.policy import Policy
from chimes.model.run import RESERVED_PREFIXES, RunStatus, backfill_key, own_key, shared_key
from chimes.model.target import FlowTarget, SyncTarget, TaskTarget
from chimes.model.validation import NAME_LIMIT, check_policy, longest_timeout, validate_policy
from chimes.store.sql.tables import KEY_TEXT, concurrency_keys, runs
from tests.builders import ALICE, HOUR, NOW, TARGET, a_schedule

PAIR = SyncTarget(source="shop", collection="orders")
PAY = TaskTarget(name="pay")


def key_of(name: str, owner: Owner = ALICE) -> str:
    found = shared_key(Policy(concurrency_key=name), TARGET, owner)
    assert found is not None
    return found


def test_a_name_in_a_policy_gets_the_owner_as_prefix() -> None:
    assert key_of("nightly") == "user:alice/nightly"
    assert key_of("nightly", Owner()) == "system:default/nightly"
    assert shared_key(Policy(), TARGET, ALICE) is None


@pytest.mark.parametrize(
    ("target", "key"),
    [(PAY, "task:pay"), (PAIR, "sync:shop#orders")],
)
def test_keys_of_targets_have_no_owner(target: TaskTarget | SyncTarget, key: str) -> None:
    policy = Policy(concurrency_key=key)
    assert shared_key(policy, target, ALICE) == key
    assert validate_policy(policy, target).concurrency_key == key
    # Of another target it is a name like others.
    assert shared_key(policy, TARGET, ALICE) == f"user:alice/{key}"


def test_keys_of_different_owners_differ() -> None:
    """Also where an id contains the separator, or looks like the hash of such an id."""
    ids = ["a", "a/b", "a/b/c", "/a", "a/", "", "%a", "%", "x" * 255, "x" * 256, "x" * 257]
    ids += [key_of("", Owner(id=each)).split(":", 1)[1][:-1] for each in ids]
    names = ["k", "b/k", "b/c/k", "c/k", "/k", "a/k", "%/k"]
    owners = {Owner(type=kind, id=each) for kind in OwnerType for each in ids}
    assert len({key_of(name, owner) for owner in owners for name in names}) == (
        len(owners) * len(names)
    )


def test_names_cannot_be_keys_of_chimes_itself() -> None:
    types = {f"{kind}:" for kind in OwnerType}
    assert types.isdisjoint(RESERVED_PREFIXES)
    for internal in (own_key("s"), backfill_key("b"), PAIR.key, PAY.requirement):
        assert internal.startswith(RESERVED_PREFIXES)
        assert not internal.startswith(tuple(types))


def test_the_longest_key_fits_into_its_columns() -> None:
    name = "n" * NAME_LIMIT
    check_policy(Policy(concurrency_key=name), longest_timeout=longest_timeout(TARGET))
    assert KEY_TEXT.length == 700
    assert runs.c.concurrency_key.type is concurrency_keys.c.name.type is KEY_TEXT
    for owner_id in ("x" * 255, "x" * 10_000, "/" * 255):
        for kind in OwnerType:
            assert len(key_of(name, Owner(type=kind, id=owner_id))) <= 700


@pytest.mark.parametrize("prefix", RESERVED_PREFIXES)
def test_reserved_prefixes_are_refused(prefix: str) -> None:
    for name in (f"{prefix}x", prefix, f" {prefix}x"):
        for target in (TARGET, PAY, FlowTarget(name="x")):
            with pytest.raises(InvalidInput) as caught:
                validate_policy(Policy(concurrency_key=name), target)
            assert (caught.value.field, caught.value.code) == ("policy.concurrency_key", "reserved")
            assert prefix in str(caught.value)
    for name in (prefix.removesuffix(":"), f"my {prefix}", "user:alice/x"):
        assert validate_policy(Policy(concurrency_key=name), TARGET).concurrency_key == name


# An earlier version stored them as the policy names them.
@pytest.mark.parametrize("name", ["nightly", "schedule:other", "task:pay"])
def test_a_retried_run_of_an_earlier_version_gets_the_key_of_its_owner(name: str) -> None:
    schedule = a_schedule(owner=ALICE, policy=Policy(concurrency_key=name))
    old = replace(manual_run(schedule, NOW), concurrency_key=name, status=RunStatus.FAILED)
    again = retry_run(old, NOW + HOUR)
    assert again.concurrency_key == f"user:alice/{name}"
    assert retry_run(again, NOW + HOUR).concurrency_key == again.concurrency_key


@pytest.mark.parametrize("key", [None, own_key("s"), backfill_key("b"), "task:pay"])
def test_a_retried_run_keeps_other_keys(key: str | None) -> None:
    named = "task:pay" if key == "task:pay" else None
    schedule = a_schedule(owner=ALICE, target=PAY, policy=Policy(concurrency_key=named))
    run = replace(manual_run(schedule, NOW), concurrency_key=key)
    assert retry_run(run, NOW + HOUR).concurrency_key == key
