"""Rules of egress on their way to the process that has to keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chimes.model.egress import EgressRules


def rules_to_plain(rules: EgressRules) -> dict[str, object]:
    return {
        "open_mode": rules.open_mode,
        "allow_private": rules.allow_private,
        "allow": list(rules.allow),
        "only": list(rules.only),
        "allow_metadata": rules.allow_metadata,
        "own_ports": [list(each) for each in sorted(rules.own_ports)],
    }


def rules_from_plain(fields: Mapping[str, Any]) -> EgressRules:
    return EgressRules(
        open_mode=fields["open_mode"],
        allow_private=fields["allow_private"],
        allow=tuple(fields["allow"]),
        only=tuple(fields["only"]),
        allow_metadata=fields["allow_metadata"],
        own_ports=frozenset((host, port) for host, port in fields["own_ports"]),
    )
