"""Where actions are executed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import quote

from chimes.errors import ConfigError, InvalidInput
from chimes.model.http_url import HttpUrl, parse_http_url
from chimes.model.target import ActionTarget
from chimes.model.target_rules import check_header_name
from chimes.wording import say

#: What may stand in braces in the address.
PLACEHOLDERS = frozenset({"kn_id", "branch"})

# Shorter words occur anywhere.
_SHORTEST_SECRET = 8
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionConfig:
    """As the operator has set it: the address may be private (RELIABILITY 9)."""

    #: In front of `/action-types/{id}/execute`; without a slash at its end.
    url: str
    #: Sent with every request.
    headers: tuple[tuple[str, str], ...] = ()
    #: Of one request.
    timeout: timedelta = timedelta(seconds=30)

    @property
    def place(self) -> HttpUrl:
        """Which server it is; the path does not count."""
        return parse_http_url(self.url)

    @property
    def names_network(self) -> bool:
        return "{kn_id}" in self.url

    @property
    def names_branch(self) -> bool:
        return "{branch}" in self.url

    @property
    def secrets(self) -> tuple[str, ...]:
        """Also the parts of `Bearer <token>`: the service may repeat the token alone."""
        words = {each for _, value in self.headers for each in value.split()}
        long = {each for each in words if len(each) >= _SHORTEST_SECRET}
        return tuple(sorted({value for _, value in self.headers} | long))

    def base_for(self, target: ActionTarget) -> str:
        filled = {"{kn_id}": target.kn_id, "{branch}": target.branch}
        return _BRACES.sub(lambda found: quote(filled[found[0]], safe=""), self.url)


def checked_config(config: ActionConfig) -> ActionConfig:
    """ConfigError names the setting that is wrong."""
    url = config.url.rstrip("/")
    try:
        found = parse_http_url(url)
        if "?" in found.tail:
            raise InvalidInput(say("the address must not have a query (?...)"))
        for name in _BRACES.findall(found.tail):
            if name not in PLACEHOLDERS:
                raise InvalidInput(say("only kn_id and branch can stand in braces"))
    except InvalidInput as error:
        raise ConfigError(
            say(
                "action_url: expected an address such as "
                "http://127.0.0.1:13018/knowledge-networks/{{kn_id}}: {why}",
                why=error.message,
            ),
            key="action_url",
        ) from None
    for name, _ in config.headers:
        try:
            check_header_name(name)
        except InvalidInput as error:
            raise ConfigError(
                say("action_headers: {why}", why=error.message), key="action_headers"
            ) from None
    return replace(config, url=url)
