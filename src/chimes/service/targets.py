"""What holds for a target by its kind, and whether anybody is there to carry it out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from chimes.errors import InvalidInput
from chimes.model.target import HttpTarget, Target
from chimes.store.port import Store
from chimes.triggers.reading import nearest

TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
#: By the kind of a target: where nobody said how long a run may take (of HTTP targets the settings
#: do), and the longest that may be asked for; of a flow all of its steps together.
USUAL_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(seconds=10),
    "task": TASK_TIMEOUT,
    "flow": FLOW_TIMEOUT,
}
LONGEST_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(minutes=15),
    "task": timedelta(days=7),
    "flow": timedelta(days=365),
}


def usual_timeout(target: Target) -> timedelta:
    return USUAL_TIMEOUTS[target.kind]


def longest_timeout(target: Target) -> timedelta:
    return LONGEST_TIMEOUTS[target.kind]


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
