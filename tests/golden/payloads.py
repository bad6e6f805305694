"""Payloads that must not change by accident: stored JSON, API bodies, OpenAPI, options and forms.

Each collector returns items by name; `files/NAME.json` has those of the committed code.
`python -m tests.golden.payloads` writes the files again, after an intended change.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import time, timedelta
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from chimes.cli.command import run as run_command
from chimes.client.requests import delivery_json, policy_json, target_json
from chimes.errors import ChimesError
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Scope
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Digest, Period, QuietHours, Recipient
from chimes.model.run import LogEntry
from chimes.model.schedule import Dependency
from chimes.model.sync import Collection, Source, Sources
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    DaskTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    RedisStreamTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.sdk.app import Chimes
from chimes.services.schedules.definitions import recipient_from_json, target_from_json
from chimes.store.codec.records import (
    attempt_from_plain,
    attempt_to_plain,
    audit_from_plain,
    audit_to_plain,
    checkpoint_from_plain,
    checkpoint_to_plain,
    delivery_from_plain,
    delivery_to_plain,
    inbox_from_plain,
    inbox_to_plain,
    key_from_plain,
    key_to_plain,
    log_from_plain,
    log_to_plain,
    run_from_plain,
    run_to_plain,
)
from chimes.store.codec.values import (
    policy_from_plain,
    policy_to_plain,
    recipient_from_plain,
    recipient_to_plain,
    schedule_from_plain,
    schedule_to_plain,
    target_from_plain,
    target_to_plain,
)
from chimes.web.api.translate import run_out, schedule_out
from chimes.web.openapi import describe_api
from tests.builders import (
    FULL_HOOK,
    NOW,
    a_delivery,
    a_key,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    an_item,
    full_delivery,
    full_item,
    full_run,
    full_schedule,
)
from tests.web.dashboard.browsing import browsing
from tests.web.rig import definition, serving

FILES = Path(__file__).parent / "files"
Items = dict[str, Any]

#: Values that are wrong for most fields; every field is given each of them.
WRONG: tuple[object, ...] = (None, 5, "", "x", [True], {"x": 1}, True)

TARGETS: Mapping[str, Target] = {
    "http": HttpTarget(
        url="https://example.com/ü",
        method="PATCH",
        headers={"X-One": "1", "Authorization": "Bearer t"},
        body='{"a": 1}',
        expected_status=(200, 204),
        signing_secrets=("whsec_b25l",),
        verify_tls=False,
    ),
    "task": TaskTarget(name="reports.nightly", args={"days": 7, "password": "p"}),
    "flow": FlowTarget(name="pipeline", input={"source": "s3", "token": "t"}),
    "sync": SyncTarget(source="crm", collection="deals"),
    "agent": AgentTarget(prompt="Summarise", pipeline="runs", model="m", max_tokens=100),
    "action": ActionTarget(
        action_type_id="restart",
        kn_id="kn1",
        branch="dev",
        identities=({"id": "pod-1"},),
        params={"force": True, "secret": "s"},
        account_id="u-1",
        account_type="user",
    ),
    "message": MessageTarget(text="Hello"),
    "command": CommandTarget(
        command=("backup.sh", "--all"),
        cwd="/srv",
        env={"LEVEL": "full", "PASSWORD": "p"},
        stdin="yes",
        user="backup",
        umask="027",
        success_codes=(0, 3),
        memory_limit=2**30,
        cpu_limit=timedelta(minutes=1),
        output_limit=10_000,
        kill_after=timedelta(seconds=5),
        requires={"zone": "eu"},
    ),
    "celery": CeleryTarget(
        connection="tasks",
        task="reports.nightly",
        args=(7, "eu", {"token": "t"}),
        kwargs={"days": 7, "password": "p"},
        queue="slow",
    ),
    "dask": DaskTarget(
        connection="grid", function="shop.reports:daily", args=(1,), kwargs={"secret": "s"}
    ),
    "kubernetes": KubernetesTarget(
        connection="cluster",
        image="registry.example.com/report:3",
        command=("report", "--all"),
        env={"LEVEL": "full", "PASSWORD": "p"},
        namespace="batch",
        manifest={"spec": {"parallelism": 1}},
    ),
    "amqp": AmqpTarget(
        connection="rabbit",
        exchange="orders",
        routing_key="order.created",
        body='{"run": "{{run_id}}", "token": "t"}',
        cloudevents=True,
    ),
    "nats": NatsTarget(connection="bus", subject="orders.created", body="x", cloudevents=True),
    "redis_stream": RedisStreamTarget(
        connection="cache", stream="orders", fields={"run": "1", "password": "p"}, cloudevents=True
    ),
    "kafka": KafkaTarget(connection="log", topic="orders", key="k", body="x", cloudevents=True),
    "http minimal": HttpTarget(url="https://example.com/"),
    "task minimal": TaskTarget(name="t"),
    "flow minimal": FlowTarget(name="f"),
    "agent minimal": AgentTarget(prompt="p"),
    "action minimal": ActionTarget(action_type_id="a", kn_id="k"),
    "command minimal": CommandTarget(shell="true"),
}
RECIPIENTS: Mapping[str, Recipient] = {
    "full": FULL_HOOK,
    "minimal": Recipient(channel=Channel.INBOX),
    "quiet and digest minimal": Recipient(
        channel=Channel.EMAIL,
        to="ada@example.com",
        quiet=QuietHours(start=time(22), end=time(7)),
        digest=Digest(every=Period.HOUR, at=time(0)),
        late_after=timedelta(0),
    ),
}
POLICIES: Mapping[str, Policy] = {
    "full": full_schedule().policy,
    "minimal": Policy(),
    "zero": Policy(misfire_grace=timedelta(0), retry_backoff=timedelta(0), pause_on_gone=False),
}


def outcome(call: Callable[[], object]) -> object:
    """The result, or the error with its field, code and message."""
    try:
        return call()
    except (ChimesError, TypeError, ValueError, KeyError, OverflowError) as error:
        field, code = getattr(error, "field", None), getattr(error, "code", None)
        return f"{type(error).__name__} field={field} code={code}: {error}"


def paths(plain: object, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    """The places of all values in nested JSON; of a list, its first item."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield (*before, name)
            yield from paths(value, *before, name)
    elif isinstance(plain, list) and plain:
        yield (*before, 0)
        yield from paths(plain[0], *before, 0)


