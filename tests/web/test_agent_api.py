"""Prompts, recipients and callbacks over the native API."""

from __future__ import annotations

import json
from datetime import time, timedelta
from typing import Any

import pytest

from chimes.config.file import parsed_yaml
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.checkpoint import AgentCheckpoint, agent_callback_name, agent_checkpoint_name
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.policy import Backoff, Policy, RunDefaults
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, QuietHours, Recipient
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from
from chimes.web.compat.ksana.translate import job_from_schedule
from tests.builders import ALICE, BOB, a_node
from tests.tables import each_row
from tests.web.rig import HTTP, Rig

AGENT = {"kind": "agent", "prompt": "Summarise the news"}
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
HOOK = {"channel": "webhook", "to": "https://example.com/h", "signing_secrets": [SECRET]}
DEFAULT_PROMPT_POLICY = {
    "signing_secrets": [],
    "envelope": "",
    "late_after": "PT1M",
    "after": None,
    "quiet": None,
    "digest": None,
}
QUIET_HOURS = {"from": "22:00", "to": "07:00"}
INBOX = {"channel": "inbox", "to": "", "on": ["always"], "language": ""} | DEFAULT_PROMPT_POLICY


async def patch_schedule(rig: Rig, made: dict[str, Any], **given: Any) -> Any:
    return await rig.client.patch(f"/api/v1/schedules/{made['id']}", json=given)


async def test_prompt_has_default_policy_and_recipient(rig: Rig) -> None:
    made = await rig.create(target=AGENT)
    assert made["target"] == AGENT | {"pipeline": "", "model": "", "max_tokens": None}
    assert made["delivery"] == [INBOX]
    policy = made["policy"]
    assert (policy["max_retries"], policy["backoff"]) == (2, "exponential")
    assert (policy["retry_backoff"], policy["timeout"]) == ("PT5S", "PT10M")
    assert "delivery" not in policy
    again = await rig.client.get(f"/api/v1/schedules/{made['id']}")
    assert again.json() == made


async def test_prompt_round_trip_on_every_store(any_rig: Rig) -> None:
    target = AGENT | {"pipeline": "runs", "model": "big", "max_tokens": 7}
    recipients = [HOOK, {"channel": "telegram", "to": -42, "on": ["failure"], "language": "th"}]
    made = await any_rig.create(target=target, delivery=recipients)
    assert made["target"] == target
    assert made["delivery"] == [
        DEFAULT_PROMPT_POLICY
        | HOOK
        | {"on": ["always"], "language": "", "signing_secrets": ["***"]},
        recipients[1] | {"to": "-42"} | DEFAULT_PROMPT_POLICY,
    ]
    schedule = await any_rig.store.get_schedule(ScheduleId(made["id"]))
    assert schedule is not None
    assert schedule.policy.delivery == (
        Recipient(channel=Channel.WEBHOOK, to="https://example.com/h", signing_secrets=(SECRET,)),
        Recipient(channel=Channel.TELEGRAM, to="-42", on=(NotifyOn.FAILURE,), language="th"),
    )


# Late runs only, quiet hours, digests.
async def test_notification_times_round_trip(rig: Rig) -> None:
    zone = "Asia/Bangkok"
    recipients = {
        "channel": "telegram",
        "to": "42",
        "on": ["late", "failure"],
        "late_after": "PT5M",
        "quiet": {"from": "22:00", "to": "07:30", "zone": zone, "except": ["failure"]},
        "digest": {"every": "weekly", "at": "09:15", "on": "friday", "zone": zone, "except": []},
    }
    made = await rig.create(target=AGENT, delivery=[recipients])
    assert made["delivery"] == [DEFAULT_PROMPT_POLICY | {"language": ""} | recipients]
    again = (await patch_schedule(rig, made, delivery=made["delivery"])).json()
    assert again["delivery"] == made["delivery"]
    schedule = await rig.store.get_schedule(ScheduleId(made["id"]))
    assert schedule is not None
    assert schedule.policy.delivery == (
        Recipient(
            channel=Channel.TELEGRAM,
            to="42",
            on=(NotifyOn.LATE, NotifyOn.FAILURE),
            late_after=timedelta(minutes=5),
            quiet=QuietHours(
                start=time(22), end=time(7, 30), zone=zone, except_for=(NotifyOn.FAILURE,)
            ),
            digest=Digest(every=Period.WEEK, at=time(9, 15), weekday=4, zone=zone),
        ),
    )


