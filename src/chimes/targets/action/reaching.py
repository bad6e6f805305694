"""Where requests to the action service may go: where callbacks may, and to the service itself.

The operator has named its server, so it may be private (RELIABILITY 9); everything else about
egress holds as for callbacks: no metadata address, no port of this node, no other server.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from chimes.model.egress import Denial, Egress, EgressRules
from chimes.model.http_url import Address, HttpUrl


class AlsoTo:
    def __init__(self, egress: Egress, place: HttpUrl) -> None:
        self._egress = egress
        self._line = f"{place.bracketed_host.removesuffix('.')}:{place.port}"

    def now(self) -> EgressRules:
        return _widened(self._egress.now(), self._line)

    def literal_verdict(self, url: HttpUrl) -> Denial | None:
        return self.now().literal_verdict(url)

    def judge_host(self, host: str, port: int) -> Denial | None:
        return self.now().judge_host(host, port)

    def judge(
        self, address: Address, port: int, *, host: str, same_machine: bool = False
    ) -> Denial | None:
        return self.now().judge(address, port, host=host, same_machine=same_machine)


@lru_cache(maxsize=16)
def _widened(rules: EgressRules, line: str) -> EgressRules:
    """One object for as long as the rules are the same: connections are judged again when it is
    another one."""
    return replace(rules, allow=(*rules.allow, line))
