"""What nodes say about the runs of what they offer, as plain data: one form for all stores."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.model.defaults import RunDefaults
from chimes.store.codec.schedule import policy_from_plain, policy_to_plain


def defaults_to_plain(defaults: RunDefaults | None) -> dict[str, object] | None:
    if defaults is None:
        return None
    plain: dict[str, object] = {
        "policy": policy_to_plain(defaults.policy),
        "priority": defaults.priority,
    }
    if defaults.arguments:
        plain["arguments"] = dict(defaults.arguments)
    return plain


def defaults_from_plain(offers: object) -> dict[str, RunDefaults]:
    """By name. A list has only names. What a newer node says and this one cannot read is as if it
    had said nothing."""
    found: dict[str, RunDefaults] = {}
    for needs, plain in offers.items() if isinstance(offers, Mapping) else ():
        if plain is None:
            continue
        with contextlib.suppress(InvalidInput, ValueError, KeyError, TypeError):
            arguments = plain.get("arguments")
            found[needs] = RunDefaults(
                policy=policy_from_plain(plain["policy"]),
                priority=int(plain["priority"]),
                arguments=arguments if isinstance(arguments, dict) else {},
            )
    return found