def variants(plain: object) -> Iterator[tuple[str, Any]]:
    """Copies with one wrong, missing or unknown value each."""
    for place in paths(plain):
        *outer, last = place
        for wrong in (*WRONG, ...):
            changed = copy.deepcopy(plain)
            inner: Any = changed
            for name in outer:
                inner = inner[name]
            if wrong is ...:
                del inner[last]
            else:
                inner[last] = wrong
            shown = "missing" if wrong is ... else json.dumps(wrong)
            yield f"{'.'.join(map(str, place))} = {shown}", changed
    if isinstance(plain, dict):
        yield "unknown field", {**plain, "nonsense": 1}
    for wrong in WRONG:
        yield f"all = {json.dumps(wrong)}", wrong


def stored() -> Items:
    """Stored JSON of values, and how wrong stored JSON is reported or read."""
    minimal_run = a_run(id="r1", schedule_id=None, schedule_name="", result={})
    groups: dict[str, tuple[Mapping[str, Any], Callable[..., Any], Callable[..., Any]]] = {
        "target": (TARGETS, target_to_plain, target_from_plain),
        "recipient": (RECIPIENTS, recipient_to_plain, recipient_from_plain),
        "policy": (POLICIES, policy_to_plain, policy_from_plain),
        "schedule": (
            {
                "full": full_schedule(),
                "minimal": a_schedule(id="s1", name="s", created_at=NOW, updated_at=NOW),
                "dependency": a_schedule(
                    id="s2", name="s", depends_on=Dependency(schedule_id="s1")
                ),
            },
            schedule_to_plain,
            schedule_from_plain,
        ),
        "run": ({"full": full_run(), "minimal": minimal_run}, run_to_plain, run_from_plain),
        "attempt": (
            {"full": full_run().attempts[0]},
            attempt_to_plain,
            attempt_from_plain,
        ),
        "delivery": (
            {"full": full_delivery(), "minimal": a_delivery(id="d1", run_id="r1")},
            delivery_to_plain,
            delivery_from_plain,
        ),
        "inbox item": (
            {"full": full_item(), "minimal": an_item(id="i1", title="t")},
            inbox_to_plain,
            inbox_from_plain,
        ),
        "audit entry": (
            {"full": an_entry(number=7, hash="h", previous_hash="g"), "minimal": an_entry()},
            audit_to_plain,
            audit_from_plain,
        ),
        "key": (
            {
                "full": a_key(
                    id="k1", expires_at=NOW, last_used_at=NOW, revoked_at=NOW, scopes=tuple(Scope)
                ),
                "minimal": a_key(id="k1"),
            },
            key_to_plain,
            key_from_plain,
        ),
        "log entry": (
            {"full": LogEntry(at=NOW, message="m", level="error", number=3)},
            log_to_plain,
            log_from_plain,
        ),
        "checkpoint": (
            {"full": Checkpoint(name="n", value="v", changed_at=NOW, run_id=RunId("r"))},
            checkpoint_to_plain,
            checkpoint_from_plain,
        ),
    }
    found: Items = {}
    for group, (values, to_plain, from_plain) in groups.items():
        for name, value in values.items():
            plain = json.loads(json.dumps(to_plain(value)))
            assert from_plain(plain) == value, (group, name)
            found[f"{group} {name}"] = plain
            if "minimal" in name:
                continue
            for where, wrong in variants(plain):
                # The parts of a schedule or run have their own items.
                if re.match(r"(target|policy|result|labels|door_data|trigger)\.", where):
                    continue
                read = outcome(partial(_read_again, to_plain, from_plain, wrong))
                found[f"{group} {name}: {where}"] = _difference(read, plain)
    return found


