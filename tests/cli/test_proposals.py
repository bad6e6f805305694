"""`chimes proposals` and `chimes mcp`."""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import pytest

from chimes.client import AsyncClient, Client
from chimes.errors import Conflict
from tests.cli.conftest import Cli, Server

CRON = {"kind": "cron", "expression": "0 9 * * *", "timezone": "UTC"}
NINE = {"trigger": CRON, "target": {"kind": "http", "url": "http://127.0.0.1:8099/"}}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}


def propose(client: Client, **given: Any) -> Any:
    name = f"s-{uuid.uuid4().hex[:8]}"
    return client.propose(
        reason="Less load\non Mondays", asker="claude\u00a0via MCP", schedules={name: NINE}, **given
    )


def test_a_person_lists_shows_approves_and_rejects(cli: Cli, server: Server) -> None:
    reach = {"CHIMES_URL": server.url}
    with Client(server.url) as client:
        first, second = propose(client), propose(client, expires_in="2h")
        listed = cli("proposals", "list", **reach)
        assert {row[0] for row in listed.rows} >= {first.id, second.id}
        shown = cli("proposals", "show", first.id[:18], **reach)
        assert shown.code == 0, shown.err
        assert "Less load" in shown.out
        assert "+ create" in shown.out
        assert "trigger.expression: 0 9 * * *" in shown.out
        assert "adds 7" in shown.out
        # Without a terminal nothing is approved without --yes.
        refused = cli("proposals", "approve", first.id, **reach)
        assert refused.code == 2
        assert "--yes" in refused.err
        assert client.get_proposal(first.id).status == "open"
        done = cli("proposals", "approve", first.id, "--yes", "--reason", "fine", **reach)
        assert (done.code, done.out.strip()) == (0, first.id)
        assert "adds 7" in done.err
        assert client.get_proposal(first.id).decision == "fine"
        assert client.get_schedule(str(first.plan[0]["name"])).enabled
        again = cli("proposals", "approve", first.id, "--yes", **reach)
        assert again.code == 5
        rejected = cli("proposals", "reject", second.id, "--reason", "no", "--json", **reach)
        assert json.loads(rejected.out)["status"] == "rejected"
        assert cli("proposals", "show", "nothing", **reach).code == 3
        found = cli("proposals", "list", "--status", "all", "--json=id,status", **reach)
        statuses = {each["id"]: each["status"] for each in json.loads(found.out)}
        assert (statuses[first.id], statuses[second.id]) == ("approved", "rejected")


async def test_both_clients_propose_and_decide(server: Server) -> None:
    with Client(server.url) as client:
        made = propose(client)
        (name,) = [str(each["name"]) for each in made.plan]
        assert (made.status, made.asker) == ("open", "claude\u00a0via MCP")
        assert made in client.list_proposals(status="open")
        assert client.approve_proposal(made.id, digest=made.digest).status == "approved"
        with pytest.raises(Conflict, match="already"):
            client.reject_proposal(made.id)
        async with AsyncClient(server.url) as aio:
            edit = await aio.propose(
                reason="later", schedules={name: TEN}, run=[made.plan[0]["id"]]
            )
            client.pause(name)
            with pytest.raises(Conflict, match="new plan"):
                await aio.approve_proposal(edit.id, digest=edit.digest)
            shown = await aio.get_proposal(edit.id)
            assert shown.digest != edit.digest
            decided = await aio.reject_proposal(edit.id, reason="paused")
            assert (decided.status, decided.decision, decided.runs) == ("rejected", "paused", [])


def test_mcp_without_its_extra_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "chimes.cli.mcp_server", raising=False)
    for name in [each for each in sys.modules if each == "mcp" or each.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    found = cli("mcp")
    assert found.code == 2
    assert "chimes[mcp]" in found.err


def test_results_of_tools_are_bounded() -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from chimes.cli.mcp_server import MAX_RESULT, MAX_TEXT, bounded

    short = bounded({"text": "x" * (MAX_TEXT + 1), "rows": [1, None, "y"]})
    assert short["text"] == "x" * MAX_TEXT + f"… ({MAX_TEXT + 1} characters)"
    assert short["rows"] == [1, None, "y"]
    many = bounded({"rows": [{"text": "x" * 3000} for _unused in range(100)]})
    assert len(json.dumps(many, ensure_ascii=False)) <= MAX_RESULT
    assert len(many["rows"]) == 100
    with pytest.raises(ToolError, match="Ask for less"):
        bounded({"rows": list(range(100_000))})
