"""A field that is added to a Struct appears in codec, API, client, SDK, command line and form.

The fields are added in a new process, before any other module has read the declaration.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chimes.client.requests import RunOptions
from chimes.model.policy import policy_options
from chimes.sdk.app import Chimes
from tests.tables import each_row
from tests.web.rig import HTTP

ROOT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, contextlib, inspect, io, json
from datetime import timedelta

import msgspec

import chimes.model.recipient as recipients

recipients.Recipient = msgspec.defstruct(
    "Recipient",
    [("volume", int, 5), ("rude", bool, False), ("tone", str, "")],
    bases=(recipients.Recipient,), module=recipients.__name__, frozen=True, kw_only=True,
)

import chimes.model.policy as policies

policies.Policy = msgspec.defstruct(
    "Policy",
    [
        ("sparkle", int, 7),
        ("shiny", bool, False),
        ("glow", timedelta, timedelta(0)),
        ("shade", policies.Backoff, policies.Backoff.FIXED),
        ("colour", str | None, None),
    ],
    bases=(policies.Policy,), module=policies.__name__, frozen=True, kw_only=True,
)

import chimes.model.target as targets

targets.HttpTarget = msgspec.defstruct(
    "HttpTarget", [("proxy", str, "")],
    bases=(targets.HttpTarget,), module=targets.__name__, frozen=True, kw_only=True,
)
targets.TARGETS["http"] = targets.HttpTarget
targets.Target = (
    targets.HttpTarget | targets.TaskTarget | targets.FlowTarget | targets.SyncTarget
    | targets.AgentTarget | targets.ActionTarget | targets.MessageTarget
)

from chimes.cli.command import run as run_command
from chimes.client.requests import (
    RunOptions, check_options, delivery_json, policy_json, target_json,
)
from chimes.sdk.app import Chimes
from chimes.sdk.declare import parse_policy
from chimes.services.schedules.definitions import recipient_from_json, target_from_json
from chimes.store.codec.values import (
    policy_from_plain, policy_to_plain, recipient_from_plain, recipient_to_plain,
    target_from_plain, target_to_plain,
)
from chimes.web.openapi import describe_api
from tests.web.dashboard.browsing import browsing
from tests.web.dashboard.form_helpers import fields_on, fill
from tests.web.rig import HTTP, definition

found = {}
plain = {"sparkle": 3, "shiny": True, "glow": 2_000_000, "shade": "exponential", "colour": "red"}
policy = policy_from_plain(plain)
found["stored"] = {name: policy_to_plain(policy).get(name) for name in plain}
usual = policy_to_plain(policies.Policy())
found["written with their default"] = sorted(plain.keys() & usual.keys())
recipient = {"channel": "inbox", "volume": 9, "rude": True, "tone": "x"}
found["stored recipient"] = recipient_to_plain(recipient_from_plain(recipient))
http = HTTP | {"proxy": "p"}
found["stored target"] = target_to_plain(target_from_plain(http))

options = {"sparkle": 3, "shiny": True, "glow": 2, "shade": "exponential", "colour": "red"}
check_options("schedule", options, RunOptions.__optional_keys__)
found["client"] = policy_json(options)
found["client recipient"] = delivery_json([recipient_from_plain(recipient)])
found["client target"] = target_json(target_from_plain(http))
parsed = parse_policy(targets.HttpTarget(url="https://example.com/"), options)
found["sdk"] = {name: str(value) for name, value in parsed.items()}
found["sdk recipient"] = recipient_to_plain(recipient_from_json(recipient))
found["sdk target"] = target_to_plain(target_from_json(http))
arguments = inspect.signature(Chimes.schedule).parameters
found["missing for type checkers"] = {
    "sdk": sorted(policies.policy_options("sdk").keys() - {*arguments}),
    "client": sorted(policies.policy_options("client").keys() - {*RunOptions.__annotations__}),
}


def command(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run_command(words)
    return out.getvalue()


words = "--sparkle 3 --shiny true --glow 2s --shade exponential --colour red".split()
text = command("add", "@daily", "--http", "https://example.com/", "--dry-run", "--json", *words)
found["command line"] = json.loads(text)["policy"]
found["help"] = [name for name in plain if f"--{name}" in command("add", "--help")]


async def web():
    async with browsing() as browser:
        rig = browser.rig
        schemas = describe_api(rig.app)["components"]["schemas"]
        for name in ("PolicyIn", "Policy", "RecipientIn", "Recipient", "HttpTargetIn",
                     "HttpTarget", "TargetPatch"):
            added = {*plain, *recipient, "proxy"} - {"channel"}
            found[f"schema {name}"] = sorted(added & schemas[name]["properties"].keys())
        sent = {"sparkle": 3, "shiny": True, "glow": "2s", "shade": "exponential", "colour": "red"}
        made = await rig.create(policy=sent, target=http, delivery=[recipient])
        found["response"] = {name: made["policy"][name] for name in sent}
        found["response recipient"] = {name: made["delivery"][0][name] for name in recipient}
        found["response target"] = made["target"]["proxy"]
        wrong = definition(policy={"sparkle": "x"})
        answer = (await rig.client.post("/api/v1/schedules", json=wrong)).json()
        found["wrong value"] = answer["errors"][0]["pointer"]
        page = f"/ui/schedules/{made['id']}/edit"
        fields = fields_on((await browser.get(page)).text)
        found["form"] = {name: fields.get(name) for name in sent}
        found["form recipient"] = {name: fields.get(f"notify0_{name}") for name in recipient}
        found["form target"] = fields.get("proxy")
        changes = {"sparkle": "4", "notify0_volume": "1", "proxy": "q", "colour": ""}
        answer = await fill(browser, page, **changes)
        found["saved"] = answer.status_code
        after = (await rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
        found["after the form"] = [
            after["policy"]["sparkle"], after["policy"]["colour"], after["policy"]["shiny"],
            after["delivery"][0]["volume"], after["delivery"][0]["rude"], after["target"]["proxy"],
        ]


asyncio.run(web())
print("RESULT", json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        cwd=tmp_path_factory.mktemp("fields"),
        env={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.rpartition("RESULT ")[2])
    return result


NEW = ["colour", "glow", "shade", "shiny", "sparkle"]
API = {"sparkle": 3, "shiny": True, "glow": "PT2S", "shade": "exponential", "colour": "red"}
RECIPIENT: dict[str, object] = {"channel": "inbox", "volume": 9, "rude": True, "tone": "x"}
TARGET: dict[str, object] = HTTP | {"proxy": "p"}


@each_row(
    ("place", "expected"),
    [
        ("stored", {**API, "glow": 2_000_000}),
        # A default that is not empty is written, so that it may change later.
        ("written with their default", ["shade", "sparkle"]),
        ("client", API),
        ("sdk", {**API, "sparkle": "3", "shiny": "True", "glow": "0:00:02"}),
        ("missing for type checkers", {"sdk": NEW, "client": NEW}),
        ("command line", {**API, "glow": "2s"}),
        ("help", [*API]),
        ("schema PolicyIn", NEW),
        ("schema Policy", NEW),
        ("response", API),
        ("wrong value", "/policy/sparkle"),
        (
            "form",
            {
                "sparkle": "3",
                "shiny": "yes",
                "glow": "2s",
                "shade": "exponential",
                "colour": "red",
            },
        ),
        ("saved", 303),
    ],
)
def test_a_field_of_the_policy_is_everywhere(
    found: dict[str, Any], place: str, expected: object
) -> None:
    assert found[place] == expected


@each_row(
    ("place", "expected"),
    [
        ("stored recipient", RECIPIENT),
        (
            "client recipient",
            [RECIPIENT | {"to": "", "on": [], "language": "", "signing_secrets": []}],
        ),
        ("sdk recipient", RECIPIENT | {"on": ["always"]}),
        ("schema RecipientIn", ["rude", "tone", "volume"]),
        ("schema Recipient", ["rude", "tone", "volume"]),
        ("response recipient", RECIPIENT),
        ("form recipient", {"channel": "inbox", "volume": "9", "rude": "yes", "tone": "x"}),
        ("stored target", TARGET),
        (
            "client target",
            TARGET
            | {"headers": {}, "body": "", "verify_tls": True}
            | {"expected_status": [], "signing_secrets": []},
        ),
        ("sdk target", TARGET),
        ("schema HttpTargetIn", ["proxy"]),
        ("schema HttpTarget", ["proxy"]),
        ("schema TargetPatch", ["proxy"]),
        ("response target", "p"),
        ("form target", "p"),
        ("after the form", [4, None, True, 1, True, "q"]),
    ],
)
def test_a_field_of_a_recipient_or_target_is_everywhere(
    found: dict[str, Any], place: str, expected: object
) -> None:
    assert found[place] == expected


def test_signatures_for_type_checkers_list_every_option() -> None:
    arguments = {*inspect.signature(Chimes.schedule).parameters}
    assert policy_options("sdk").keys() - arguments == set()
    assert policy_options("client").keys() - {*RunOptions.__annotations__} == set()
