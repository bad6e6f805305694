"""Renders a Helm chart: the part of Go templates that the chart in deploy/helm uses. An action or a
function that is not known is an error."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"(\s*)\{\{(-?)\s+(.*?)\s+(-?)\}\}(\s*)", re.DOTALL)


class UnknownTemplate(ValueError):
    """The template uses something that is not known here."""


def render_chart(chart: Path, values: Mapping[str, Any], release: str = "test") -> dict[str, str]:
    """The rendered templates by file name."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    scope = {
        "Values": _merge(yaml.safe_load((chart / "values.yaml").read_text()), values),
        "Release": {"Name": release, "Namespace": "default"},
        "Chart": {"Name": about["name"], "AppVersion": about["appVersion"]},
    }
    return {
        path.name: render(path.read_text(), scope)
        for path in sorted((chart / "templates").glob("*.yaml"))
    }


def _merge(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, Mapping):
        return over
    return base | {name: _merge(base.get(name), value) for name, value in over.items()}


def render(template: str, scope: Mapping[str, Any]) -> str:
    tokens = list(_tokens(template))
    text, rest = _block(tokens, 0, scope, {})
    assert rest == len(tokens), "an `end` too many"
    return text


def _tokens(template: str) -> Iterator[tuple[str, str]]:
    """("text", …) and ("action", …); `{{-` and `-}}` remove the white space beside them."""
    place = 0
    for found in _ACTION.finditer(template):
        before, left, action, right, after = found.groups()
        yield "text", template[place : found.start()] + ("" if left else before)
        yield "action", action
        place = found.end()
        if not right:
            place -= len(after)
    yield "text", template[place:]


def _block(
    tokens: list[tuple[str, str]], at: int, dot: Any, variables: dict[str, Any]
) -> tuple[str, int]:
    """Renders up to the matching `end`; returns where it stands."""
    found = []
    while at < len(tokens):
        kind, text = tokens[at]
        if kind == "text":
            found.append(text)
            at += 1
            continue
        word, _space, rest = text.partition(" ")
        if word == "end":
            break
        if word not in ("if", "with", "range"):
            found.append(_show(_pipeline(text, dot, variables)))
            at += 1
            continue
        inner = [(dot, variables)]
        if word == "range":
            names, _assigns, rest = rest.partition(" := ")
            key, value = (each.strip() for each in names.split(","))
            items = sorted((_pipeline(rest, dot, variables) or {}).items())
            inner = [(dot, variables | {key: k, value: v}) for k, v in items]
        else:
            condition = _pipeline(rest, dot, variables)
            if not condition:
                inner = []
            elif word == "with":
                inner = [(condition, variables)]
        end = at
        _skipped, end = _block(tokens, at + 1, dot, _Anything(variables))
        for each, known in inner:
            found.append(_block(tokens, at + 1, each, known)[0])
        at = end + 1
    return "".join(found), at


class _Anything(dict[str, Any]):
    """Variables while the end of a block is searched."""

    def __missing__(self, name: str) -> str:
        return ""


def _show(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pipeline(text: str, dot: Any, variables: Mapping[str, Any]) -> Any:
    value: Any = None
    for number, stage in enumerate(text.split(" | ")):
        lexer = shlex.shlex(stage, posix=False)
        lexer.whitespace_split = True
        words = list(lexer)
        arguments = [_operand(word, dot, variables) for word in words[1:]]
        if number:
            arguments.append(value)
        if words[0] in _FUNCTIONS:
            value = _FUNCTIONS[words[0]](*arguments)
        elif len(words) == 1 and not number:
            value = _operand(words[0], dot, variables)
        else:
            raise UnknownTemplate(f"function {words[0]}")
    return value


def _operand(word: str, dot: Any, variables: Mapping[str, Any]) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word.lstrip("-").isdecimal():
        return int(word)
    name, *path = word.split(".")
    if name.startswith("$"):
        found = variables[name]
    elif name == "":
        found = dot
    else:
        raise UnknownTemplate(f"operand {word}")
    for part in path:
        if part:
            if isinstance(variables, _Anything) and not isinstance(found, Mapping):
                return ""
            found = found[part]
    return found


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quote": lambda value: json.dumps(_show(value), ensure_ascii=False),
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=True).rstrip("\n"),
    "nindent": lambda count, text: "".join(f"\n{' ' * count}{line}" for line in text.splitlines()),
    "default": lambda instead, value: value or instead,
    "add": lambda one, two: one + two,
}
