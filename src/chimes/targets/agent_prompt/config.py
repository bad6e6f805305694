"""Where prompts go, and what an answer costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from chimes.errors import ConfigError
from chimes.model.target import AgentTarget
from chimes.wording import say

PIPELINES = ("openai", "runs")
_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """As the operator has set it: the address may be private, and is not judged (RELIABILITY 9)."""

    #: `openai` or `runs`.
    pipeline: str
    #: Without a slash at its end, and without `/v1`.
    url: str
    model: str = ""
    api_key: str = ""
    #: Of an answer; None: as many as the model likes.
    max_tokens: int | None = None
    #: Of a million tokens.
    input_price: float = 0.0
    output_price: float = 0.0
    #: Where the pipeline can call this server back; empty: it is only polled.
    callback_url: str = ""

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """None where no prices are set."""
        if not self.input_price and not self.output_price:
            return None
        total = prompt_tokens * self.input_price + completion_tokens * self.output_price
        return round(total / _MILLION, 8)

    @property
    def public_url(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def secrets(self) -> tuple[str, ...]:
        password = urlsplit(self.url).password
        return tuple(each for each in (self.api_key, password) if each)


def checked_config(config: AgentConfig) -> AgentConfig:
    """ConfigError names the setting that is wrong."""
    url = _checked_url(config.url, "agent_url")
    if config.pipeline == "openai":
        url = url.removesuffix("/v1")
    callback = config.callback_url
    if callback:
        callback = _checked_url(callback, "agent_callback_url")
    return replace(config, url=url, callback_url=callback)


def _checked_url(text: str, key: str) -> str:
    if not text:
        raise ConfigError(say("{key}: agent_pipeline is set, so it is needed", key=key), key=key)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or any(char.isspace() for char in text):
        raise ConfigError(
            say("{key}: an address such as http://127.0.0.1:11434 is expected", key=key), key=key
        )
    return text.rstrip("/")


def for_target(config: AgentConfig, target: AgentTarget) -> AgentConfig:
    """With what the target says itself."""
    return replace(
        config,
        pipeline=target.pipeline or config.pipeline,
        model=target.model or config.model,
        max_tokens=target.max_tokens or config.max_tokens,
    )
