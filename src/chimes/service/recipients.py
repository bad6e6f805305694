"""Whether a caller may have messages sent to the recipients that it names."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from chimes.errors import InvalidInput
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.change import replace
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.store.port import Store
from chimes.triggers import Every, Trigger
from chimes.wording import say

#: The kept state of a chat that is linked to an owner, by the number of the chat.
LINKED_CHAT = "telegram:chat:"


def zoned(policy: Policy, zone: str, trigger: Trigger | None = None) -> Policy:
    """The same, with a zone where quiet hours and digests name none: the trigger's if that goes by
    the wall clock, else the one given."""
    if all(each.quiet is None and each.digest is None for each in policy.delivery):
        return policy
    if trigger is not None and not isinstance(trigger, Every):
        zone = trigger.with_default_zone(zone).zone
    return replace(policy, delivery=tuple(each.in_zone(zone) for each in policy.delivery))


async def check_chats(
    store: Store,
    actor: Actor,
    recipients: Sequence[Recipient],
    before: Collection[Recipient] = (),
) -> None:
    """S05: a chat that is not the caller's does not exist for it. An admin may name any, and what
    was there before may stay."""
    if actor.role is Role.ADMIN:
        return
    known = {each.to for each in before if each.channel is Channel.TELEGRAM}
    for place, recipient in enumerate(recipients):
        if recipient.channel is not Channel.TELEGRAM or recipient.to in known:
            continue
        if not await _is_own(store, actor.owner, recipient.to):
            raise InvalidInput(
                say("chat {chat} not found", chat=recipient.to),
                field=f"delivery[{place}].to",
                code="not_found",
                hint=say("link it first: send the code of your account to the bot"),
            )


async def _is_own(store: Store, owner: Owner, chat: str) -> bool:
    if owner.type is OwnerType.CHAT and owner.id == chat:
        return True
    state = await store.read_state(LINKED_CHAT + chat)
    if state is None:
        return False
    try:
        found = json.loads(state.value)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("owner") == str(owner)
