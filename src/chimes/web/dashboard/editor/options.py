"""Choices in the editor: tasks, flows and sources that active nodes can execute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.i18n import Message, _
from chimes.model.node import Node
from chimes.services.schedules.rules import ACTION, AGENT
from chimes.web.dashboard.core.page_request import PageRequest

_MISSING: Mapping[str, Message] = {
    AGENT: _("No agent is configured. Set CHIMES_AGENT_PIPELINE, or use an HTTP request instead."),
    ACTION: _("No action service is configured. Set CHIMES_ACTION_URL."),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncPair:
    """A collection of a data source."""

    name: str
    #: `python`, `command` or `http_json`; empty if only other nodes have the source.
    driver: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    tasks: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    pairs: tuple[SyncPair, ...] = ()
    agent: bool = False
    action: bool = False
    #: JSON Schema of the arguments, by task.
    arguments: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


async def available_options(request: PageRequest) -> Options:
    nodes = await _active_nodes(request)
    known = {name for node in nodes for name in (*node.capabilities, *node.defaults)}
    pairs = {target.key for target, _policy in request.context.sources.now.pairs()}
    pairs |= {name for name in known if name.startswith("sync:") and "#" in name}
    sources = request.context.sources.now.by_id
    named = sorted(key.removeprefix("sync:").replace("#", "/", 1) for key in pairs)
    return Options(
        tasks=_named(known, "task:"),
        flows=_named(known, "flow:"),
        pairs=tuple(
            SyncPair(name=name, driver=sources[source].driver if source in sources else "")
            for name in named
            for source in (name.partition("/")[0],)
        ),
        agent=_is_configured(nodes, AGENT),
        action=_is_configured(nodes, ACTION),
        arguments=_arguments(nodes),
    )


async def missing_setup(request: PageRequest, kind: str) -> str:
    """Returns what is not configured for runs of this kind; empty if nothing is missing."""
    if kind not in _MISSING or _is_configured(await _active_nodes(request), kind):
        return ""
    return _MISSING[kind]


async def _active_nodes(request: PageRequest) -> list[Node]:
    return list(await request.context.nodes.list_active(request.now))


def _is_configured(nodes: list[Node], kind: str) -> bool:
    """Every node claims such runs to report what is missing; only nodes that can execute them
    publish defaults."""
    return any(kind in node.defaults for node in nodes)


def _named(known: set[str], prefix: str) -> tuple[str, ...]:
    """Returns the names with the prefix. Steps of flows are tasks that cannot be run alone."""
    flows = {name.removeprefix("flow:") for name in known if name.startswith("flow:")}
    found = {name.removeprefix(prefix) for name in known if name.startswith(prefix)}
    return tuple(sorted(n for n in found if n.partition("/")[0] not in flows or "/" not in n))


def _arguments(nodes: list[Node]) -> Mapping[str, Mapping[str, object]]:
    """Returns argument schemas by task; the node that started last wins."""
    return {
        name.removeprefix("task:"): defaults.arguments
        for node in sorted(nodes, key=lambda node: node.started_at)
        for name, defaults in node.defaults.items()
        if name.startswith("task:") and defaults.arguments
    }
