"""System, nodes: drain, resume, forget."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS
from chimes.doors.dashboard.visit import Visit
from chimes.model.ids import NodeId
from chimes.service.nodes import NodeService
from chimes.wording import say

pages = Pages()
HERE = "/ui/system"


@pages.post("/system/nodes/{id}/drain")
async def drain(visit: Visit) -> Response:
    nodes, node_id = _service(visit)
    question = Question(
        title=say("Drain this node?"),
        text=say(
            "It takes nothing new from its next heartbeat on and finishes what it has. The "
            "other nodes go on. It stays so until it is resumed or started anew."
        ),
        button=say("Drain"),
        names=[(await nodes.get(visit.actor, node_id)).id],
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await nodes.drain(visit.actor, node_id, reason=visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/resume")
    text = say("{node} was asked to drain; it hears of it with its next heartbeat.", node=node_id)
    return visit.done(text, to=visit.back(HERE), undo=undo)


@pages.post("/system/nodes/{id}/resume")
async def resume(visit: Visit) -> Response:
    nodes, node_id = _service(visit)
    await nodes.resume(visit.actor, node_id, reason=visit.form.text("reason"))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/drain", fields={"sure": "yes"})
    text = say("{node} was asked to go on.", node=node_id)
    return visit.done(text, to=visit.back(HERE), undo=undo)


@pages.post("/system/nodes/{id}/forget")
async def forget(visit: Visit) -> Response:
    nodes, node_id = _service(visit)
    question = Question(
        title=say("Forget this node?"),
        text=say("Its lease is over. What it still held is taken over by the others."),
        button=say("Forget"),
        names=[(await nodes.get(visit.actor, node_id)).id],
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await nodes.forget(visit.actor, node_id, reason=visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    return visit.done(say("{node} was forgotten.", node=node_id), to=visit.back(HERE))


def _service(visit: Visit) -> tuple[NodeService, NodeId]:
    return NodeService(visit.door.store), NodeId(visit.path["id"])
