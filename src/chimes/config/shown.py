"""Settings as people may see them: each value as text, secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.config.fields import FIELDS, Field
from chimes.config.location import masked_store_url, resolve_store_url
from chimes.config.settings import Settings
from chimes.errors import ConfigError
from chimes.triggers import format_duration_go
from chimes.wording import say

#: Stands for a secret that is set.
_SET = "***"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSetting:
    name: str
    value: str
    #: `default`, `environment CHIMES_STORE`, `file chimes.yaml`, `flag --store`.
    origin: str
    variables: tuple[str, ...]


def shown_settings(settings: Settings, origins: Mapping[str, str]) -> tuple[ShownSetting, ...]:
    return tuple(
        ShownSetting(
            name=name,
            value=_shown(settings, field),
            origin=origins.get(name, ""),
            variables=tuple(field.variables),
        )
        for name, field in FIELDS.items()
    )


def _shown(settings: Settings, field: Field) -> str:
    value = getattr(settings, field.name)
    if field.name == "store":
        try:
            return masked_store_url(resolve_store_url(settings))
        except ConfigError:
            return say("(cannot be used)")
    if field.secret:
        return _SET if value else ""
    if field.secret_part:
        return masked_store_url(value)
    if isinstance(value, timedelta):
        return format_duration_go(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)
