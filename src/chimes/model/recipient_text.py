"""A recipient as one word of a command line: `telegram:42:on=failure+late:digest=daily@08:00`.

To and from what the API takes; the language, keys and zones of its own are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.wording import say

_CLOCK = r"[0-9]{1,2}:[0-9]{2}"
_WORDS = r"[a-z]+(?:[+,][a-z]+)*"
_OPTION = (
    rf"on={_WORDS}|late=[0-9a-zA-Z.]+|quiet={_CLOCK}-{_CLOCK}|urgent={_WORDS}"
    rf"|digest=[a-z]+(?:@[a-z]+)?(?:@{_CLOCK})?"
)
_OPTIONS = re.compile(rf"(?::(?:{_OPTION}))+$")
_EACH = re.compile(rf":({_OPTION})(?=:(?:{_OPTION})|$)")

Plain = dict[str, object]


def recipient_from_text(text: str) -> Plain:
    """Whether channel and options are ones that there are is for others to say; InvalidInput if
    one would be lost."""
    found: Plain = {}
    options: dict[str, str] = {}
    if written := _OPTIONS.search(text):
        text = text[: written.start()]
        options = _options(written[0])
    channel, _, to = text.partition(":")
    found |= {"channel": channel, "to": to}
    urgent = _split(options.get("urgent", ""))
    if "on" in options:
        found["on"] = _split(options["on"])
    if "late" in options:
        found["late_after"] = options["late"]
    if "quiet" in options:
        start, _, end = options["quiet"].partition("-")
        found["quiet"] = _urgent({"from": start, "to": end}, urgent)
    if "digest" in options:
        every, *rest = options["digest"].split("@")
        digest: Plain = {"every": every}
        for each in rest:
            digest["at" if ":" in each else "on"] = each
        found["digest"] = _urgent(digest, urgent)
    return found


def recipient_text(recipient: Mapping[str, object]) -> str:
    parts = [str(recipient.get("channel", ""))]
    if recipient.get("to"):
        parts.append(str(recipient["to"]))
    on = _listed(recipient.get("on"))
    if on and on != ["always"]:
        parts.append(f"on={'+'.join(on)}")
    late = recipient.get("late_after")
    if late and late != "PT1M":
        parts.append(f"late={late}")
    quiet, digest = recipient.get("quiet"), recipient.get("digest")
    urgent: list[str] = []
    if isinstance(quiet, Mapping):
        parts.append(f"quiet={quiet['from']}-{quiet['to']}")
        urgent += _listed(quiet.get("except"))
    if isinstance(digest, str):
        parts.append(f"digest={digest}")
    elif isinstance(digest, Mapping):
        day = f"@{digest['on']}" if digest["every"] == "weekly" and digest.get("on") else ""
        at = f"@{digest['at']}" if digest.get("at") else ""
        parts.append(f"digest={digest['every']}{day}{at}")
        urgent += _listed(digest.get("except"))
    if urgent:
        parts.append(f"urgent={'+'.join(dict.fromkeys(urgent))}")
    return ":".join(parts)


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in _EACH.finditer(text):
        name, _, value = each[1].partition("=")
        if name in found:
            raise InvalidInput(
                say("`{name}=` stands there twice", name=name), field=name, code="twice"
            )
        found[name] = value
    if "urgent" in found and not found.keys() & {"quiet", "digest"}:
        raise InvalidInput(
            say("`urgent=` goes with `quiet=` or `digest=`: all is told at once without them"),
            field="urgent",
            code="not_empty",
        )
    return found


def _urgent(times: Plain, urgent: list[str]) -> Plain:
    return times | {"except": urgent} if urgent else times


def _split(text: str) -> list[str]:
    return [each for each in re.split(r"[+,]", text) if each]


def _listed(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
