"""The section "what" of the wizard: a target as the API reads it, to fields and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from chimes.doors.dashboard.views_wizard_schema import arguments_plain
from chimes.doors.dashboard.views_wizard_when import Fields, Plain, whole
from chimes.errors import InvalidInput
from chimes.wording import say

KINDS = ("http", "task", "flow", "agent", "sync", "action", "message")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
EMPTY: Mapping[str, str] = {"kind": "http", "method": "POST", "verify_tls": "on", "branch": "main"}


def target_fields(target: Mapping[str, object]) -> Fields:
    kind = str(target.get("kind", "http"))
    found: Fields = {**EMPTY, "kind": kind}

    def put(**texts: str) -> None:
        for field, key in texts.items():
            value = target.get(key)
            if value not in (None, ""):
                found[field] = str(value)

    match kind:
        case "http":
            put(url="url", method="method", body="body")
            headers = target.get("headers")
            if isinstance(headers, Mapping):
                found["headers"] = "\n".join(f"{name}: {value}" for name, value in headers.items())
            found["expected_status"] = ", ".join(_texts(target.get("expected_status")))
            found["secrets"] = "\n".join(_texts(target.get("signing_secrets")))
            if target.get("verify_tls", True) is False:
                found["verify_tls"] = ""
        case "task":
            put(task="name")
            found["args"] = _shown(target.get("args"))
        case "flow":
            put(flow="name")
            found["input"] = _shown(target.get("input"))
        case "agent":
            put(prompt="prompt", pipeline="pipeline", model="model", max_tokens="max_tokens")
        case "message":
            found["message"] = str(target.get("text", ""))
        case "sync":
            found["pair"] = f"{target.get('source', '')}/{target.get('collection', '')}"
        case _:
            put(action="action_type_id", kn="kn_id", branch="branch")
            found |= _action_fields(target)
    return found


def _action_fields(target: Mapping[str, object]) -> Fields:
    account = target.get("account")
    known = account if isinstance(account, Mapping) else {}
    return {
        "identities": _shown(target.get("identities")),
        "params": _shown(target.get("params")),
        "account_id": str(known.get("id", "")),
        "account_type": str(known.get("type", "")),
    }


def target_plain(fields: Mapping[str, str]) -> Plain:
    """InvalidInput by the name of the field for what is no JSON or no number."""
    kind = fields.get("kind", "")
    match kind:
        case "http":
            return {
                "kind": kind,
                "url": fields.get("url", "").strip(),
                "method": fields.get("method") or "POST",
                "headers": _headers(fields.get("headers", "")),
                "body": fields.get("body", ""),
                "expected_status": _statuses(fields.get("expected_status", "")),
                "signing_secrets": fields.get("secrets", "").split(),
                "verify_tls": bool(fields.get("verify_tls")),
            }
        case "task":
            name = fields.get("task", "").strip()
            return {"kind": kind, "name": name, "args": dict(arguments_plain(fields))}
        case "flow":
            name = fields.get("flow", "").strip()
            return {"kind": kind, "name": name, "input": _json(fields, "input")}
        case "agent":
            tokens = whole(fields, "max_tokens") if fields.get("max_tokens") else None
            return {
                "kind": kind,
                "prompt": fields.get("prompt", "").strip(),
                "pipeline": fields.get("pipeline", ""),
                "model": fields.get("model", "").strip(),
                "max_tokens": tokens,
            }
        case "message":
            return {"kind": kind, "text": fields.get("message", "").strip()}
        case "sync":
            source, _, collection = fields.get("pair", "").strip().partition("/")
            return {"kind": kind, "source": source, "collection": collection}
        case "action":
            return {
                "kind": kind,
                "action_type_id": fields.get("action", "").strip(),
                "kn_id": fields.get("kn", "").strip(),
                "branch": fields.get("branch", "").strip() or "main",
                "identities": _json(fields, "identities", empty=list),
                "params": _json(fields, "params"),
                "account": {
                    "id": fields.get("account_id", "").strip(),
                    "type": fields.get("account_type", "").strip(),
                },
            }
        case _:
            raise InvalidInput(say("Choose what runs."), field="kind", code="missing")


def usual_name(fields: Mapping[str, str]) -> str:
    """For a schedule that nobody gave a name."""
    match fields.get("kind"):
        case "http":
            url = fields.get("url", "").strip()
            shown = url.partition("://")[2].partition("?")[0].rpartition("@")[2].rstrip("/")
            return f"{fields.get('method') or 'POST'} {shown}" if shown else ""
        case "agent":
            return " ".join(fields.get("prompt", "").split())[:80]
        case "message":
            return " ".join(fields.get("message", "").split())[:80]
        case "sync":
            return fields.get("pair", "").strip()
        case kind:
            return fields.get(kind or "", "").strip()


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise InvalidInput(
                say("Write each header on a line of its own, as Name: value."),
                field="headers",
                code="bad_header",
            )
        found[name.strip()] = value.strip()
    return found


def _statuses(text: str) -> list[int]:
    parts = text.replace(",", " ").split()
    if not all(each.isdigit() and len(each) < 9 for each in parts):
        raise InvalidInput(
            say("Write status codes as numbers."), field="expected_status", code="not_a_number"
        )
    return [int(each) for each in parts]


def _json(fields: Mapping[str, str], name: str, *, empty: type = dict) -> object:
    text = fields.get(name, "").strip()
    if not text:
        return empty()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, empty):
        raise InvalidInput(
            say("This is not the JSON that is wanted here."), field=name, code="bad_json"
        )
    return found