def _read_again(
    to_plain: Callable[..., Any], from_plain: Callable[..., Any], given: object
) -> object:
    return to_plain(from_plain(given))


def _difference(read: object, plain: Mapping[str, object]) -> object:
    """Only the changed fields of a value that could be read."""
    if not isinstance(read, dict):
        return read
    changed = {name: value for name, value in read.items() if plain.get(name, ...) != value}
    gone = [name for name in plain if name not in read]
    return {"read": changed, "without": gone} if gone else {"read": changed}


RECIPIENT_BODY: Items = {
    "channel": "webhook",
    "to": "https://example.com/hook",
    "on": ["failure", "late"],
    "language": "th",
    "signing_secrets": ["whsec_" + 8 * "b25l"],
    "late_after": "5m",
    "quiet": {"from": "22:00", "to": "7:30", "zone": "Asia/Bangkok", "except": ["failure"]},
    "digest": {
        "every": "weekly",
        "at": "09:15",
        "on": "friday",
        "zone": "UTC",
        "except": ["failure"],
    },
}
POLICY_BODY: Items = {
    "misfire": "all",
    "misfire_grace": "PT1S",
    "catch_up_limit": 7,
    "overlap": "queue",
    "max_concurrent_runs": 3,
    "burst_allowed": True,
    "concurrency_key": "shared",
    "max_retries": 9,
    "retry_backoff": "1.5s",
    "backoff": "exponential",
    "backoff_cap": "48h",
    "timeout": "3s",
    "on_lost": "stop",
    "pause_on_gone": False,
}
TARGET_BODIES: Mapping[str, Items] = {
    "http": {
        "kind": "http",
        "url": "https://example.com/ü",
        "method": "patch",
        "headers": {"X-One": "1", "Authorization": "Bearer t"},
        "body": {"a": 1},
        "expected_status": [200, 204],
        "signing_secrets": ["whsec_" + 8 * "b25l"],
        "verify_tls": True,
    },
    "task": {"kind": "task", "name": "reports.nightly", "args": {"days": 7, "password": "p"}},
    "flow": {"kind": "flow", "name": "pipeline", "input": {"source": "s3", "token": "t"}},
    "sync": {"kind": "sync", "source": "crm", "collection": "deals"},
    "agent": {
        "kind": "agent",
        "prompt": "Summarise",
        "pipeline": "runs",
        "model": "m",
        "max_tokens": 100,
    },
    "action": {
        "kind": "action",
        "action_type_id": "restart",
        "kn_id": "kn1",
        "branch": "dev",
        "identities": [{"id": "pod-1"}],
        "params": {"force": True, "secret": "s"},
        "account": {"id": "u-1", "type": "user"},
    },
    "message": {"kind": "message", "text": "Hello"},
}

