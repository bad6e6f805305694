"""System pages over ASGI: permissions, actions and errors."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import socket
from datetime import timedelta
from functools import partial
from typing import cast

import pytest

from chimes.clock import SystemClock
from chimes.config import Settings, load_settings
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry, chain_entry
from chimes.model.ids import NodeId
from chimes.model.insights import LagBucket, LagHistogram, bracket_of
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.node import NodeEvent, NodeReport
from chimes.model.notification import DeliveryState
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.routing import Rule
from chimes.model.sync import Source, Sources
from chimes.web.dashboard.core.audit import changes_of
from chimes.web.dashboard.system.about import licences
from chimes.web.dashboard.system.audit import audit_rows, csv_lines
from chimes.web.dashboard.system.channels import bare_host, check_url
from chimes.web.dashboard.system.views import (
    all_drained,
    lag_data,
    lag_rows,
    lags_by_node,
    node_cards,
    node_history,
)
from tests.builders import (
    LEASE,
    NOW,
    a_completion,
    a_delivery,
    a_node,
    a_run,
    an_entry,
    claim_request,
)
from tests.web.dashboard.browsing import browsing


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


TABS = ("", "/audit", "/access", "/channels", "/settings", "/about")


@pytest.mark.parametrize("tab", TABS)
async def test_every_tab_answers(tab: str) -> None:
    async with browsing() as browser:
        answer = await browser.get(f"/ui/system{tab}")
        assert answer.status_code == 200
        assert answer.text.count('aria-current="page"') >= 2


async def test_a_key_is_shown_once_and_can_be_revoked() -> None:
    async with browsing() as browser:
        made = await browser.send(
            "/ui/system/access/keys",
            on="/ui/system/access",
            name="robot",
            role="admin",
            days="3",
            owner="user:al",
        )
        assert made.status_code == 200
        (key,) = re.findall(r'class="copyable"><code>([^<]+)</code>', made.text)
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", key=key)
        page = await browser.get("/ui/system/access")
        assert "robot" in page.text
        assert key not in page.text
        (revoke,) = re.findall(r'action="(/ui/system/access/keys/[^"]+/revoke)"', page.text)
        dialog = await browser.send(revoke)
        assert (dialog.status_code, "Revoke this key?" in dialog.text) == (200, True)
        done = await browser.send(revoke)
        assert done.status_code == 303
        gone = await browser.get("/ui/system/access")
        assert gone.headers["location"].startswith("/ui/login"), "the key was used to sign in"


async def test_the_first_user_defaults_to_admin_and_requires_sign_in() -> None:
    async with browsing() as browser:
        page = (await browser.get("/ui/system/access")).text
        assert page.count('<option value="admin" selected>') == 2
        assert "The first user or key should be an admin" in page
        made = await browser.send(
            "/ui/system/access/users", name="anna", password="a long password", role="admin"
        )
        page = (await browser.follow(made)).text
        # The creator is still signed in; the next user defaults to member.
        assert "Open mode: anyone who can reach" not in page
        assert "Sign-in is now required." in page
        assert page.count('<option value="member" selected>') == 2


async def test_roles_are_translated_next_to_their_name() -> None:
    async with browsing() as browser:
        english = (await browser.get("/ui/system/access")).text
        assert '<option value="viewer">viewer</option>' in english
        assert "<dt>operator</dt>" in english
        made = await browser.send(
            "/ui/system/access/keys", on="/ui/system/access", name="robot", role="admin"
        )
        (key,) = re.findall(r'class="copyable"><code>([^<]+)</code>', made.text)
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", key=key)
        for language, word in (("th", "ผู้ดูแล"), ("zh", "管理员")):
            browser.client.cookies.set("chimes_look", f"language={language}")
            page = (await browser.get("/ui/system/access")).text
            assert f">{word} (admin)</option>" in page
            assert f"<dt>{word} (admin)</dt>" in page
            assert f">{word} (admin)</td>" in page
            assert re.search(f'class="menu-title">[^<]+{word}[)）]</p>', page)


async def test_errors_are_shown_at_their_field() -> None:
    async with browsing() as browser:
        send = partial(browser.send, "/ui/system/access/keys", on="/ui/system/access", name="x")
        made = await send(role="king", days="3")
        assert made.status_code == 422
        assert "viewer, member, operator or admin" in made.text
        late = await send(role="admin", days="0")
        assert (late.status_code, "between 1 and 3650 days" in late.text) == (422, True)


async def test_the_audit_filters_exports_and_verifies() -> None:
    async with browsing() as browser:
        password = "correct horse battery"
        await browser.send(
            "/ui/system/access/users",
            on="/ui/system/access",
            name="ann",
            password=password,
            role="admin",
        )
        # The first user is signed in at once.
        browser.rig.clock.advance(timedelta(seconds=1))
        page = await browser.get("/ui/system/audit?verb=create_user")
        assert "ann" in page.text
        assert '<span title="create_user">' in page.text
        assert '<span title="sign_in">' not in page.text
        lines = (await browser.get("/ui/system/audit.ndjson?verb=create_user")).text.splitlines()
        assert [json.loads(line)["object_id"] for line in lines] == ["ann"]
        file = await browser.get("/ui/system/audit.csv?interface=dashboard&verb=create_user")
        assert file.headers["content-disposition"].endswith('.csv"')
        head, row = csv.DictReader(io.StringIO(file.text)).fieldnames, file.text.splitlines()[1]
        assert head is not None
        assert {"actor", "interface", "address", "reason", "changes", "hash"} <= set(head)
        assert "ann" in row
        # The interface has a label, and every entry shows that its hash is valid.
        assert re.search(r'data-label="Interface">web<', page.text)
        assert "hash valid" in page.text
        assert "has not been verified yet" in page.text
        day = browser.rig.clock.now().date()
        today = await browser.get(f"/ui/system/audit?from={day}&to={day}")
        assert "create_user" in today.text
        before = await browser.get(f"/ui/system/audit?to={day - timedelta(days=1)}")
        assert "No entry matches" in before.text
        wrong = await browser.get("/ui/system/audit?from=yesterday")
        assert "expected a date such as 2030-01-31" in wrong.text
        done = await browser.send("/ui/system/audit/verify", on="/ui/system/audit")
        assert done.status_code == 303
        assert "Hash chain verified" in (await browser.get("/ui/system/audit")).text
        # The result is stored and shown on later pages.
        assert "Hash chain verified" in (await browser.get("/ui/system/audit")).text
        # A checkpoint of pruned entries that no key has signed.
        await browser.rig.store.set_checkpoint("audit:checkpoint", "{}")
        await browser.send("/ui/system/audit/verify", on="/ui/system/audit")
        forged = await browser.get("/ui/system/audit")
        assert "The checkpoint of pruned entries is not valid." in forged.text
        empty = await browser.get("/ui/system/audit?verb=nothing_of_the_kind")
        assert "No entry matches" in empty.text


async def test_settings_show_their_origin_and_mask_secrets() -> None:
    async with browsing() as browser:
        page = await browser.get("/ui/system/settings?q=lease")
        assert "CHIMES_LEASE" in page.text
        assert "CHIMES_PORT" not in page.text


@pytest.mark.parametrize(
    ("language", "default", "variable"),
    [
        ("en", "default", "environment CHIMES_RETENTION"),
        ("th", "ค่าเริ่มต้น", "ตัวแปรสภาพแวดล้อม CHIMES_RETENTION"),
        ("zh", "默认", "环境变量 CHIMES_RETENTION"),
    ],
)
async def test_the_origin_of_a_setting_is_translated(
    language: str, default: str, variable: str
) -> None:
    loaded = load_settings(environ={"CHIMES_RETENTION": "48h"})
    async with browsing(settings=loaded.settings, origins=loaded.origins) as browser:
        page = (await browser.get("/ui/system/settings", **{"Accept-Language": language})).text
        result = re.findall(r"<td data-label=[^>]+>([^<]+)</td><td [^>]+ class=.mono small.>", page)
        assert set(result) == {default, variable}
        changed = (await browser.get("/ui/system/settings?changed=yes")).text
        assert changed.count('<td data-label="Setting"') == 1


async def test_retention_previews_what_it_would_delete() -> None:
    async with browsing() as browser:
        store, clock = browser.rig.store, browser.rig.clock
        await store.join(a_node(), LEASE)
        await store.add_runs([a_run(available_at=clock.now())])
        (run,) = await store.claim(claim_request())
        await store.finish([a_completion(run, clock.now())])
        clock.advance(timedelta(days=3))
        page = (await browser.get("/ui/system/settings")).text
        assert "With a retention of 30 d, no runs would be deleted now." in page
        dialog = (await browser.get("/ui/system/settings?days=2")).text
        assert "With a retention of 2 d, 1 run would be deleted now." in dialog
        assert "CHIMES_RETENTION=48h" in dialog
        for wrong in ("0", "x", "99999"):
            page = (await browser.get(f"/ui/system/settings?days={wrong}")).text
            assert "between 1 and 36500 days" in page
        assert await store.get_run(run.id) is not None


async def test_settings_show_templates_flags_and_holidays() -> None:
    settings = Settings(telegram_token="1:secret-token", softnix_scheduler_enabled=False)
    async with browsing(settings=settings) as browser:
        page = (await browser.get("/ui/system/settings")).text
        assert "secret-token" not in page
        assert re.search(r"✓ on</span> Telegram bot", page)
        assert re.search(r"– off</span> Fire prompts created through the Softnix API", page)
        assert page.count("/ui/schedules/new?preset=") >= 10
        preset = re.search(r'href="(/ui/schedules/new\?preset=[^"]+)"', page)
        assert preset
        assert (await browser.get(preset[1])).status_code == 200
        thai = (await browser.get("/ui/system/settings?country=Thailand")).text
        assert f"<dt>{browser.rig.clock.now().year}-" in thai
        assert "Songkran" in thai
        browser.client.cookies.set("chimes_look", "language=th")
        assert "วันสงกรานต์" in (await browser.get("/ui/system/settings?country=TH")).text
        browser.client.cookies.clear()
        nowhere = (await browser.get("/ui/system/settings?country=Atlantis")).text
        assert "No holidays found" in nowhere


async def test_about_shows_licences_and_support_information() -> None:
    async with browsing() as browser:
        page = (await browser.get("/ui/system/about")).text
        for name in ("htmx.org", "uplot", "fastapi", "holidays"):
            assert f">{name}<" in page, name
        assert 'data-copy-from="#support"' in page
        (text,) = re.findall(r'id="support"[^>]*>([^<]+)<', page)
        assert "Chimes: 1.2.3" in text
        assert "[bad] Nodes: 0 of 0 active" in text
        assert "Start a node" in page
    found = {each.name.lower(): each.licence for each in licences()}
    assert found["uplot"] == "MIT"
    assert found["sqlalchemy"] == "MIT"
    assert "pytest" not in found
    assert "?" not in found.values(), found


async def test_channels_mask_secrets_and_can_be_checked(unused_port: int) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(
        agent_pipeline="openai",
        agent_url=f"http://user:hidden@127.0.0.1:{port}/path",
        action_url=f"http://127.0.0.1:{unused_port}",
        agent_model="m",
    )
    sources = Sources(
        {
            "shop": Source(id="shop", driver="command", config={"command": ["sh", "-c", "true"]}),
            "none": Source(id="none", driver="command", config={"command": ["no-such-program"]}),
            "web": Source(
                id="web", driver="http_json", config={"url": f"http://127.0.0.1:{port}/x?k=hidden"}
            ),
            "code": Source(id="code", driver="python", config={"callable": "no_module:f"}),
        }
    )
    async with server, browsing(settings=settings, sources=sources) as browser:
        here = "/ui/system/channels"
        page = (await browser.get(here)).text
        assert f"http://127.0.0.1:{port}" in page
        assert "hidden@" not in page
        assert "k=hidden" not in page

        async def result(path: str) -> str:
            done = await browser.send(path, on=here)
            assert done.status_code == 303
            return (await browser.get(here)).text

        assert f"Agents: 127.0.0.1:{port} responded in" in await result(f"{here}/check/agents")
        assert "cannot reach" in await result(f"{here}/check/actions")
        assert "shop: program sh found." in await result("/ui/system/sources/shop/check")
        assert "none: program no-such" in await result("/ui/system/sources/none/check")
        assert f"web: 127.0.0.1:{port} responded" in await result("/ui/system/sources/web/check")
        assert "no_module" in await result("/ui/system/sources/code/check")
        for path in (f"{here}/check/email", f"{here}/check/x", "/ui/system/sources/x/check"):
            csrf = re.search(r'name="csrf" value="([^"]+)"', page)
            assert csrf
            assert (await browser.post(path, {"csrf": csrf[1]})).status_code == 404
        made = await browser.send(f"{here}/signing-key", on=here)
        (key,) = re.findall(r"whsec_[A-Za-z0-9+/=]{44}", made.text.split("data-copy")[0])
        assert key not in (await browser.get(here)).text


async def test_a_test_message_is_sent_and_errors_are_shown_at_the_field() -> None:
    async with browsing() as browser:
        here, path = "/ui/system/channels", "/ui/system/channels/test"
        page = (await browser.get(here)).text
        # Neither the bot nor e-mail is configured.
        assert page.count("This channel is not configured.") == 2
        wrong = await browser.send(path, on=here, channel="webhook", to="ftp://nowhere")
        assert wrong.status_code == 422
        assert 'aria-describedby="to-webhook-error"' in wrong.text
        assert 'value="ftp://nowhere"' in wrong.text
        store = browser.rig.store
        assert (await store.list_deliveries(DeliveryQuery())).items == ()
        assert (await browser.send(path, on=here, channel="pigeon")).status_code == 422
        sending = asyncio.create_task(browser.send(path, on=here, channel="inbox"))
        since = store.changes()
        while not (found := (await store.list_deliveries(DeliveryQuery())).items):
            await asyncio.wait_for(store.wait_for_work(since, None), 60)
            since = store.changes()
        (delivery,) = found
        assert (delivery.recipient.channel, delivery.notify_on) == (Channel.INBOX, NotifyOn.TEST)
        # No deliverer runs, so waiting times out.
        browser.rig.clock.advance(60)
        store.wake()
        done = await sending
        assert done.status_code == 303
        assert "Test notification queued" in (await browser.get(here)).text


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://example.com", "http://h:99999", "http://["])
async def test_an_invalid_address_is_reported(url: str) -> None:
    found = await check_url("It", url, SystemClock())
    assert (found.ok, str(found.text)) == (False, "It: invalid address.")
    assert bare_host(url) in ("", "ftp://example.com")


async def test_a_connection_check_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chimes.web.dashboard.system.channels.TIMEOUT", 0.05)
    done = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        # The server never answers the TLS handshake.
        found = await check_url("It", f"https://127.0.0.1:{port}", SystemClock())
        done.set()
    assert (found.ok, str(found.text)) == (False, f"It: no response from 127.0.0.1:{port}.")


def test_gone_nodes_come_last_and_clock_offsets_warn() -> None:
    gone = a_node("gone", lease_until=NOW - timedelta(seconds=1), heartbeat_at=NOW)
    off = a_node("off", lease_until=NOW + timedelta(seconds=9), heartbeat_at=NOW, clock_offset=-2.0)
    cards = node_cards([gone, off], {NodeId("off"): 3}, NOW)
    assert [(card.node.id, card.alive, card.clock_off) for card in cards] == [
        ("off", True, True),
        ("gone", False, False),
    ]
    assert cards[0].running == 3
    assert not all_drained(cards)
    assert not all_drained(())
    result = replace(off, drain=True, report=NodeReport(running=5, draining=True))
    (card,) = node_cards([result], {NodeId("off"): 3}, NOW)
    assert (card.running, card.share, card.cannot_drain) == (5, 0.5, False)
    assert all_drained([card])
    (cannot_drain,) = node_cards([replace(off, drain=True)], {}, NOW)
    assert cannot_drain.cannot_drain


async def test_failed_deliveries_are_shown_in_the_viewers_language() -> None:
    async with browsing() as browser:
        gone = a_delivery(state=DeliveryState.DEAD, attempts=3, finished_at=NOW, error="no")
        await browser.rig.store.load([replace(gone, owner=SYSTEM_OWNER)])
        page = (await browser.get("/ui/system/channels")).text
        assert '"Channel">inbox<' in page
        assert '"Event">on success<' in page
        browser.client.cookies.set("chimes_look", "language=th")
        page = (await browser.get("/ui/system/channels")).text
        assert ">inbox<" not in page
        assert ">success<" not in page


async def test_nodes_are_drained_resumed_and_forgotten() -> None:
    async with browsing() as browser:
        store, clock = browser.rig.store, browser.rig.clock
        node = await store.join(a_node("web-1-77-abc", capacity=10), LEASE)
        report = NodeReport(
            running=4, claims_per_minute=12.5, memory=50_000_000, queues=("slow",), draining=False
        )
        ahead = clock.now() + timedelta(seconds=3)
        await store.heartbeat(node.id, LEASE, clock=ahead, report=report)
        page = (await browser.get("/ui/system")).text
        for text in ("alive", "12.5 per minute", ">slow<", "clock off by 3 s", "MB"):
            assert text in page, text
        # Every number links to what it counts.
        assert 'href="/ui/runs?q=status%3Arunning+node%3A%22web-1-77-abc%22">4<' in page
        at = f"/ui/system/nodes/{node.id}"
        dialog = await browser.send(f"{at}/drain", on="/ui/system")
        assert "Drain this node?" in dialog.text
        assert not (await store.nodes())[0].drain
        done = await browser.send(f"{at}/drain", reason="kernel")
        assert done.status_code == 303
        page = (await browser.get("/ui/system")).text
        assert "All nodes are drained" in page
        assert "4 runs are still active" in page
        await browser.rig.create()
        assert "All nodes are draining" in (await browser.get("/ui/")).text
        assert "web-1-77-abc will drain" in page
        await store.heartbeat(
            node.id, LEASE, clock=clock.now(), report=replace(report, running=0, draining=True)
        )
        assert "▼ drained" in (await browser.get("/ui/system")).text
        assert (await browser.send(f"{at}/resume", on="/ui/system")).status_code == 303
        assert not (await store.nodes())[0].drain
        clock.advance(LEASE)
        assert "✕ gone" in (await browser.get("/ui/system")).text
        dialog = await browser.send(f"{at}/forget", on="/ui/system")
        assert "Forget this node?" in dialog.text
        assert (await browser.send(f"{at}/forget")).status_code == 303
        page = (await browser.get("/ui/system")).text
        assert "No active nodes" in page
        trail = await store.list_audit(AuditQuery(object_id=node.id))
        assert [(each.verb, each.reason, each.interface) for each in trail] == [
            ("forget", "", "dashboard"),
            ("resume", "", "dashboard"),
            ("drain", "kernel", "dashboard"),
        ]


async def test_a_node_without_drain_support_is_marked() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        await store.join(a_node("old"), LEASE)
        await store.drain_node(NodeId("old"), True)
        page = (await browser.get("/ui/system")).text
        assert "does not support draining" in page
        assert "not reported" in page


def test_the_first_node_of_a_version_is_a_deployment() -> None:
    def mark(minutes: int, node: str, version: str, joined: bool = True) -> NodeEvent:
        at = NOW + timedelta(minutes=minutes)
        return NodeEvent(at=at, node_id=NodeId(node), version=version, joined=joined)

    found = node_history(
        [
            mark(0, "a-1-x", "1.0"),
            mark(1, "b-2-x", "1.0"),
            mark(2, "c-3-x", "1.1"),
            mark(3, "a-1-x", "1.0", False),
            mark(4, "d-4-x", "1.1"),
        ]
    )
    assert [each.label for each in found] == ["+ a-1", "+ b-2", "▲ 1.1", "− a-1", "+ d-4"]
    data = lag_data((), "UTC", 1.0, found, NOW)
    assert data["times"] == [int(NOW.timestamp())]
    assert len(cast(list[object], data["marks"])) == 5


def test_lag_by_node() -> None:
    def bucket(minutes: int, node: str, seconds: float) -> LagBucket:
        counts = {bracket_of(timedelta(seconds=seconds)): 2}
        return LagBucket(at=NOW + timedelta(minutes=minutes), node=node, lags=LagHistogram(counts))

    buckets = [bucket(0, "a", 0.1), bucket(0, "b", 5.0), bucket(15, "a", 0.1)]
    starts = [NOW + timedelta(minutes=each) for each in (0, 15, 30)]
    assert [row.count for row in lag_rows(starts, buckets)] == [4, 2, 0]
    assert [row.count for row in lag_rows(starts, buckets, "b")] == [2, 0, 0]
    assert lag_rows(starts, buckets)[2].p95 is None
    by_node = lags_by_node(buckets)
    assert [(each.node, each.count) for each in by_node] == [("b", 2), ("a", 4)]
    assert by_node[0].p50 == pytest.approx(5, rel=0.1)


def test_a_tampered_entry_is_marked() -> None:
    first = chain_entry(an_entry(), number=1, previous_hash="")
    second = chain_entry(an_entry(verb="pause"), number=2, previous_hash=first.hash)
    third = chain_entry(an_entry(), number=3, previous_hash=second.hash)

    def intact(*entries: AuditEntry, unfiltered: bool = True) -> list[bool]:
        return [row.intact for row in audit_rows(entries, unfiltered=unfiltered)]

    assert intact(third, second, first) == [True, True, True]
    assert intact(third, replace(second, actor="somebody else"), first) == [True, False, True]
    # A removed entry; a filtered list cannot show that.
    assert intact(third, first) == [False, True]
    assert intact(third, first, unfiltered=False) == [True, True]
    assert intact() == []


def test_no_cell_is_a_formula() -> None:
    assert "'=1+1" in csv_lines([an_entry(reason="=1+1")])


def test_changes_are_pairs_or_new_values() -> None:
    entry = an_entry(changes={"name": ["a", "b"], "role": "admin", "x": [None, {"k": 1}]})
    assert [(c.field, c.before, c.after) for c in changes_of(entry)] == [
        ("name", "a", "b"),
        ("role", "", "admin"),
        ("x", "–", '{"k": 1}'),
    ]


# Script and tabs use translated texts.
@pytest.mark.parametrize(
    ("language", "when", "unit", "day"),
    [("en", "Time", "{count} s", "24 h"), ("th", "เวลา", "{count} วินาที", "24 ชม."),
     ("zh", "时间", "{count} 秒", "24 小时")],
)  # fmt: skip
async def test_the_chart_and_its_tabs_are_translated(
    language: str, when: str, unit: str, day: str
) -> None:
    data = lag_data((), "UTC", 1.0, language=language)
    assert (data["when"], data["unit"]) == (when, unit)
    async with browsing() as browser:
        for path in ("/ui/system", "/ui/runs"):
            page = (await browser.get(path, **{"Accept-Language": language})).text
            assert f">{day}</a>" in page, path
            assert ">24h</a>" not in page, path


def test_no_lag_is_an_empty_chart() -> None:
    assert lag_rows([], []) == ()
    assert lag_data((), "UTC", 1.0)["times"] == []


async def test_silences_and_routing_rules_are_shown_and_silences_changed() -> None:
    async with browsing() as browser:
        here = "/ui/system/channels"
        page = (await browser.get(here)).text
        assert "Nothing is silenced." in page
        assert "No routing rules." in page
        recipient = Recipient(
            channel=Channel.SLACK, to="https://hooks.slack.com/services/T0/B0/abcdEFGH"
        )
        rule = Rule(name="Web <team>", labels={"team": "web"}, recipients=(recipient,))
        await browser.rig.context.routing.set(Actor(), [rule])
        wrong = await browser.send(f"{here}/silences", on=here, labels="a", hours="9999")
        assert wrong.status_code == 422
        assert 'aria-describedby="silence-error"' in wrong.text
        done = await browser.send(
            f"{here}/silences", on=here, labels="team=web, urgent", hours="4", reason="new <db>"
        )
        assert done.status_code == 303
        page = (await browser.get(here)).text
        assert "Web &lt;team&gt;" in page
        assert "abcdEFGH" not in page
        assert "team=web, urgent" in page
        assert "new &lt;db&gt;" in page
        (silence,) = await browser.rig.context.silences.list_current(Actor())
        assert dict(silence.labels) == {"team": "web", "urgent": None}
        await browser.send(f"{here}/silences/{silence.id}/end", on=here)
        assert await browser.rig.context.silences.list_current(Actor()) == ()
