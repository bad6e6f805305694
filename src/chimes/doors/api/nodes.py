"""The processes that share the store: listing, draining, resuming, forgetting."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from chimes.doors.api.inputs import ReasonIn
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    MISSING,
    Answers,
    NodeOut,
    NodePage,
    gives,
    problem,
)
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire_runs import node_out
from chimes.doors.context import Doorway
from chimes.model.ids import NodeId
from chimes.model.node import Node
from chimes.service.nodes import NodeService

router = APIRouter(
    prefix="/api/v1/nodes", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE
)
_GONE: Answers = {409: problem("Its lease is over")}
_ALIVE: Answers = {409: problem("Its lease is alive")}


@router.get("", responses=gives(NodePage))
async def list_nodes(door: ToDoorway, actor: Caller) -> Response:
    """The processes that share this store."""
    found = await NodeService(door.store).all(actor)
    now = await door.store.now()
    return JSONResponse({"items": [node_out(node, now) for node in found]})


@router.get("/{node_id}", responses=gives(NodeOut) | MISSING)
async def get_node(node_id: str, door: ToDoorway, actor: Caller) -> Response:
    """One node: what it does, what it offers, and whether it drains."""
    return await _shown(door, await NodeService(door.store).get(actor, NodeId(node_id)))


@router.post("/{node_id}/drain", responses=gives(NodeOut) | MISSING | BODY | _GONE)
async def drain_node(
    node_id: str, door: ToDoorway, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Let it take nothing new from its next heartbeat on; what it has goes on to its end. It stays
    drained until it is resumed, or its process is started anew."""
    reason = body.reason if body else ""
    nodes = NodeService(door.store)
    return await _shown(door, await nodes.drain(actor, NodeId(node_id), reason=reason))


@router.post("/{node_id}/resume", responses=gives(NodeOut) | MISSING | BODY | _GONE)
async def resume_node(
    node_id: str, door: ToDoorway, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Let a drained node go on."""
    reason = body.reason if body else ""
    nodes = NodeService(door.store)
    return await _shown(door, await nodes.resume(actor, NodeId(node_id), reason=reason))


@router.delete("/{node_id}", status_code=204, responses=MISSING | _ALIVE)
async def forget_node(node_id: str, door: ToDoorway, actor: Caller) -> Response:
    """Take a node off the list whose lease is over; its runs are taken over."""
    await NodeService(door.store).forget(actor, NodeId(node_id))
    return Response(status_code=204)


async def _shown(door: Doorway, node: Node) -> Response:
    return JSONResponse(node_out(node, await door.store.now()))
