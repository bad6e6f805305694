"""What there is to choose from in the wizard: what nodes that are alive can carry out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.i18n import Message, _
from chimes.model.node import Node
from chimes.services.validation import ACTION, AGENT
from chimes.web.dashboard.core.page_request import PageRequest

_MISSING: Mapping[str, Message] = {
    AGENT: _(
        "No node has a pipeline for prompts yet. Set CHIMES_AGENT_PIPELINE, or call an address"
        " instead."
    ),
    ACTION: _("No node knows an action service yet. Set CHIMES_ACTION_URL."),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A collection of a source."""

    name: str
    #: `python`, `command`, `http_json`; empty: only other nodes know the source.
    driver: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    tasks: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    agent: bool = False
    action: bool = False
    #: JSON Schema of the arguments, by task.
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


async def offers_now(visit: PageRequest) -> Offers:
    nodes = await _alive(visit)
    known = {name for node in nodes for name in (*node.offers, *node.defaults)}
    pairs = {target.key for target, _unused in visit.door.sources.now.pairs()}
    pairs |= {name for name in known if name.startswith("sync:") and "#" in name}
    sources = visit.door.sources.now.by_id
    named = sorted(key.removeprefix("sync:").replace("#", "/", 1) for key in pairs)
    return Offers(
        tasks=_named(known, "task:"),
        flows=_named(known, "flow:"),
        pairs=tuple(
            Pair(name=name, driver=sources[source].driver if source in sources else "")
            for name in named
            for source in (name.partition("/")[0],)
        ),
        agent=_is_set_up(nodes, AGENT),
        action=_is_set_up(nodes, ACTION),
        arguments=_arguments(nodes),
    )


async def not_set_up(visit: PageRequest, kind: str) -> str:
    """What runs of this kind would fail for, in words; empty: nothing is missing."""
    if kind not in _MISSING or _is_set_up(await _alive(visit), kind):
        return ""
    return _MISSING[kind]


async def _alive(visit: PageRequest) -> list[Node]:
    return [node for node in await visit.door.store.nodes() if node.lease_until > visit.now]


def _is_set_up(nodes: list[Node], kind: str) -> bool:
    """Every node takes such runs, if only to say what is missing; those that can carry them out
    say how."""
    return any(kind in node.defaults for node in nodes)


def _named(known: set[str], prefix: str) -> tuple[str, ...]:
    """Steps of flows are tasks, too, but none that anybody starts by itself."""
    flows = {name.removeprefix("flow:") for name in known if name.startswith("flow:")}
    found = {name.removeprefix(prefix) for name in known if name.startswith(prefix)}
    return tuple(sorted(n for n in found if n.partition("/")[0] not in flows or "/" not in n))


def _arguments(nodes: list[Node]) -> Mapping[str, Mapping[str, object]]:
    """As the node that joined last tells it, as with all that nodes say about runs."""
    return {
        name.removeprefix("task:"): defaults.arguments
        for node in sorted(nodes, key=lambda node: node.started_at)
        for name, defaults in node.defaults.items()
        if name.startswith("task:") and defaults.arguments
    }
