"""The OpenAPI document with narrower request fields, so that generated requests are mostly valid.

A document cannot say what a time zone, a cron expression or an offered task is. Fuzzing by the
document alone therefore tests validation, and hardly ever creates anything. With this document it
creates, and continues with what it has created.
"""

from __future__ import annotations

import copy
from typing import Any

#: By name of a field of a request.
VALUES: dict[str, list[str]] = {
    "timezone": ["UTC", "Asia/Bangkok", "Europe/Berlin"],
    "zone": ["UTC", "America/New_York"],
    "expression": ["0 9 * * *", "*/5 * * * *", "0 0 29 2 *"],
    "cron_expression": ["0 9 * * *", "*/5 * * * *"],
    "cron_expr": ["0 9 * * *", "*/5 * * * *"],
    "schedule_type": ["cron"],
    "every": ["1h", "PT1S", "250ms"],
    "jitter": ["", "PT1S"],
    "at": ["2040-02-10T09:00:00Z", "2040-02-10T09:00:00+07:00"],
    "anchor": ["2030-02-10T09:00:00Z"],
    "start_at": ["2030-02-10T09:00:00Z"],
    "end_at": ["2040-02-10T09:00:00Z"],
    "run_at": ["2040-02-10T09:00:00Z"],
    "expires_at": ["2040-02-10T09:00:00Z"],
    "snoozed_until": ["2040-02-10T09:00:00Z"],
    "until": ["2040-02-10T09:00:00Z"],
    "to": ["2040-02-10T09:00:00Z"],
    "from": ["2030-02-10T09:00:00Z"],
    "url": ["http://127.0.0.1:9/hook"],
    "language": ["en", "th", "zh"],
    "lang": ["en", "th", "zh"],
    "text": ["every day at 9:00 water the plants", "ทุกวัน 9 โมง รดน้ำต้นไม้", "每天9点浇花"],
    "owner_type": ["system"],
    "delivery_channel": ["web_ui"],
    "task": ["Summarise the news"],
    "task_prompt": ["Summarise the news"],
    "type": ["http"],
    "namespace": ["default", "shop"],
    "channel": ["inbox"],
}
DURATIONS = {"timeout", "misfire_grace", "retry_backoff", "backoff_cap", "within", "expires_in"}
#: Fields that make most bodies invalid together with others.
OMITTED = {
    *("depends_on", "exclude", "digest", "quiet", "late_after", "delivery", "signing_secrets"),
    *("owner", "owner_id", "delivery_target", "id", "concurrency_key", "max_tokens", "jitter"),
    *("queue", "policy", "anchor", "dialect", "dst", "labels", "task_prompt", "scopes", "headers"),
    *("start_at", "end_at", "priority"),
}
REF = "#/components/schemas/"
TRIGGERS = ("CronTrigger", "EveryTrigger", "OnceTrigger")
#: Kinds of targets that need nothing else.
TARGETS = ("/HttpTargetIn", "/AgentTargetIn")
#: A name that every kind of object may have.
NAME = {"type": "string", "pattern": "^[a-z][a-z0-9]{2,9}$"}


def mostly_valid(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of the document; responses stay as they are documented."""
    narrowed = copy.deepcopy(document)
    schemas = narrowed["components"]["schemas"]
    # Responses have the same triggers as requests: only those of requests are narrowed.
    for name in TRIGGERS:
        schemas[f"{name}In"] = copy.deepcopy(schemas[name])
    schemas["TriggerIn"] = {"oneOf": [{"$ref": f"{REF}{name}In"} for name in TRIGGERS]}
    for name, schema in schemas.items():
        if name.endswith(("In", "Patch")):
            _narrow(schema)
            if "trigger" in schema.get("properties", {}):
                schema["properties"]["trigger"] = {"$ref": f"{REF}TriggerIn"}
    target = schemas["TargetIn"]
    del target["discriminator"]
    target["oneOf"] = [each for each in target["oneOf"] if each["$ref"].endswith(TARGETS)]
    for path in narrowed["paths"].values():
        for operation in path.values():
            operation["parameters"] = [
                each for each in operation.get("parameters", ()) if each["in"] != "header"
            ]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                _narrow(content["schema"])
            for parameter in operation["parameters"]:
                if parameter["name"] in ("kn_id", "branch"):
                    parameter["schema"] = {"enum": ["kn1"]}
    return narrowed


def _narrow(schema: dict[str, Any]) -> None:
    for choice in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        _narrow(choice)
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    for name in [*properties]:
        if name in OMITTED and name not in required:
            del properties[name]
        elif name in VALUES:
            properties[name] = {"enum": VALUES[name]}
        elif name in DURATIONS:
            properties[name] = {"enum": ["PT10S", "1m30s"]}
        elif name in ("name", "action_type_id", "password"):
            properties[name] = NAME if name != "password" else {"enum": ["correct horse battery"]}
        elif name == "unique_identities":
            properties[name] = {"enum": [[{"id": 1}]]}
        elif name in ("http", "schedule"):
            properties[name]["required"] = ["url"] if name == "http" else ["kind", "every"]
            _narrow(properties[name])
        elif name == "kind" and "const" not in properties[name]:
            properties[name] = {"enum": ["every"]}
        elif name == "method":
            properties[name] = {"enum": ["GET", "POST"]}
        elif isinstance(properties[name], dict):
            _narrow(properties[name])
