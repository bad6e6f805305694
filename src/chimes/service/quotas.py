"""How many schedules an owner may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chimes.model.access import Owner, OwnerType, Quota
from chimes.service.prompts import NAMESPACE

#: R1.38, where nobody said otherwise.
USUAL_ACTIVE = 20
#: The quotas that hold for an owner.
QuotaRule = Callable[[Owner], tuple[Quota, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUse:
    quota: Quota
    used: int


def no_quotas(owner: Owner) -> tuple[Quota, ...]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerQuotas:
    """A QuotaRule. All schedules are counted where keys are on. Of those made through the Softnix
    door or in a chat the active ones are (R1.13): where keys are on, always for chats, and always
    where the number was set. 0 means no limit (C13)."""

    schedules: int
    active: int | None
    keys_on: bool

    def __call__(self, owner: Owner) -> tuple[Quota, ...]:
        found: list[Quota] = []
        if self.keys_on:
            found.append(Quota(limit=self.schedules))
        asked = self.active is not None or self.keys_on or owner.type is OwnerType.CHAT
        limit = USUAL_ACTIVE if self.active is None else self.active
        if asked and limit:
            found.append(Quota(limit=limit, active=True, namespace=NAMESPACE))
        return tuple(found)
