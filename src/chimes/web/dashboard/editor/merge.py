"""Compares and merges schedule definitions field by field, for edits and edit conflicts.

`trigger`, `labels` and `delivery` are compared as a whole, `target` and `policy` by their fields,
as in a PATCH of the API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.language import describe
from chimes.model.policy import policy_fields
from chimes.triggers import trigger_from_dict
from chimes.web.dashboard.editor.trigger_fields import JsonObject

_INSIDE = ("target", "policy")
_FIELDS = ("name", "trigger", "target", "policy", "priority", "labels", "enabled", "depends_on")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    path: str
    before: object
    after: object

    @property
    def label(self) -> str:
        return LABELS.get(self.path) or self.path.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeConflict:
    """A field that both sides changed to different values."""

    path: str
    base: object
    mine: object
    theirs: object

    @property
    def label(self) -> str:
        return LABELS.get(self.path) or self.path.rpartition(".")[2]


def flatten(body: Mapping[str, object]) -> JsonObject:
    """Returns the fields of a body by path, such as `policy.timeout`."""
    found: JsonObject = {}
    for name in (*_FIELDS, "delivery"):
        value = body.get(name)
        if name in _INSIDE and isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name in body:
            found[name] = value
    return found


def diff(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[Change, ...]:
    """Returns the changes from `before` to `after`.

    If the kind of the target changes, all its fields count as changed."""
    was, now = flatten(before), flatten(after)
    if was.get("target.kind") != now.get("target.kind") and "target.kind" in now:
        old_fields = {path for path in was if path.startswith("target.")}
        was = {path: value for path, value in was.items() if path not in old_fields}
        was["target.kind"] = flatten(before).get("target.kind")
    return tuple(
        Change(path=path, before=was.get(path), after=value)
        for path, value in now.items()
        if not _same(path, was.get(path), value, known=path in was)
    )


def patch_of(found: Iterable[Change], mine: Mapping[str, object]) -> JsonObject:
    """Returns the body of a PATCH. Fields of a target are always sent with its kind."""
    patch: JsonObject = {}
    for each in found:
        name, dot, inner = each.path.partition(".")
        if not dot:
            patch[name] = each.after
            continue
        part = patch.setdefault(name, {})
        assert isinstance(part, dict)
        part[inner] = each.after
    target, own_target = patch.get("target"), mine.get("target")
    if isinstance(target, dict) and isinstance(own_target, Mapping):
        target["kind"] = own_target["kind"]
    return patch


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeResult:
    body: JsonObject
    conflicts: tuple[MergeConflict, ...]
    #: Changes of the other side, including conflicts.
    theirs: tuple[Change, ...]


def merge(
    base: Mapping[str, object], mine: Mapping[str, object], theirs: Mapping[str, object]
) -> MergeResult:
    """Merges two edits of `base`. On conflict, `mine` wins in the body."""
    my_changes = {each.path: each for each in diff(base, mine)}
    their_changes = {each.path: each for each in diff(base, theirs)}
    kinds = {"target.kind"} & (my_changes.keys() | their_changes.keys())
    conflicts = []
    for path, change in my_changes.items():
        other = their_changes.get(path)
        if other is not None and not _same(path, other.after, change.after, known=True):
            conflicts.append(
                MergeConflict(path=path, base=change.before, mine=change.after, theirs=other.after)
            )
    body: JsonObject = dict(theirs)
    if kinds and any(path.startswith("target.") for path in my_changes):
        # Targets of different kinds are not mixed: one side wins as a whole.
        body["target"] = mine["target"]
        conflicts = [each for each in conflicts if not each.path.startswith("target.")]
        if any(path.startswith("target.") for path in their_changes):
            conflicts.append(
                MergeConflict(
                    path="target",
                    base=base.get("target"),
                    mine=mine.get("target"),
                    theirs=theirs.get("target"),
                )
            )
        my_changes = {p: c for p, c in my_changes.items() if not p.startswith("target.")}
    for path, change in my_changes.items():
        set_value(body, path, change.after)
    return MergeResult(body=body, conflicts=tuple(conflicts), theirs=tuple(their_changes.values()))


def set_value(body: JsonObject, path: str, value: object) -> None:
    name, dot, inner = path.partition(".")
    if not dot:
        body[name] = value
        return
    part = body.get(name)
    body[name] = {**(part if isinstance(part, Mapping) else {}), inner: value}


def get_value(body: Mapping[str, object], path: str) -> object:
    name, dot, inner = path.partition(".")
    part = body.get(name)
    return part.get(inner) if dot and isinstance(part, Mapping) else part


def _same(path: str, before: object, after: object, *, known: bool) -> bool:
    if path == "trigger" and known:
        try:
            return trigger_from_dict(before) == trigger_from_dict(after)
        except InvalidInput:
            return before == after
    return before == after and (known or after in (None, "", [], {}))


def value_text(path: str, value: object, language: str) -> str:
    """Formats a value for display: triggers as description, labels as in their form field."""
    if path == "trigger":
        try:
            return describe(trigger_from_dict(value), language)
        except InvalidInput:
            pass
    if value in (None, "", [], {}):
        return "–"
    if path == "labels" and isinstance(value, Mapping):
        value = ", ".join(
            name if each is None else f"{name}={each}" for name, each in value.items()
        )
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


LABELS: Mapping[str, str] = {
    "name": _("Name"),
    "trigger": _("When"),
    "target": _("What"),
    "priority": _("Priority"),
    "labels": _("Labels"),
    "enabled": _("Active"),
    "depends_on": _("Depends on"),
    "delivery": _("Notifications"),
    "target.kind": _("Kind"),
    "target.url": _("URL"),
    "target.method": _("Method"),
    "target.headers": _("Headers"),
    "target.body": _("Body"),
    "target.expected_status": _("Expected status"),
    "target.signing_secrets": _("Signing secrets"),
    "target.verify_tls": _("Verify TLS certificates"),
    "target.name": _("Task or flow"),
    "target.args": _("Arguments"),
    "target.input": _("Input"),
    "target.prompt": _("Prompt"),
    "target.model": _("Model"),
    "target.pipeline": _("Pipeline"),
    "target.max_tokens": _("Maximum answer length (tokens)"),
    "target.text": _("Text"),
    "target.source": _("Source"),
    "target.collection": _("Collection"),
    "target.action_type_id": _("Action type"),
    "target.kn_id": _("Knowledge network"),
    "target.branch": _("Branch"),
    "target.identities": _("Objects"),
    "target.params": _("Parameters"),
    "target.account": _("Account"),
    **{f"policy.{each.json}": each.label for each in policy_fields()},
}