#: Where the sync target, the task and the flow of these bodies can run.
SOURCES = Sources(
    by_id={"crm": Source(id="crm", driver="python", collections=(Collection(name="deals"),))}
)
NODE = a_node(capabilities=("http", "task:reports.nightly", "flow:pipeline"))


async def api() -> Items:
    """Responses to valid and wrong requests: a new schedule, and a change of each part."""
    found: Items = {}
    async with serving(documented=False, sources=SOURCES) as rig:
        await rig.store.join(NODE, timedelta(hours=1))

        async def send(name: str, method: str, path: str, body: Items) -> str:
            answer = await rig.client.request(method, path, json=body)
            data = answer.json()
            if answer.status_code < 300:
                shown = {part: data[part] for part in ("target", "policy", "delivery")}
                found[name] = {part: shown[part] for part in shown if part in body}
                return str(data["id"])
            errors = data.get("errors") or [data["detail"]]
            found[name] = [answer.status_code, *errors]
            return ""

        async def both(name: str, part: str, full: object, given: object) -> None:
            made = await send(
                f"new {name}", "POST", "/api/v1/schedules", definition(**{part: given})
            )
            if not made:
                answer = await rig.client.post("/api/v1/schedules", json=definition(**{part: full}))
                made = answer.json().get("id", "")
                if not made:
                    return
            await send(f"change {name}", "PATCH", f"/api/v1/schedules/{made}", {part: given})
            if found[f"change {name}"] == found[f"new {name}"]:
                found[f"change {name}"] = "as new"

        cases: list[tuple[str, str, Any, Any]] = [("policy", "policy", POLICY_BODY, {})]
        cases += [(f"target {kind}", "target", body, {}) for kind, body in TARGET_BODIES.items()]
        for name, part, full, _empty in cases:
            await both(name, part, full, full)
            await both(f"{name} empty", part, full, {})
            for where, wrong in variants(full):
                await both(f"{name}: {where}", part, full, wrong)
        await both("delivery", "delivery", [RECIPIENT_BODY], [RECIPIENT_BODY])
        await both(
            "delivery short digest", "delivery", [], [{"channel": "inbox", "digest": "daily"}]
        )
        for where, wrong in variants(RECIPIENT_BODY):
            await both(f"delivery: {where}", "delivery", [RECIPIENT_BODY], [wrong])
        # Another kind replaces the target; `***` keeps a secret.
        base = (await rig.client.post("/api/v1/schedules", json=definition())).json()["id"]
        for kind, body in TARGET_BODIES.items():
            path = f"/api/v1/schedules/{base}"
            await send(f"replace by incomplete {kind}", "PATCH", path, {"target": {"kind": kind}})
            await send(f"replace by {kind}", "PATCH", path, {"target": body})
            answer = (await rig.client.get(path)).json()
            await send(f"masked {kind}", "PATCH", path, {"target": answer["target"]})
            kept = await rig.store.get_schedule(base)
            assert kept is not None
            found[f"kept {kind}"] = target_to_plain(kept.target)
    for lang in ("en", "th"):
        late = _("there is no run {id!r}", id="r1")
        schedule = replace(full_schedule(), last_error=late, pause_note=late)
        found[f"schedule {lang}"] = schedule_out(schedule, lang)
        found[f"schedule minimal {lang}"] = schedule_out(a_schedule(id="s1", name="s"), lang)
        found[f"run {lang}"] = run_out(replace(full_run(), error=late), lang)
        found[f"run minimal {lang}"] = run_out(a_run(id="r1", schedule_id=None), lang)
    return found


