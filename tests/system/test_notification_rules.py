"""A real node: services as receivers see them, escalation, routing, silences, own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.system.node import Node, wait_until
from tests.targets.sinks import OK, Sink, answer, serving

SIGNING_KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BROKEN = answer("503 Service Unavailable", b"the database is away")


class Receiver:
    """The target of the runs, which fails while it is broken, and the service that is notified."""

    def __init__(self) -> None:
        self.work = Sink([BROKEN])
        self.told = Sink([OK])


@asynccontextmanager
async def serving_node(tmp_path: Path, *names: str) -> AsyncIterator[tuple[list[Node], Receiver]]:
    receiver = Receiver()
    store = f"sqlite:///{tmp_path / 'chimes.db'}"
    nodes = [
        Node(store, tmp_path / name, CHIMES_PUBLIC_URL="https://chimes.example.com")
        for name in names or ("one",)
    ]
    async with (
        serving(receiver.work.handle) as receiver.work.port,
        serving(receiver.told.handle) as receiver.told.port,
    ):
        try:
            for node in nodes:
                await asyncio.to_thread(node.start)
            yield nodes, receiver
        finally:
            for node in nodes:
                await asyncio.to_thread(node.close)


async def create(node: Node, receiver: Receiver, *delivery: dict[str, Any], **more: Any) -> Any:
    return await asyncio.to_thread(
        node.create,
        trigger={"kind": "cron", "expression": "0 9 * * *"},
        target={"kind": "http", "url": f"{receiver.work.url}/work"},
        policy={"max_retries": 0},
        delivery=list(delivery),
        **({"name": "Invoices"} | more),
    )


async def call(node: Node, method: str, path: str, body: object = None, status: int = 200) -> Any:
    found = await asyncio.to_thread(node.call, method, f"/api/v1{path}", body)
    assert found.status == status, found
    return found.json if found.text else None


async def run_now(node: Node, schedule: Any) -> Any:
    return await call(node, "POST", f"/schedules/{schedule['id']}/run", {}, status=202)


async def ended(node: Node, run: Any, count: int) -> dict[str, Any]:
    """The deliveries of a run by path of their address, once so many have ended."""

    def look() -> list[dict[str, Any]]:
        found = node.get(f"/api/v1/deliveries?run_id={run['id']}")["items"]
        return found if sum(each["state"] != "pending" for each in found) >= count else []

    found = await asyncio.to_thread(wait_until, look, f"{count} deliveries that have ended")
    return {each["to"].rpartition("/")[2]: each for each in found}


async def test_services_receive_their_own_formats(tmp_path: Path) -> None:
    async with serving_node(tmp_path) as ([node], receiver):
        host = f"127.0.0.1:{receiver.told.port}"
        schedule = await create(
            node,
            receiver,
            {"channel": "slack", "to": f"http://{host}/services/T/B/X"},
            {"channel": "apprise", "to": f"json://{host}/json"},
            {"channel": "apprise", "to": f"ntfy://{host}/alerts"},
            {"channel": "apprise", "to": "nosuch://service"},
        )
        await ended(node, await run_now(node, schedule), 4)
        by_target = {each.target: json.loads(each.body) for each in receiver.told.requests}
        slack = by_target["/services/T/B/X"]
        assert slack["text"] == "Invoices: failed"
        assert [each["type"] for each in slack["blocks"]] == ["header", "section", "context"]
        assert slack["blocks"][0]["text"] == {"type": "plain_text", "text": "Invoices: failed"}
        assert "HTTP 503" in slack["blocks"][1]["text"]["text"]
        assert slack["blocks"][2]["elements"][0]["text"].startswith("<https://chimes.example.com/")
        posted = by_target["/json"]
        assert (posted["title"], posted["type"]) == ("Invoices: failed", "failure")
        assert "HTTP 503" in posted["message"]
        [ntfy] = [each for target, each in by_target.items() if "topic" in each]
        assert (ntfy["topic"], ntfy["title"]) == ("alerts", "Invoices: failed")
        assert "HTTP 503" in ntfy["message"]
        found = node.get("/api/v1/deliveries?state=dead")["items"]
        assert [(each["code"], each["to"]) for each in found] == [("bad_address", "nosuch://***")]
        for wrong, field in (
            ({"channel": "slack", "to": "hooks.slack.com"}, "to"),
            ({"channel": "apprise", "to": "just words"}, "to"),
            ({"channel": "slack", "to": "http://x/y", "after": "0s"}, "after"),
            ({"channel": "slack", "to": "http://x/y", "after": "8d"}, "after"),
            ({"channel": "slack", "to": "http://x/y", "after": "5m", "on": ["success"]}, "on"),
            ({"channel": "slack", "to": "http://x/y", "after": "5m", "digest": "daily"}, "after"),
        ):
            body = {"delivery": [wrong]}
            problem = await call(node, "PATCH", f"/schedules/{schedule['id']}", body, status=422)
            assert problem["errors"][0]["pointer"] == f"/delivery/0/{field}", problem


async def test_an_open_failure_is_escalated_once_although_its_node_is_killed(
    tmp_path: Path,
) -> None:
    async with serving_node(tmp_path, "one", "two") as ([one, two], receiver):
        url = receiver.told.url
        schedule = await create(
            one,
            receiver,
            {"channel": "webhook", "to": f"{url}/first", "on": ["failure"]},
            {"channel": "webhook", "to": f"{url}/second", "after": "5s"},
            {"channel": "webhook", "to": f"{url}/third", "after": "1h"},
        )
        run = await run_now(one, schedule)
        first = await ended(one, run, 1)
        assert {name: each["state"] for name, each in first.items()} == {
            "first": "delivered",
            "second": "pending",
            "third": "pending",
        }
        await asyncio.to_thread(one.kill)
        second = (await ended(two, run, 2))["second"]
        assert (second["state"], second["attempts"]) == ("delivered", 1)
        targets = [each.target for each in receiver.told.requests]
        assert sorted(targets) == ["/first", "/second"]
        sent = next(each for each in receiver.told.requests if each.target == "/second")
        assert "not acknowledged within 1 minute" in json.loads(sent.body)["data"]["text"]

        # The same failure again, acknowledged this time; and one of which the schedule recovers.
        path = f"/schedules/{schedule['id']}"
        soon = [{"channel": "webhook", "to": f"{url}/soon", "after": "4s"}]
        await call(two, "PATCH", path, {"delivery": soon})
        again = await run_now(two, schedule)
        await asyncio.to_thread(two.ended, schedule["id"], 2)
        marked = await call(two, "POST", f"/runs/{again['id']}/acknowledge", {"reason": "mine"})
        assert (marked["run_id"], marked["reason"]) == (again["id"], "mine")
        known = (await ended(two, again, 1))["soon"]
        assert (known["state"], known["code"]) == ("suppressed", "acknowledged")
        await call(two, "DELETE", f"/runs/{again['id']}/known", status=204)
        last = await run_now(two, schedule)
        await asyncio.to_thread(two.ended, schedule["id"], 3)
        receiver.work.answers = [OK]
        await run_now(two, schedule)
        recovered = (await ended(two, last, 1))["soon"]
        assert (recovered["state"], recovered["code"]) == ("suppressed", "recovered")
        assert len(receiver.told.requests) == 2, "nothing else was sent"
        # Someone may send it nevertheless.
        await call(two, "POST", f"/deliveries/{recovered['id']}/retry")
        await asyncio.to_thread(
            wait_until, lambda: len(receiver.told.requests) == 3, "the message sent by hand"
        )


async def test_rules_route_by_label_and_silences_suppress(tmp_path: Path) -> None:
    async with serving_node(tmp_path) as ([node], receiver):
        url = receiver.told.url

        def to(name: str, **more: Any) -> dict[str, Any]:
            return {"channel": "slack", "to": f"{url}/services/{name}", **more}

        signed = {"channel": "webhook", "to": f"{url}/signed", "signing_secrets": [SIGNING_KEY]}
        rules = [
            {"labels": ["team"], "on": ["failure"], "recipients": [signed], "continue": True},
            {"labels": {"team": "billing"}, "recipients": [to("billing", on=["failure"])]},
            {"statuses": ["failed"], "recipients": [to("rest")]},
        ]
        stored = await call(node, "PUT", "/routing", {"rules": rules})
        assert stored["version"] == 1
        assert stored["rules"][0]["recipients"][0]["signing_secrets"] == ["***"]
        # What was read can be written again; a stale version cannot.
        again = await call(node, "PUT", "/routing", stored)
        assert again == stored | {"version": 2}
        stale = await call(node, "PUT", "/routing", stored, status=409)
        assert stale["code"] == "stale"
        bad = {"rules": [{"labels": ["x"], "recipients": [to("x", after="9d")]}]}
        refused = await call(node, "PUT", "/routing", bad, status=422)
        assert refused["errors"][0]["pointer"].startswith("/rules/0/")

        labelled = await create(node, receiver, labels={"team": "billing"})
        plain = await create(node, receiver, name="Other")
        shown = await call(node, "GET", f"/routing/test/{labelled['id']}")
        assert len(shown["rules"]) == len(shown["recipients"]) == 2
        run, other = await run_now(node, labelled), await run_now(node, plain)
        assert (await ended(node, run, 2)).keys() == {"signed", "billing"}
        await ended(node, other, 1)
        targets = sorted(each.target for each in receiver.told.requests)
        assert targets == ["/services/billing", "/services/rest", "/signed"]
        [webhook] = [each for each in receiver.told.requests if each.target == "/signed"]
        assert webhook.headers["webhook-signature"], "the stored key was kept"

        silence = await call(
            node,
            "POST",
            "/silences",
            {"labels": {"team": "billing"}, "until": "2099-01-01T00:00:00Z", "reason": "move"},
            status=422,
        )
        assert "year" in silence["detail"]
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        soon = {"until": until, "reason": "move"}
        silence = await call(
            node, "POST", "/silences", soon | {"labels": {"team": "billing"}}, status=201
        )
        listed = await call(node, "GET", "/silences")
        assert [each["id"] for each in listed["items"]] == [silence["id"]]
        assert silence["active"]
        run, other = await run_now(node, labelled), await run_now(node, plain)
        await ended(node, other, 1)
        await ended(node, run, 2)
        quiet = node.get(f"/api/v1/deliveries?run_id={run['id']}")["items"]
        assert {(each["state"], each["code"]) for each in quiet} == {("suppressed", "silenced")}
        assert all("move" in each["error"] for each in quiet)
        assert len(receiver.told.requests) == 4
        await call(node, "DELETE", f"/silences/{silence['id']}", status=204)
        await ended(node, await run_now(node, labelled), 2)
        assert len(receiver.told.requests) == 6

        # Maintenance can be silent, too; manual runs are still accepted.
        await call(node, "POST", "/maintenance", {"silence": True})
        hidden = await run_now(node, labelled)
        await ended(node, hidden, 2)
        quiet = node.get(f"/api/v1/deliveries?run_id={hidden['id']}")["items"]
        assert {each["code"] for each in quiet} == {"maintenance"}
        for wrong in (soon, soon | {"all": True, "schedule": "x"}, soon | {"labels": []}):
            await call(node, "POST", "/silences", wrong, status=422)
        await call(node, "POST", "/silences", soon | {"schedule": "x"}, status=404)
        await call(node, "DELETE", "/silences/x", status=404)


async def test_messages_in_own_words(tmp_path: Path) -> None:
    async with serving_node(tmp_path) as ([node], receiver):
        hook = {"channel": "slack", "to": f"{receiver.told.url}/services/en"}
        thai = {"channel": "slack", "to": f"{receiver.told.url}/services/th", "language": "th"}
        schedule = await create(node, receiver, hook, thai)
        instance = [{"on": "failure", "title": "ALERT {{schedule_name}}"}]
        own = [
            {"language": "th", "on": "failure", "text": "{{schedule_name}} ล้มเหลว: {{error}}"},
        ]
        path = "/message-templates"
        await call(node, "PUT", f"{path}?scope=instance", {"templates": instance})
        stored = await call(node, "PUT", path, {"templates": own})
        assert "schedule_name" in stored["placeholders"]
        assert (await call(node, "GET", path)) == stored
        for wrong, word in (
            ({"text": "{{schedul_name}}"}, "{{schedule_name}}"),
            ({"text": ""}, "title or a text"),
            ({"title": "x", "on": "digest"}, "digest"),
        ):
            refused = await call(node, "PUT", path, {"templates": [wrong]}, status=422)
            assert word in json.dumps(refused), refused
        run = await run_now(node, schedule)
        await asyncio.to_thread(
            wait_until, lambda: len(receiver.told.requests) == 2, "both messages"
        )
        sent = {each.target[-2:]: json.loads(each.body) for each in receiver.told.requests}
        assert sent["en"]["text"] == "ALERT Invoices"
        assert "Invoices ล้มเหลว: HTTP 503" in sent["th"]["blocks"][1]["text"]["text"]
        text = "{{run_id}} {{status}} {{ link }} {{title}}"
        shown = await call(node, "POST", f"{path}/preview", {"text": text, "run_id": run["id"]})
        link = f"https://chimes.example.com/ui/runs/{run['id']}"
        assert shown["text"] == f"{run['id']} failed {link} Invoices: failed"
        example = await call(node, "POST", f"{path}/preview", {"text": text})
        assert "Morning report" in example["text"]
