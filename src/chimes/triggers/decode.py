"""Decodes triggers from tagged dicts, strictly."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.cron import Cron
from chimes.triggers.every import Every
from chimes.triggers.once import Once
from chimes.triggers.values import check_keys, quote_text, suggest_name

Trigger = Cron | Every | Once

NEVER_FIRES = "never_fires"

_BOUNDS = ("start_at", "end_at", "max_runs", "exclude")
# The first key of each is required.
_KEYS: dict[str, tuple[str, ...]] = {
    "cron": ("expression", "timezone", "dialect", "dst", "anchor", *_BOUNDS),
    "every": ("every", "anchor", "jitter", *_BOUNDS),
    "once": ("at", "timezone", *_BOUNDS),
}
_CLASSES: dict[str, Callable[..., Trigger]] = {"cron": Cron, "every": Every, "once": Once}


def trigger_from_dict(value: object) -> Trigger:
    """The trigger that `to_dict` wrote; InvalidTrigger names the key that is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(value, dict) and not (isinstance(kind, str) and kind in _KEYS):
        raise InvalidTrigger(
            _(
                "kind must be one of {kinds}, not {kind}",
                kinds=", ".join(_KEYS),
                kind=quote_text(kind),
            ),
            field="kind",
            code="unknown_kind" if isinstance(kind, str) else "missing_key",
            hint=suggest_name(kind, _KEYS) if isinstance(kind, str) else None,
        )
    keys = _KEYS[kind] if isinstance(kind, str) else ()
    given = dict(check_keys(value, ("kind", *keys), None))
    del given["kind"]
    if keys[0] not in given:
        raise InvalidTrigger(
            _("A trigger of kind {kind} needs {key}", kind=kind, key=keys[0]),
            field=keys[0],
            code="missing_key",
        )
    first = given.pop(keys[0])
    if not isinstance(first, str):
        raise InvalidTrigger(
            _("{key} must be text, not {type}", key=keys[0], type=type(first).__name__),
            field=keys[0],
            code="wrong_type",
        )
    for key, each in given.items():
        if each is None:
            raise InvalidTrigger(
                _("{key} must not be null; leave it out instead", key=key),
                field=key,
                code="wrong_type",
            )
    return _CLASSES[str(kind)](first, **given)


def never_fires(trigger: Trigger, after: datetime) -> bool:
    """Whether the trigger has no fire after this moment, within the search bound."""
    return trigger.next_after(after) is None


def ensure_fires(trigger: Trigger, after: datetime) -> None:
    """Reject a trigger that has no fire after this moment."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("The trigger never fires: no future time matches it"),
            field="trigger",
            code=NEVER_FIRES,
        )