async def openapi() -> Items:
    async with serving(documented=False) as rig:
        document = describe_api(rig.app)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        # A set in JSON Schema.
        schema.get("required", []).sort()
    return {f"schema {name}": schema for name, schema in schemas.items()} | {
        f"path {path}": operations
        for path, operations in document["paths"].items()
        if path in ("/api/v1/schedules", "/api/v1/schedules/{schedule_id}", "/api/v1/runs")
    }


def command_line() -> Items:
    found: Items = {}
    with mock.patch.dict(os.environ, {"LC_ALL": "C.UTF-8", "COLUMNS": "100"}):
        for name in ("add", "run"):
            found[f"help of {name}"] = _command(name, "--help").splitlines()
        for name, words in {
            "http": ["--http", "https://example.com/", "--header", "A: b", "--body", "x"],
            "policy": [
                *("--task", "t", "--arg", "days=7", "--retry", "2", "--timeout", "5s"),
                *("--overlap", "queue", "--misfire", "all", "--priority", "3"),
            ],
            "flow": ["--flow", "f", "--input", '{"a": 1}', "--notify", "inbox:on=failure"],
            "agent": ["--agent", "--prompt", "p", "--model", "m"],
            "action": ["--action", "a", "--kn", "k", "--param", "x=1", "--account", "u:user"],
            "message": ["--message", "hello", "--notify", "email:a@b.example:quiet=22:00-07:00"],
            "sync": ["--sync", "shop/orders"],
            "wrong overlap": ["--task", "t", "--overlap", "maybe"],
            "wrong retries": ["--task", "t", "--retry", "-1"],
            "retries are no number": ["--task", "t", "--retry", "x"],
        }.items():
            text = _command("add", "@daily", "--tz", "UTC", "--dry-run", "--json", *words)
            found[f"add {name}"] = text.partition("{\n")[1:] and [
                line for line in text.splitlines() if not re.search(r"\d\d:\d\d", line)
            ]
    return found


