"""Flash messages: a cookie carries the result of an action and its undo form to the next page."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.i18n import in_language

_MAX_COOKIE_LENGTH = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """The form behind the Undo button."""

    action: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toast:
    text: str
    #: `done`, `warning` or `error`; errors stay until they are dismissed.
    kind: str = "done"
    undo: Undo | None = None

    def packed(self, language: str) -> str:
        """The cookie value, with the text translated. Too long for a cookie: without the undo."""
        plain: dict[str, object] = {"text": in_language(self.text, language)[:500]}
        if self.kind != "done":
            plain["kind"] = self.kind
        if self.undo is not None:
            plain["undo"] = {"action": self.undo.action, "fields": dict(self.undo.fields)}
        content = base64.urlsafe_b64encode(json.dumps(plain).encode()).decode()
        if len(content) > _MAX_COOKIE_LENGTH and self.undo is not None:
            return Toast(text=self.text, kind=self.kind).packed(language)
        return content


def unpack_toast(packed: str) -> Toast | None:
    """None for an invalid cookie value."""
    if not packed or len(packed) > 2 * _MAX_COOKIE_LENGTH:
        return None
    try:
        plain = json.loads(base64.urlsafe_b64decode(packed.encode()))
        undo = plain.get("undo")
        kind = str(plain.get("kind", "done"))
        return Toast(
            text=str(plain["text"]),
            kind=kind if kind in ("done", "warning", "error") else "done",
            undo=None if undo is None else _unpack_undo(undo),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _unpack_undo(plain: Mapping[str, object]) -> Undo | None:
    action, fields = str(plain["action"]), plain.get("fields")
    if not action.startswith("/ui/"):
        return None
    given = fields if isinstance(fields, dict) else {}
    return Undo(action=action, fields={str(name): str(value) for name, value in given.items()})
