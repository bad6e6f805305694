"""A word for the next page: what was done, and how to undo it. It travels in a cookie."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.i18n import in_language

_LONGEST = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """The form behind the button: where it posts, and its fields."""

    action: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toast:
    text: str
    #: `done`, `warning` or `error`: errors stay until they are put away.
    kind: str = "done"
    undo: Undo | None = None

    def packed(self, language: str) -> str:
        """For the cookie; the text as it will be read."""
        plain: dict[str, object] = {"text": in_language(self.text, language)[:500]}
        if self.kind != "done":
            plain["kind"] = self.kind
        if self.undo is not None:
            plain["undo"] = {"action": self.undo.action, "fields": dict(self.undo.fields)}
        content = base64.urlsafe_b64encode(json.dumps(plain).encode()).decode()
        if len(content) > _LONGEST and self.undo is not None:
            return Toast(text=self.text, kind=self.kind).packed(language)
        return content


def toast_from(packed: str) -> Toast | None:
    """None for what is no toast of ours."""
    if not packed or len(packed) > 2 * _LONGEST:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(packed.encode()))
        undo = found.get("undo")
        kind = str(found.get("kind", "done"))
        return Toast(
            text=str(found["text"]),
            kind=kind if kind in ("done", "warning", "error") else "done",
            undo=None if undo is None else _undo(undo),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _undo(plain: Mapping[str, object]) -> Undo | None:
    action, fields = str(plain["action"]), plain.get("fields")
    if not action.startswith("/ui/"):
        return None
    given = fields if isinstance(fields, dict) else {}
    return Undo(action=action, fields={str(name): str(value) for name, value in given.items()})
