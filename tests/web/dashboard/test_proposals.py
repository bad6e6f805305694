"""The pages of proposals, without scripts."""

from __future__ import annotations

from chimes.model.access import Actor, Role
from chimes.model.proposal import ProposalStatus
from tests.builders import ALICE
from tests.web.dashboard.browsing import browsing
from tests.web.rig import CRON, HTTP

NINE = {"trigger": CRON, "target": HTTP}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}
PATH = "/ui/proposals"


async def test_a_proposal_is_shown_and_approved() -> None:
    async with browsing() as browser:
        rig = browser.rig
        assert "No open proposals" in (await browser.get(PATH)).text
        made = await rig.create(name="<b>report")
        service = rig.context.proposals
        proposal = await service.propose(
            Actor(owner=ALICE),
            {
                "schedules": {"<b>report": TEN | {"id": made["id"]}, "new": NINE},
                "run": [made["id"]],
            },
            reason="<i>later</i>\nis better",
            title="<u>claude",
        )
        today = (await browser.get("/ui/")).text
        assert "1 proposal waits for a decision." in today
        listed = (await browser.get(PATH)).text
        assert f'href="{PATH}/{proposal.id}"' in listed
        page = (await browser.get(f"{PATH}/{proposal.id}")).text
        for markup in ("<b>report", "<i>later", "<u>claude"):
            assert markup not in page
        assert "&lt;i&gt;later&lt;/i&gt;<br>is better" in page
        assert "moves 7 fires" in page
        assert "trigger.expression" in page
        assert "Run &lt;b&gt;report once, now" in page

        # Another change makes the plan another one: it is shown instead of applied.
        await rig.client.patch(f"/api/v1/schedules/{made['id']}", json={"priority": 5})
        refused = await browser.send(f"{PATH}/{proposal.id}/approve")
        assert refused.status_code == 409
        assert "the schedules changed since the plan was shown" in refused.text
        assert "priority" in refused.text
        done = await browser.send(f"{PATH}/{proposal.id}/approve")
        shown = (await browser.follow(done)).text
        assert "Proposal approved. The changes are made." in shown
        assert f"{PATH}/{proposal.id}/approve" not in shown
        changed = (await rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
        assert changed["trigger"]["expression"] == "0 10 * * *"
        assert (await service.get(Actor(), proposal.id)).status is ProposalStatus.APPROVED
        assert "waits for a decision" not in (await browser.get("/ui/")).text
        assert "<u>claude" not in (await browser.get(f"{PATH}?status=all")).text
        assert "approved a proposal" in (await browser.get("/ui/system/audit")).text


async def test_a_proposal_is_rejected_with_a_reason() -> None:
    async with browsing() as browser:
        service = browser.rig.context.proposals
        proposal = await service.propose(Actor(), {"schedules": {"new": NINE}}, reason="why not")
        assert "1 proposal waits for a decision." in (await browser.get("/ui/")).text
        await browser.get(f"{PATH}/{proposal.id}")
        done = await browser.send(f"{PATH}/{proposal.id}/reject", reason="not on <Mondays>")
        page = (await browser.follow(done)).text
        assert "not on &lt;Mondays&gt;" in page
        rejected = await service.get(Actor(), proposal.id)
        assert (rejected.status, rejected.decision) == (ProposalStatus.REJECTED, "not on <Mondays>")
        # Without a valid token nothing happens.
        other = await service.propose(Actor(), {"schedules": {"x": NINE}}, reason="again")
        forged = await browser.post(f"{PATH}/{other.id}/approve", {"csrf": "forged"})
        assert forged.status_code == 403
        assert (await service.get(Actor(), other.id)).status is ProposalStatus.OPEN


async def test_who_may_not_decide_sees_no_buttons() -> None:
    async with browsing() as browser:
        rig = browser.rig
        await rig.key(Role.ADMIN)
        users = {"reader": Role.VIEWER, "alice": Role.MEMBER, "bob": Role.MEMBER}
        from chimes.services.users import UserService

        for name, role in users.items():
            await UserService(rig.store).create(
                Actor(), name=name, password="long enough 1", role=role
            )
        proposal = await rig.context.proposals.propose(
            Actor(owner=ALICE, role=Role.VIEWER), {"schedules": {"x": NINE}}, reason="please"
        )
        for name, status, offered in (("alice", 200, True), ("bob", 404, False)):
            await browser.send("/ui/login", on="/ui/login", user=name, password="long enough 1")
            page = await browser.get(f"{PATH}/{proposal.id}")
            assert page.status_code == status
            assert (f"{PATH}/{proposal.id}/approve" in page.text) == offered
            browser.client.cookies.clear()
