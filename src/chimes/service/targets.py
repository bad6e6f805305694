"""What holds for a target by its kind, and whether anybody is there to carry it out."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from chimes.errors import InvalidInput
from chimes.model.target import FlowTarget, HttpTarget, Target, TaskTarget
from chimes.store.port import Store
from chimes.triggers.reading import nearest

#: Of the model's Policy, and of an HTTP target unless the settings say otherwise.
HTTP_TIMEOUT = timedelta(seconds=10)
TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
LONGEST_HTTP_TIMEOUT = timedelta(minutes=15)
LONGEST_TASK_TIMEOUT = timedelta(days=7)
LONGEST_FLOW_TIMEOUT = timedelta(days=365)


def usual_timeout(target: Target) -> timedelta:
    """Where nobody said how long a run may take."""
    match target:
        case HttpTarget():
            return HTTP_TIMEOUT
        case TaskTarget():
            return TASK_TIMEOUT
        case FlowTarget():
            return FLOW_TIMEOUT


def longest_timeout(target: Target) -> timedelta:
    """For a flow this is all of its steps together."""
    match target:
        case HttpTarget():
            return LONGEST_HTTP_TIMEOUT
        case TaskTarget():
            return LONGEST_TASK_TIMEOUT
        case FlowTarget():
            return LONGEST_FLOW_TIMEOUT


async def check_offered(store: Store, target: Target, here: Collection[str]) -> None:
    """A task or a flow that no live node and no application `here` offers would wait for ever.
    Only names are compared; nothing is looked up or imported because of one (S66)."""
    if isinstance(target, HttpTarget) or target.needs in here:
        return
    now = await store.now()
    offered = {
        each for node in await store.nodes() if node.lease_until > now for each in node.offers
    }
    if target.needs in offered:
        return
    known = _names(target.kind, {*offered, *here})
    raise InvalidInput(
        f"no node that is alive offers the {target.kind} {target.name!r}",
        field="target.name",
        code=f"unknown_{target.kind}",
        hint=nearest(target.name, known),
    )


def _names(kind: str, offers: Collection[str]) -> list[str]:
    """Steps (`flow/step`) are offered as tasks, but only their flow may ask for them."""
    prefix = f"{kind}:"
    names = (each.removeprefix(prefix) for each in offers if each.startswith(prefix))
    return [name for name in names if "/" not in name]
