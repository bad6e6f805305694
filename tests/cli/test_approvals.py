"""`chimes approvals`, `approve`, `reject`, `send-event` and `retry --from-step`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from chimes.client import ApprovalInfo, AsyncClient, Client
from chimes.errors import Conflict
from tests.cli.conftest import Cli, Server

APP = """
from chimes import Chimes

app = Chimes()
report = app.flow("report")


@report.step()
def build(edition: int = 1) -> int:
    return edition


approve = report.wait_for_approval(
    "approve", after=[build], prompt=lambda build: f"Publish {build}?", expires_in="1h"
)
paid = report.wait_for_event("paid", after=[approve], key=lambda order="": order)


@report.step(after=[paid])
def publish(paid: object) -> object:
    return paid
"""


@pytest.fixture(scope="module")
def app_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("waiting-server")
    (directory / "waiting_app.py").write_text(APP)
    started = Server(directory, "--app", "waiting_app:app")
    yield started
    assert started.stop() == 0


async def waiting(client: AsyncClient, **given: object) -> ApprovalInfo:
    run = await client.enqueue("flow:report", input=given)
    while True:
        for each in await client.list_approvals(status="open"):
            if each.run_id == run.id:
                return each
        await asyncio.sleep(0.05)  # the flow comes to its approval


async def test_a_person_lists_and_decides(cli: Cli, app_server: Server) -> None:
    reach = {"CHIMES_URL": app_server.url}
    async with AsyncClient(app_server.url) as client:
        first = await waiting(client, edition=7, order="A1")
        second = await waiting(client)
    listed = cli("approvals", **reach)
    assert {row[0] for row in listed.rows} >= {first.id, second.id}
    assert "Publish 7?" in cli("approvals", first.id[:18], **reach).out
    done = cli("approve", first.id[:18], "--reason", "fine", **reach)
    assert (done.code, done.out.strip()) == (0, first.id), done.err
    assert cli("approve", first.id, **reach).code == 5
    rejected = cli("reject", second.id, "--json", **reach)
    assert json.loads(rejected.out)["status"] == "rejected"
    assert cli("approve", "nothing", **reach).code == 3
    found = cli("approvals", "--status", "all", "--json=id,status", **reach)
    statuses = {each["id"]: each["status"] for each in json.loads(found.out)}
    assert (statuses[first.id], statuses[second.id]) == ("approved", "rejected")
    assert cli("send-event", "paid", "--data", "{", **reach).code == 2
    sent = cli("send-event", "paid", "--key", "A1", "--data", '{"amount": 5}', **reach)
    assert sent.code == 0, sent.err
    with Client(app_server.url) as blocking:
        done_run = blocking.run_handle(first.run_id).result(timeout=60)
        assert done_run == {"publish": {"amount": 5}}
        with pytest.raises(Conflict):
            blocking.approve(first.id)
    again = cli("retry", first.run_id, "--from-step", "paid", "--json", **reach)
    assert again.code == 0, again.err
    assert json.loads(again.out)[0]["step"] == "paid"
    assert cli("retry", first.run_id, "--from-step", "nothing", **reach).code == 6
