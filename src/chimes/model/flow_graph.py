"""The steps of a flow as people see them: what a worker publishes for pictures of runs (ADR 82)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

#: Begins the name of the document with the graphs of a flow.
FLOW_GRAPHS = "flow-graphs:"
#: Graphs of earlier definitions that are kept for pictures of older runs.
MAX_GRAPHS = 10
#: A flow with more steps has no picture.
MAX_STEPS = 200


class GraphStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    after: tuple[str, ...] = ()
    #: Kind of the wait; empty: the step is a task.
    wait: str = ""
    #: It runs once for each element of a list.
    mapped: bool = False
    #: It may be skipped by its condition.
    conditional: bool = False


class FlowGraph(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    #: In dependency order.
    steps: tuple[GraphStep, ...]


class PublishedGraph(Struct, frozen=True, kw_only=True):
    #: When a worker first executed this definition.
    at: datetime
    graph: FlowGraph


def published(document: Mapping[str, object]) -> tuple[PublishedGraph, ...]:
    """The graphs of a document, oldest first."""
    try:
        return msgspec.convert(document.get("graphs", []), tuple[PublishedGraph, ...])
    except msgspec.ValidationError:
        return ()


def publish(document: Mapping[str, object], graph: FlowGraph, now: datetime) -> dict[str, object]:
    """The document with this graph as the newest."""
    known = published(document)
    if known and known[-1].graph == graph:
        return dict(document)
    graphs = (*known, PublishedGraph(at=now, graph=graph))[-MAX_GRAPHS:]
    return {"graphs": msgspec.to_builtins(graphs)}


def graph_at(graphs: Sequence[PublishedGraph], moment: datetime) -> FlowGraph | None:
    """The graph that was in use then; before the first one, the first."""
    found = [each.graph for each in graphs if each.at <= moment]
    if found:
        return found[-1]
    return graphs[0].graph if graphs else None


def layers(graph: FlowGraph) -> list[list[GraphStep]]:
    """The steps by the length of the longest path to them."""
    depth: dict[str, int] = {}
    found: list[list[GraphStep]] = []
    for step in graph.steps:
        level = 1 + max((depth.get(name, -1) for name in step.after), default=-1)
        depth[step.name] = level
        while len(found) <= level:
            found.append([])
        found[level].append(step)
    return found
