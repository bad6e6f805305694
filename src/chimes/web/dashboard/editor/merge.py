"""What an edit changes, and what to do when somebody else was faster: field by field, as a PATCH
of the API has them (`trigger`, `labels` and `delivery` as wholes, `target` and `policy` inside)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.language import describe
from chimes.triggers import trigger_from_dict
from chimes.web.dashboard.editor.trigger_fields import Plain

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
class Clash:
    """Both changed it, and not alike."""

    path: str
    base: object
    mine: object
    theirs: object

    @property
    def label(self) -> str:
        return LABELS.get(self.path) or self.path.rpartition(".")[2]


def flat(body: Mapping[str, object]) -> Plain:
    """By path. A target is one thing with its kind in its path, so that two kinds never mix."""
    found: Plain = {}
    for name in (*_FIELDS, "delivery"):
        value = body.get(name)
        if name in _INSIDE and isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name in body:
            found[name] = value
    return found


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[Change, ...]:
    """From one definition to another. Of another kind of target, all is new."""
    was, now = flat(before), flat(after)
    if was.get("target.kind") != now.get("target.kind") and "target.kind" in now:
        gone = {path for path in was if path.startswith("target.")}
        was = {path: value for path, value in was.items() if path not in gone}
        was["target.kind"] = flat(before).get("target.kind")
    return tuple(
        Change(path=path, before=was.get(path), after=value)
        for path, value in now.items()
        if not _same(path, was.get(path), value, known=path in was)
    )


def patch_of(found: Iterable[Change], mine: Mapping[str, object]) -> Plain:
    """The body of a PATCH. The kind of a target always goes with its fields."""
    patch: Plain = {}
    for each in found:
        name, dot, inner = each.path.partition(".")
        if not dot:
            patch[name] = each.after
            continue
        part = patch.setdefault(name, {})
        assert isinstance(part, dict)
        part[inner] = each.after
    target, whole = patch.get("target"), mine.get("target")
    if isinstance(target, dict) and isinstance(whole, Mapping):
        target["kind"] = whole["kind"]
    return patch


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    body: Plain
    clashes: tuple[Clash, ...]
    #: What the other one changed, clashes among them.
    theirs: tuple[Change, ...]


def merged(
    base: Mapping[str, object], mine: Mapping[str, object], theirs: Mapping[str, object]
) -> Merged:
    """Their definition with what only I changed, and mine where both changed it."""
    my_changes = {each.path: each for each in changes(base, mine)}
    their_changes = {each.path: each for each in changes(base, theirs)}
    kinds = {"target.kind"} & (my_changes.keys() | their_changes.keys())
    clashes = []
    for path, change in my_changes.items():
        other = their_changes.get(path)
        if other is not None and not _same(path, other.after, change.after, known=True):
            clashes.append(
                Clash(path=path, base=change.before, mine=change.after, theirs=other.after)
            )
    body: Plain = dict(theirs)
    if kinds and any(path.startswith("target.") for path in my_changes):
        # Another kind of target: it is mine as a whole, or theirs.
        body["target"] = mine["target"]
        clashes = [each for each in clashes if not each.path.startswith("target.")]
        if any(path.startswith("target.") for path in their_changes):
            clashes.append(
                Clash(
                    path="target",
                    base=base.get("target"),
                    mine=mine.get("target"),
                    theirs=theirs.get("target"),
                )
            )
        my_changes = {p: c for p, c in my_changes.items() if not p.startswith("target.")}
    for path, change in my_changes.items():
        put(body, path, change.after)
    return Merged(body=body, clashes=tuple(clashes), theirs=tuple(their_changes.values()))


def put(body: Plain, path: str, value: object) -> None:
    name, dot, inner = path.partition(".")
    if not dot:
        body[name] = value
        return
    part = body.get(name)
    body[name] = {**(part if isinstance(part, Mapping) else {}), inner: value}


def at(body: Mapping[str, object], path: str) -> object:
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
    """For people: a trigger in words, labels as in their field, anything else as it is written."""
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
    "depends_on": _("Runs only after"),
    "delivery": _("Tell whom"),
    "target.kind": _("Kind"),
    "target.url": _("Address"),
    "target.method": _("Method"),
    "target.headers": _("Headers"),
    "target.body": _("Body"),
    "target.expected_status": _("Expected status"),
    "target.signing_secrets": _("Signing secrets"),
    "target.verify_tls": _("Check certificates"),
    "target.name": _("Name of the task or flow"),
    "target.args": _("Arguments"),
    "target.input": _("Input"),
    "target.prompt": _("Prompt"),
    "target.model": _("Model"),
    "target.pipeline": _("Pipeline"),
    "target.max_tokens": _("Longest answer (tokens)"),
    "target.text": _("Text"),
    "target.source": _("Source"),
    "target.collection": _("Collection"),
    "target.action_type_id": _("Action type"),
    "target.kn_id": _("Knowledge network"),
    "target.branch": _("Branch"),
    "target.identities": _("Objects"),
    "target.params": _("Parameters"),
    "target.account": _("Account"),
    "policy.misfire": _("When it is late"),
    "policy.misfire_grace": _("Late means later than"),
    "policy.catch_up_limit": _("Most runs to make up for"),
    "policy.overlap": _("While it still runs"),
    "policy.max_concurrent_runs": _("Runs at the same time"),
    "policy.burst_allowed": _("Bursts allowed"),
    "policy.concurrency_key": _("Shared limit"),
    "policy.max_retries": _("Retries"),
    "policy.retry_backoff": _("Wait before a retry"),
    "policy.backoff": _("Waits grow"),
    "policy.backoff_cap": _("Longest wait"),
    "policy.timeout": _("Time limit"),
    "policy.on_lost": _("When its node dies"),
    "policy.pause_on_gone": _("Pause when the address is gone"),
}