def test_recipients_in_unquoted_yaml_are_accepted() -> None:
    """YAML 1.1 reads unquoted `on` as a boolean and 22:00 as a number."""
    text = b"{channel: email, to: a@b.example, on: [late], quiet: {from: 22:00, to: 7:30}}"
    found = parsed_yaml(text, "a file")
    (recipient,) = recipients_from([RecipientIn.model_validate(found)])
    assert recipient.on == (NotifyOn.LATE,)
    assert recipient.quiet == QuietHours(start=time(22), end=time(7, 30))


@pytest.mark.parametrize(
    ("trigger", "zone"),
    [
        ({"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"kind": "every", "every": "1h"}, "UTC"),
    ],
)
async def test_notification_times_default_to_the_schedule_zone(
    rig: Rig, trigger: dict[str, str], zone: str
) -> None:
    recipients = {
        "channel": "email",
        "to": "a@example.com",
        "quiet": {"from": "22:00", "to": "7:00"},
    }
    made = await rig.create(trigger=trigger, delivery=[recipients | {"digest": "hourly"}])
    (kept,) = made["delivery"]
    assert kept["quiet"] == {"from": "22:00", "to": "07:00", "zone": zone, "except": []}
    assert (kept["digest"]["at"], kept["digest"]["zone"]) == ("00:00", zone)
    daily = (await patch_schedule(rig, made, delivery=[recipients | {"digest": "daily"}])).json()[
        "delivery"
    ][0]
    assert (daily["digest"]["at"], daily["digest"]["zone"]) == ("08:00", zone)


@each_row(
    ("wrong", "pointer"),
    [
        ({"on": ["test"]}, "/delivery/0/on/0"),
        ({"on": ["digest"]}, "/delivery/0/on/0"),
        ({"late_after": "PT0S"}, "/delivery/0/late_after"),
        ({"late_after": "P8D"}, "/delivery/0/late_after"),
        ({"quiet": {"from": "22:00"}}, "/delivery/0/quiet/to"),
        ({"quiet": {"from": "24:00", "to": "07:00"}}, "/delivery/0/quiet/from"),
        ({"quiet": {"from": "22:00", "to": "22:00"}}, "/delivery/0/quiet/to"),
        ({"quiet": {"from": "1:00", "to": "2:00", "zone": "Mars"}}, "/delivery/0/quiet/zone"),
        ({"quiet": {"from": "1:00", "to": "2:00", "except": ["x"]}}, "/delivery/0/quiet/except/0"),
        ({"digest": "yearly"}, "/delivery/0/digest/every"),
        ({"digest": {"every": "weekly", "on": "someday"}}, "/delivery/0/digest/on"),
        ({"digest": {"every": "daily", "zone": "Mars"}}, "/delivery/0/digest/zone"),
        ({"channel": "inbox", "to": "", "quiet": QUIET_HOURS}, "/delivery/0/quiet"),
    ],
)
async def test_invalid_notification_times_are_rejected_with_their_pointer(
    rig: Rig, wrong: dict[str, Any], pointer: str
) -> None:
    body = {
        "name": "x",
        "trigger": {"kind": "every", "every": "1h"},
        "target": AGENT,
        "delivery": [{"channel": "email", "to": "a@example.com"} | wrong],
    }
    answer = await rig.client.post("/api/v1/schedules", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_other_targets_have_no_default_recipients(rig: Rig) -> None:
    assert (await rig.create())["delivery"] == []
    assert (await rig.create(target=AGENT, delivery=[]))["delivery"] == []


@pytest.mark.parametrize(
    ("target", "pointer", "code"),
    [
        ({"kind": "agent"}, "/target/prompt", "missing"),
        (AGENT | {"prompt": "  "}, "/target/prompt", "missing"),
        (AGENT | {"prompt": "x" * 65_600}, None, "too_long"),
        (AGENT | {"pipeline": "magic"}, "/target/pipeline", None),
        (AGENT | {"max_tokens": 0}, "/target/max_tokens", "out_of_range"),
        (AGENT | {"max_tokens": "5"}, "/target/max_tokens", None),
        (AGENT | {"model": "a\nb"}, "/target/model", "bad_name"),
        (AGENT | {"url": "http://x"}, "/target/url", "unknown_field"),
        (AGENT | {"tools": []}, "/target/tools", "unknown_field"),
    ],
)
async def test_invalid_prompts_are_rejected(
    rig: Rig, target: dict[str, Any], pointer: str | None, code: str | None
) -> None:
    answer = await rig.client.post(
        "/api/v1/schedules",
        json={"name": "x", "trigger": {"kind": "every", "every": "1h"}} | {"target": target},
    )
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert pointer is None or error["pointer"] == pointer
    assert code is None or error["code"] == code


@each_row(
    ("recipients", "pointer"),
    [
        ([{"channel": "pigeon"}], "/delivery/0/channel"),
        ([{"channel": "telegram"}], "/delivery/0/to"),
        ([INBOX, {"channel": "email", "to": "nobody"}], "/delivery/1/to"),
        ([INBOX | {"to": "x"}], "/delivery/0/to"),
        ([INBOX | {"on": []}], "/delivery/0/on"),
        ([INBOX | {"on": ["never"]}], "/delivery/0/on/0"),
        ([INBOX | {"language": "xx"}], "/delivery/0/language"),
        ([INBOX | {"state": "dead"}], "/delivery/0/state"),
        ([HOOK | {"signing_secrets": ["***"]}], "/delivery/0/signing_secrets/0"),
        ([INBOX] * 2, "/delivery/1/to"),
        ([{"channel": "telegram", "to": n} for n in range(1, 12)], "/delivery"),
        ("inbox", "/delivery"),
        (None, "/delivery"),
    ],
)
async def test_invalid_recipients_are_rejected(rig: Rig, recipients: Any, pointer: str) -> None:
    for path, body in (
        ("/api/v1/schedules", {"name": "x", "trigger": {"kind": "every", "every": "1h"}}),
        ("/api/v1/runs", {}),
    ):
        answer = await rig.client.post(path, json=body | {"target": HTTP, "delivery": recipients})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer


async def test_patch_merges_prompt_fields_and_replaces_recipients(rig: Rig) -> None:
    made = await rig.create(target=AGENT | {"model": "big"}, delivery=[HOOK])
    answer = await patch_schedule(rig, made, target={"prompt": "And the weather"})
    assert answer.json()["target"] == {
        "kind": "agent",
        "prompt": "And the weather",
        "pipeline": "",
        "model": "big",
        "max_tokens": None,
    }
    assert answer.json()["delivery"] == made["delivery"]
    answer = await patch_schedule(
        rig, made, target={"model": "", "max_tokens": None, "url": "http://x"}
    )
    assert answer.status_code == 422
    answer = await patch_schedule(rig, made, delivery=[{"channel": "inbox"}, *made["delivery"]])
    assert [each["channel"] for each in answer.json()["delivery"]] == ["inbox", "webhook"]
    schedule = await rig.store.get_schedule(ScheduleId(made["id"]))
    assert schedule is not None
    # A masked value keeps the secret of the same recipient.
    assert schedule.policy.delivery[1].signing_secrets == (SECRET,)
    elsewhere = made["delivery"][0] | {"to": "https://example.com/other"}
    answer = await patch_schedule(rig, made, delivery=[elsewhere])
    assert answer.json()["errors"][0]["code"] == "masked"


async def test_changing_the_target_kind_applies_its_defaults(rig: Rig) -> None:
    made = await rig.create()
    answer = await patch_schedule(rig, made, target={"kind": "agent"})
    assert answer.json()["errors"][0]["pointer"] == "/target/prompt"
    turned = (await patch_schedule(rig, made, target=AGENT)).json()
    assert turned["delivery"] == [INBOX]
    assert (turned["policy"]["timeout"], turned["policy"]["max_retries"]) == ("PT10M", 2)
    back = (await patch_schedule(rig, made, target=HTTP)).json()
    assert (back["delivery"], back["policy"]["backoff"]) == ([], "fixed")
    recipients = (await patch_schedule(rig, made, delivery=[HOOK])).json()["delivery"]
    assert (await patch_schedule(rig, made, target=AGENT)).json()["delivery"] == recipients


async def test_run_without_a_schedule_can_have_recipients(rig: Rig) -> None:
    answer = await rig.client.post("/api/v1/runs", json={"target": AGENT, "delivery": [HOOK]})
    assert answer.status_code == 202, answer.text
    run = await rig.store.get_run(RunId(answer.json()["id"]))
    assert run is not None
    assert [each.signing_secrets for each in run.policy.delivery] == [(SECRET,)]
    quiet = await rig.client.post("/api/v1/runs", json={"target": AGENT})
    run = await rig.store.get_run(RunId(quiet.json()["id"]))
    assert run is not None
    assert run.policy.delivery == (Recipient(channel=Channel.INBOX),)


async def test_responses_and_audit_entries_contain_no_secrets(rig: Rig) -> None:
    hook = HOOK | {"to": "https://example.com/h?token=canary-token"}
    made = await rig.create(target=AGENT, delivery=[hook])
    other = SECRET.replace("Q", "R")
    await patch_schedule(rig, made, delivery=[hook | {"signing_secrets": [other]}])
    await rig.client.post("/api/v1/runs", json={"target": AGENT, "delivery": [hook]})
    entries = await rig.store.list_audit(AuditQuery(limit=50))
    recipients = json.dumps([dict(entry.changes) for entry in entries])
    assert "example.com/h" in recipients
    for secret in (SECRET, other, "canary-token"):
        assert secret not in recipients
    listed = await rig.client.get("/api/v1/audit")
    assert listed.json()["items"][1]["changes"]["policy"][1]["delivery"][0]["signing_secrets"] == [
        "***"
    ]


async def test_member_can_only_notify_own_chats(rig: Rig) -> None:
    alice = await rig.key(Role.MEMBER, ALICE)
    chat = await rig.key(Role.MEMBER, Owner(type=OwnerType.CHAT, id="99"))
    admin = await rig.key(Role.ADMIN)
    await rig.store.set_checkpoint("telegram:chat:42", json.dumps({"owner": str(ALICE)}))
    await rig.store.set_checkpoint("telegram:chat:43", json.dumps({"owner": str(BOB)}))
    await rig.store.set_checkpoint("telegram:chat:44", "damaged")

    async def status(headers: dict[str, str], to: str, path: str = "schedules") -> Any:
        body = {"target": AGENT, "delivery": [INBOX, {"channel": "telegram", "to": to}]}
        if path == "schedules":
            body |= {"name": "x", "trigger": {"kind": "every", "every": "1h"}}
        return await rig.client.post(f"/api/v1/{path}", json=body, headers=headers)

    for path, good in (("schedules", 201), ("runs", 202)):
        assert (await status(alice, "42", path)).status_code == good
        assert (await status(chat, "99", path)).status_code == good
        for chat_id in ("43", "44", "45", "@public_name"):
            refused = await status(alice, chat_id, path)
            assert refused.status_code == 422
            (error,) = refused.json()["errors"]
            assert (error["pointer"], error["code"]) == ("/delivery/1/to", "not_found")
            # The same error as for an unknown chat.
            assert error["detail"] == f"chat {chat_id} not found"
        for chat_id in ("43", "@public_name"):
            assert (await status(admin, chat_id, path)).status_code == good


async def test_owner_can_keep_a_chat_set_by_an_admin(rig: Rig) -> None:
    alice, admin = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.ADMIN)
    body = {
        "name": "x",
        "trigger": {"kind": "every", "every": "1h"},
        "target": AGENT,
        "owner": {"type": "user", "id": ALICE.id},
        "delivery": [{"channel": "telegram", "to": "77"}],
    }
    made = (await rig.client.post("/api/v1/schedules", json=body, headers=admin)).json()
    path = f"/api/v1/schedules/{made['id']}"
    kept = {"delivery": [INBOX, *made["delivery"]]}
    assert (await rig.client.patch(path, json=kept, headers=alice)).status_code == 200
    more = {"delivery": [*made["delivery"], {"channel": "telegram", "to": "78"}]}
    refused = await rig.client.patch(path, json=more, headers=alice)
    assert refused.json()["errors"][0]["pointer"] == "/delivery/1/to"


async def test_prompt_defaults_come_from_the_node_with_a_pipeline(rig: Rig) -> None:
    await rig.store.join(a_node("without", capabilities=("http", "agent")), timedelta(seconds=30))
    made = await rig.create(target=AGENT, name="nobody has one yet")
    assert made["policy"]["timeout"] == "PT10M"
    usual = Policy(
        timeout=timedelta(minutes=3),
        max_retries=4,
        backoff=Backoff.EXPONENTIAL,
        retry_backoff=timedelta(seconds=1),
    )
    node = a_node("with", capabilities=("agent",), defaults={"agent": RunDefaults(policy=usual)})
    await rig.store.join(node, timedelta(seconds=30))
    made = await rig.create(target=AGENT, policy={"max_retries": 1}, name="as that node has it")
    policy = made["policy"]
    assert (policy["timeout"], policy["retry_backoff"]) == ("PT3M", "PT1S")
    assert (policy["max_retries"], policy["backoff"]) == (1, "exponential")
    assert made["delivery"] == [INBOX]


async def test_ksana_api_shows_prompts_as_agent_jobs(rig: Rig) -> None:
    made = await rig.create(target=AGENT)
    schedule = await rig.store.get_schedule(ScheduleId(made["id"]))
    assert schedule is not None
    job = job_from_schedule(schedule, Actor(), await rig.store.now())
    assert job["agent"] == {"prompt": AGENT["prompt"]}
    assert job["http"] == {"method": "", "url": "", "headers": {}, "body": ""}


# --- callbacks ------------------------------------------------------------------------------------
ENDED = {"status": "completed", "output": "recipients", "artifacts": [], "cost": 0.5}


async def send_callback(rig: Rig, run: str, token: str, **given: Any) -> Any:
    given = given or {"json": ENDED}
    return await rig.client.post(f"/api/v1/agent/callbacks/{run}", params={"token": token}, **given)


async def test_callback_with_the_run_token_ends_the_run(any_rig: Rig) -> None:
    rig = any_rig
    await rig.key(Role.ADMIN)
    run = RunId("run-1")
    await rig.store.set_checkpoint(
        agent_checkpoint_name(run), AgentCheckpoint(token="T" * 43).to_text()
    )
    running = await send_callback(rig, run, "T" * 43, json={"status": "running"})
    assert running.status_code == 204
    assert await rig.store.get_checkpoint(agent_callback_name(run)) is None
    assert (await send_callback(rig, run, "T" * 43)).status_code == 204
    later = await send_callback(rig, run, "T" * 43, json={"status": "failed"})
    assert later.status_code == 204
    heard = await rig.store.get_checkpoint(agent_callback_name(run))
    assert heard is not None
    assert json.loads(heard.value) == ENDED


@pytest.mark.parametrize("token", ["", "t" * 43, "T" * 42, "ก", "T" * 2000])
async def test_callback_without_a_valid_token_is_not_found(rig: Rig, token: str) -> None:
    await rig.store.set_checkpoint(
        agent_checkpoint_name(RunId("run-1")), AgentCheckpoint(token="T" * 43).to_text()
    )
    await rig.store.set_checkpoint(
        agent_checkpoint_name(RunId("polled")), AgentCheckpoint().to_text()
    )
    for run in ("run-1", "polled", "no-such-run", "a%00b"):
        # The response does not reveal whether the body was valid.
        for given in ({"json": ENDED}, {"content": b"{", "headers": {"Content-Type": "x/y"}}):
            answer = await send_callback(rig, run, token, **given)
            assert answer.status_code == 404
    assert await rig.store.get_checkpoint(agent_callback_name(RunId("run-1"))) is None


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"json": []}, 422),
        ({"json": {"status": 5}}, 422),
        ({"json": {}}, 422),
        ({"content": b"", "headers": {"Content-Type": "application/json"}}, 422),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        ({"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"json": {"status": "done", "output": "x" * 300_000}}, 413),
    ],
)
async def test_invalid_callbacks_are_rejected(rig: Rig, given: Any, status: int) -> None:
    run = RunId("run-1")
    await rig.store.set_checkpoint(
        agent_checkpoint_name(run), AgentCheckpoint(token="T" * 43).to_text()
    )
    assert (await send_callback(rig, run, "T" * 43, **given)).status_code == status
    assert await rig.store.get_checkpoint(agent_callback_name(run)) is None
