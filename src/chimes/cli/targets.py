"""`add --http|--task|--flow|--sync|--agent|--action|--message`: what a schedule is to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from chimes.cli.failure import USAGE, Failure
from chimes.cli.output import Json
from chimes.wording import say

_KINDS = ("http", "task", "flow", "sync", "agent", "action", "message")
_LONGEST_NAME = 80
#: Which options belong to which kind.
_OWN: Mapping[str, tuple[str, ...]] = {
    "http": ("method", "header", "body"),
    "task": ("arg", "args"),
    "flow": ("input",),
    "sync": (),
    "agent": ("prompt", "model"),
    "action": ("kn", "branch", "identity", "param", "account"),
    "message": (),
}


def target_from_options(options: Mapping[str, object], task: str = "") -> tuple[Json, str]:
    """The target, and a name for a schedule that was given none. `task`: what is to be done as the
    words said it; where nobody is named to do it, it is a prompt."""
    given = [kind for kind in _KINDS if options[kind]]
    if not given and (options["prompt"] or task):
        given = ["agent"]
    if len(given) != 1:
        raise click.UsageError(
            say(
                "Say what to do with one of --http URL, --task NAME, --flow NAME,"
                " --sync SOURCE/COLLECTION, --agent --prompt TEXT, --action ID --kn ID,"
                " --message TEXT, or in words after the time."
            )
        )
    kind = given[0]
    for other in _KINDS:
        for option in _OWN[other]:
            if other != kind and options[option]:
                raise click.UsageError(
                    say(
                        "--{option} is for --{owner}, not for --{chosen}.",
                        option=option,
                        owner=other,
                        chosen=kind,
                    )
                )
    target, usual_name = _agent(options, task) if kind == "agent" else _target(kind, options)
    return target, _first_line(task) or usual_name


def _target(kind: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if kind == "http":
        return _http(options)
    name = str(options[kind])
    if kind == "sync":
        return _sync(name)
    if kind == "action":
        return _action(name, options)
    if kind == "message":
        text = text_in(name)
        return {"kind": "message", "text": text}, _first_line(text)
    if kind == "flow":
        start = _json_object(options["input"], "--input")
        return {"kind": "flow", "name": name, "input": start}, f"{kind} {name}"
    args = _json_object(options["args"], "--args")
    args |= dict(_argument(each) for each in _texts(options["arg"]))
    return {"kind": "task", "name": name, "args": args}, f"{kind} {name}"


def _http(options: Mapping[str, object]) -> tuple[Json, str]:
    method, url = str(options["method"] or "POST").upper(), str(options["http"])
    target: Json = {"kind": "http", "url": url, "method": method}
    headers = _texts(options["header"])
    if headers:
        target["headers"] = dict(_header(each) for each in headers)
    if isinstance(options["body"], str):
        target["body"] = text_in(options["body"])
    return target, f"{method} {url}"


def _agent(options: Mapping[str, object], task: str) -> tuple[Json, str]:
    given = options["prompt"]
    prompt = text_in(given) if isinstance(given, str) else task
    if not prompt.strip():
        raise click.UsageError(say("Say what the agent is to do with --prompt TEXT."))
    target: Json = {"kind": "agent", "prompt": prompt}
    if options["model"]:
        target["model"] = options["model"]
    return target, _first_line(prompt)


def _first_line(text: str) -> str:
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"


def _sync(text: str) -> tuple[Json, str]:
    source, slash, collection = text.partition("/")
    if not slash or not source or not collection:
        raise click.UsageError(
            say("--sync is written as SOURCE/COLLECTION, not {text!r}.", text=text)
        )
    kind = "sync"
    return {"kind": kind, "source": source, "collection": collection}, f"{kind} {text}"


def _action(name: str, options: Mapping[str, object]) -> tuple[Json, str]:
    if not options["kn"]:
        raise click.UsageError(say("Say of which knowledge network it is with --kn ID."))
    target: Json = {
        "kind": "action",
        "action_type_id": name,
        "kn_id": options["kn"],
        "identities": [_json_object(each, "--identity") for each in _texts(options["identity"])],
        "params": dict(_argument(each) for each in _texts(options["param"])),
    }
    if options["branch"]:
        target["branch"] = options["branch"]
    if isinstance(account := options["account"], str):
        account_id, _, account_type = account.partition(":")
        target["account"] = {"id": account_id, "type": account_type}
    return target, f"action {name}"


def overrides(
    params: Sequence[str], body: str | None, prompt: str | None, message: str | None
) -> Json:
    """What one run has otherwise than its schedule, as the API takes it."""
    found: Json = {}
    if params:
        found["params"] = dict(_argument(each) for each in params)
    if body is not None:
        found["body"] = text_in(body)
    if prompt is not None:
        found["prompt"] = text_in(prompt)
    if message is not None:
        found["text"] = text_in(message)
    return found


def _argument(text: str) -> tuple[str, object]:
    """`n=5` is a number, `ok=true` a truth value; what is no JSON is text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(
            say("An argument is written as name=value, not {text!r}.", text=text)
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _json_object(text: object, option: str) -> Json:
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text_in(text))
    except ValueError as error:
        raise click.UsageError(
            say("{option} is not JSON: {reason}.", option=option, reason=error)
        ) from None
    if not isinstance(found, dict):
        raise click.UsageError(
            say('{option} is a JSON object such as \'{{"name": "Ada"}}\'.', option=option)
        )
    return found


def _texts(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else []


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise click.UsageError(
            say("A header is written as 'Name: value', not {text!r}.", text=text)
        )
    return name.strip(), value.strip()


def text_in(text: str) -> str:
    """What was given itself, or what stands in the file that it names."""
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            say("{file} cannot be read: {reason}", file=text[1:], reason=error), USAGE
        ) from None
