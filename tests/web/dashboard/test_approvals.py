"""Pages of waiting flows, without scripts: approvals, the picture of a flow, retry from a step."""

from __future__ import annotations

from datetime import timedelta

from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.flow_graph import FlowGraph, GraphStep
from chimes.model.run import RunStatus
from chimes.model.wait import ApprovalStatus, Decision
from chimes.services.waits import ApprovalService, publish_graph
from tests.waiting_flows import add_waiting_flow
from tests.web.dashboard.browsing import browsing

PATH = "/ui/approvals"


async def test_an_approval_is_shown_and_decided() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        assert "No open approvals" in (await browser.get(PATH)).text
        flow, wait = await add_waiting_flow(store, await store.now(), prompt="<b>Publish</b>\nnow?")
        assert "1 flow waits for a decision." in (await browser.get("/ui/")).text
        assert f'href="{PATH}/{wait.id}"' in (await browser.get(PATH)).text
        run = (await browser.get(f"/ui/runs/{flow.id}")).text
        assert f'href="{PATH}/{wait.id}"' in run
        page = (await browser.get(f"{PATH}/{wait.id}")).text
        assert "<b>Publish" not in page
        assert "then it is rejected" in page
        done = await browser.send(f"{PATH}/{wait.id}/reject", reason="wrong month")
        assert "Rejected." in (await browser.follow(done)).text
        approval = await ApprovalService(store).get(Actor(), wait.id)
        assert (approval.status, approval.reason) == (ApprovalStatus.REJECTED, "wrong month")
        _flow, other = await add_waiting_flow(store, await store.now())
        await browser.get(f"{PATH}/{other.id}")
        await ApprovalService(store).decide(Actor(), other.id, Decision.APPROVE)
        late = await browser.send(f"{PATH}/{other.id}/reject")
        assert late.status_code == 409
        assert "decided already" in late.text
        assert "rejected a step of a flow" in (await browser.get("/ui/system/audit")).text


async def test_who_may_not_decide_gets_no_buttons() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        now = await store.now()
        _flow, wait = await add_waiting_flow(store, now - timedelta(hours=2))
        page = (await browser.get(f"{PATH}/{wait.id}")).text
        assert "expired" in page
        assert f"{PATH}/{wait.id}/approve" not in page


async def test_the_picture_of_a_flow_has_a_text_alternative() -> None:
    graph = FlowGraph(
        name="report",
        steps=(
            GraphStep(name="<build>"),
            GraphStep(name="approve", after=("<build>",), wait="approval"),
            GraphStep(name="publish", after=("approve",)),
        ),
    )
    async with browsing() as browser:
        store = browser.rig.store
        await publish_graph(store, graph, await store.now())
        flow, wait = await add_waiting_flow(store, await store.now())
        page = (await browser.get(f"/ui/runs/{flow.id}")).text
        assert "Steps of the flow</title>" in page
        assert f'href="/ui/runs/{wait.id}"' in page
        assert "<title>approve: waits for an approval</title>" in page
        assert "<td>publish</td><td>approve</td><td>not begun</td>" in page
        assert "<build>" not in page
        assert "Retry from step" not in page, "it has not ended"
        await browser.rig.context.runs.cancel(Actor(), flow.id)
        page = (await browser.get(f"/ui/runs/{flow.id}")).text
        assert "Retry from step" in page
        sent = await browser.send(f"/ui/runs/{flow.id}/retry", from_step="approve")
        assert "Run queued." in (await browser.follow(sent)).text


def test_rows_of_a_graph_that_is_not_known() -> None:
    from chimes.services.flow_pictures import picture_of
    from tests.builders import a_run

    rows = [
        a_run(step="old", status=RunStatus.SUCCEEDED),
        a_run(step="many[0]", status=RunStatus.SUCCEEDED),
        replace(a_run(step="many[1]"), status=RunStatus.FAILED),
    ]
    picture = picture_of("report", None, rows)
    states = {step.name: (step.status, step.ended, step.runs) for step in picture.steps}
    assert states == {
        "old": (RunStatus.SUCCEEDED, 1, 1),
        "many": (RunStatus.FAILED, 2, 2),
    }