def _command(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run_command(words)
    return f"{out.getvalue()}exit {code}"


def client() -> Items:
    found: Items = {f"target {name}": target_json(target) for name, target in TARGETS.items()}
    for text in ("task:t", "flow:f", "sync:a/b", "t", "https://example.com/", "x:y"):
        found[f"target {text}"] = outcome(partial(target_json, text))
    for name, recipient in RECIPIENTS.items():
        found[f"recipient {name}"] = delivery_json([recipient])
    for option, values in OPTIONS.items():
        for value in (*values, None, "x", 1.5):
            name = f"option {option} = {value!r}"
            found[name] = outcome(partial(policy_json, {option: value}))  # type: ignore[misc]
    return found


#: Options of the SDK and the client, with valid values.
OPTIONS: Mapping[str, tuple[object, ...]] = {
    "catch_up": ("all",),
    "misfire_grace": ("90s", 90, timedelta(minutes=2)),
    "catch_up_limit": (7,),
    "overlap": ("queue",),
    "max_concurrent_runs": (3, 0),
    "burst_allowed": (True, False),
    "concurrency_key": ("shared",),
    "retries": (9, -1),
    "retry_backoff": ("90s", 90, 0),
    "backoff": ("exponential",),
    "timeout": ("90s", 90, 0, timedelta(days=9)),
    "on_lost": ("stop",),
}


def sdk() -> Items:
    found: Items = {}

    def declare(**options: Any) -> object:
        app = Chimes()

        @app.task(name="t")
        def task() -> None: ...

        app.schedule("s", "@daily", "t", **options)
        (declared,) = app.declarations._declared.values()
        return {name: repr(value) for name, value in sorted(declared.policy.items())}

    for option, values in OPTIONS.items():
        for value in (*values, None, "x", [1]):
            name = f"option {option} = {value!r}"
            found[name] = outcome(partial(declare, **{option: value}))
    for kind, body in TARGET_BODIES.items():
        found[f"target {kind}"] = target_to_plain(target_from_json(body))
        for where, wrong in variants(body):
            if isinstance(wrong, dict):
                text = outcome(lambda given=wrong: target_to_plain(target_from_json(given)))
                found[f"target {kind}: {where}"] = text
    found["recipient"] = recipient_to_plain(recipient_from_json(RECIPIENT_BODY))
    for where, wrong in variants(RECIPIENT_BODY):
        if isinstance(wrong, dict):
            text = outcome(lambda given=wrong: recipient_to_plain(recipient_from_json(given)))
            found[f"recipient: {where}"] = text
    return found


class _Labelled(HTMLParser):
    """Each field of the editor form with its attributes, label, choices and hint."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: Items = {}
        self._label = self._text = ""
        self._name = ""
        self._part = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "label":
            self._label, self._part = "", "label"
        elif tag in ("input", "select", "textarea") and given.get("name"):
            self._name, self._part = given["name"], ""
            kept = {k: v for k, v in given.items() if k in _SHOWN}
            found = self.fields.setdefault(self._name, {"tag": tag, "label": self._label.strip()})
            found |= kept
            if tag == "input" and given.get("type") in ("radio", "checkbox"):
                found.setdefault("values", []).append(given.get("value", "on"))
        elif tag == "option" and self._name in self.fields:
            self._part = "option"
            self.fields[self._name].setdefault("choices", []).append([given.get("value"), ""])
        elif tag == "span" and "hint" in given.get("class", ""):
            self._part = "hint"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("label", "option", "span", "select", "div"):
            self._part = ""

    def handle_data(self, data: str) -> None:
        if self._part == "label":
            self._label += data
        elif self._part == "option":
            self.fields[self._name]["choices"][-1][1] += data
        elif self._part == "hint" and self._name:
            self.fields[self._name]["hint"] = data


_SHOWN = ("type", "placeholder", "inputmode", "list", "rows", "value", "checked", "class")


async def editor() -> Items:
    """The fields of the editor: of a new schedule, and of each kind of target."""
    found: Items = {}
    async with browsing(sources=SOURCES) as browser:
        await browser.rig.store.join(NODE, timedelta(hours=1))

        async def read(page: str, path: str) -> None:
            html = (await browser.get(path)).text
            start, end = html.index('id="editor"'), html.rindex("</form>")
            fields = _Labelled()
            fields.feed(html[html.rindex("<form", 0, start) : end])
            for name, each in fields.fields.items():
                # Only the fields that a schedule has other than a new one, without random ids.
                if name not in ("csrf", "base", "back") and each != found.get(f"new: {name}"):
                    each.pop("choices" if name == "depends_on" else "", None)
                    found[f"{page}: {name}"] = each

        await read("new", "/ui/schedules/new")
        for language in ("th", "zh"):
            browser.client.headers["Accept-Language"] = language
            await read(f"new {language}", "/ui/schedules/new")
        browser.client.headers["Accept-Language"] = "en"
        for kind, body in TARGET_BODIES.items():
            made = await browser.rig.create(
                name=f"s {kind}",
                target=body,
                **({"policy": POLICY_BODY, "delivery": [RECIPIENT_BODY]} if kind == "http" else {}),
            )
            await read(kind, f"/ui/schedules/{made['id']}/edit")
    return found


COLLECTORS: Mapping[str, Callable[[], Items | Awaitable[Items]]] = {
    "stored": stored,
    "api": api,
    "openapi": openapi,
    "command_line": command_line,
    "client": client,
    "sdk": sdk,
    "editor": editor,
}


async def collect(name: str) -> Items:
    found = COLLECTORS[name]()
    items = found if isinstance(found, dict) else await found
    normal: Items = json.loads(json.dumps(items, default=str))
    return normal


def recorded(name: str) -> Items:
    found: Items = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def main() -> None:
    FILES.mkdir(exist_ok=True)
    for name in COLLECTORS:
        items = asyncio.run(collect(name))
        lines = (
            f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
            for key, value in sorted(items.items())
        )
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        (FILES / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}: {len(items)} items")


if __name__ == "__main__":
    main()
