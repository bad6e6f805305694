"""What a callback says about its own run (R3.47). Texts are replaced, nothing is evaluated.

`{{name}}` is filled in url, header values and body; a name that is not known stays as written.
The seed's `"<filled-by-service>"` is filled by its key: in a JSON body wherever it is the whole
value of a known key, at any depth; elsewhere after `key=` or `key:` on the same line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import quote

from chimes.model.run import Run
from chimes.model.target import HttpTarget
from chimes.triggers import format_moment

MARKER = "<filled-by-service>"
_MARKER_CORE = "filled-by-service"

_NAMED = re.compile(r"\{\{ *([a-z_]+) *\}\}")
_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_KEYED_MARKER = re.compile(
    r"\b([a-z_]+)([\"']?[ \t]*[=:][ \t]*[\"']?)(?:<|%3[Cc])"
    r"filled-by-service(?:>|%3[Ee])"
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Encode = Callable[[str], str]


def run_facts(run: Run, triggered_at: datetime) -> dict[str, str]:
    planned = format_moment(run.slot or run.planned_at)
    schedule_id = run.schedule_id or ""
    return {
        "run_id": run.id,
        "job_id": schedule_id,
        "schedule_id": schedule_id,
        "schedule_name": run.schedule_name,
        "slot": planned,
        "scheduled_at": planned,
        "triggered_at": format_moment(triggered_at),
        "attempt": str(run.attempt),
        "fence": str(run.fence),
    }


def head_has_placeholders(target: HttpTarget) -> bool:
    return "{{" in target.url or any("{{" in value for value in target.headers.values())


def body_has_placeholders(target: HttpTarget) -> bool:
    return "{{" in target.body or _MARKER_CORE in target.body


def fill_url(tail: str, facts: Mapping[str, str]) -> str:
    return _fill_named(tail, facts, _in_url)


def fill_header(value: str, facts: Mapping[str, str]) -> str:
    return _fill_named(value, facts, header_safe)


def fill_body(body: str, facts: Mapping[str, str], *, form: bool) -> str:
    """`form`: the body is sent as application/x-www-form-urlencoded."""
    marked, named = _MARKER_CORE in body, "{{" in body
    if not marked and not named:
        return body
    json_like = looks_like_json(body)
    encode = _in_json if json_like else _in_url if form else str
    if marked:
        body = _fill_json(body, facts) if json_like else _fill_keyed(body, facts, encode)
    return _fill_named(body, facts, encode) if named else body


def looks_like_json(body: str) -> bool:
    """The seed's rule for the content type, white space and placeholders aside."""
    start = body.lstrip()[:2]
    return start[:1] in ("{", "[") and start != "{{"


def _fill_named(text: str, facts: Mapping[str, str], encode: Encode) -> str:
    if "{{" not in text:
        return text
    return _NAMED.sub(
        lambda found: encode(facts[found[1]]) if found[1] in facts else found[0], text
    )


def _fill_json(body: str, facts: Mapping[str, str]) -> str:
    """Only the marked strings change; every other byte stays as it was written."""
    try:
        json.loads(_NAMED.sub("0", body))
    except (ValueError, RecursionError):
        return _fill_keyed(body, facts, _in_json)
    pieces: list[str] = []
    copied = 0
    previous: re.Match[str] | None = None
    for token in _JSON_STRING.finditer(body):
        if (
            previous is not None
            and _MARKER_CORE in token[0]
            and _string(token[0]) == MARKER
            and _COLON.fullmatch(body, previous.end(), token.start())
        ):
            fact = facts.get(_string(previous[0]))
            if fact is not None:
                pieces += (body[copied : token.start() + 1], _in_json(fact), '"')
                copied = token.end()
        previous = token
    return "".join((*pieces, body[copied:]))


def _string(token: str) -> str:
    return str(json.loads(token)) if "\\" in token else token[1:-1]


def _fill_keyed(body: str, facts: Mapping[str, str], encode: Encode) -> str:
    return _KEYED_MARKER.sub(
        lambda found: (
            found[1] + found[2] + encode(facts[found[1]]) if found[1] in facts else found[0]
        ),
        body,
    )


def _in_url(value: str) -> str:
    return quote(value, safe="")


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def header_safe(value: str) -> str:
    """A name may hold anything; a header may not."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)
