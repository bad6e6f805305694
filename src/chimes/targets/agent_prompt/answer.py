"""What is kept of an answer: little, as data, whatever the other side sends (F67, S74)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from chimes.targets.agent_prompt.config import AgentConfig
from chimes.targets.http_callback.masking import scrubbed

#: Bytes of text in a result; the rest is not kept.
KEEP_LIMIT = 64 * 1024
#: Bytes of text after which nobody listens any more.
READ_LIMIT = 1024 * 1024
MOST_ARTIFACTS = 50
LONGEST_NAME = 200
LONGEST_URL = 2048
_MOST_TOOLS = 20


class Answer:
    """Grows while an attempt is under way, so that a broken one can be told of, too."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self.model = config.model
        self.pipeline_run_id = ""
        self.finish_reason = ""
        #: What the model wanted to call; nothing is called.
        self.refused_tools: list[str] = []
        self.artifacts: list[dict[str, str]] = []
        self._usage: dict[str, int] = {}
        self._cost: float | None = None
        self._pieces: list[str] = []
        self._kept = 0
        self.size = 0

    @property
    def begun(self) -> bool:
        return bool(self.size or self.pipeline_run_id or self.refused_tools)

    @property
    def text(self) -> str:
        whole = clean("".join(self._pieces))
        return whole.encode()[:KEEP_LIMIT].decode(errors="ignore")

    @property
    def truncated(self) -> bool:
        return self.size > KEEP_LIMIT

    @property
    def too_long(self) -> bool:
        return self.size > READ_LIMIT

    def add(self, piece: str) -> None:
        # Half of a surrogate pair has its other half in the next piece.
        size = len(piece.encode(errors="surrogatepass"))
        if self._kept <= KEEP_LIMIT:
            self._pieces.append(piece[: KEEP_LIMIT + 1])
            self._kept += min(size, KEEP_LIMIT + 1)
        self.size += size

    def refuse_tool(self, name: object) -> bool:
        """Whether it is another one than those before."""
        shown = short(name, LONGEST_NAME) or "?"
        if shown in self.refused_tools or len(self.refused_tools) >= _MOST_TOOLS:
            return False
        self.refused_tools.append(shown)
        return True

    def add_usage(self, given: object) -> None:
        if not isinstance(given, Mapping):
            return
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            value = given.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
                self._usage[name] = value

    def add_cost(self, given: object) -> None:
        """As the pipeline has it; otherwise it follows from the prices."""
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1e12:
            self._cost = float(given)

    def add_artifacts(self, given: object) -> int:
        """How many were not taken: too many, or without an address that can be called."""
        found = given if isinstance(given, list) else []
        for each in found[:MOST_ARTIFACTS]:
            artifact = _artifact(each, f"{self._config.public_url}/")
            if artifact is not None:
                self.artifacts.append(artifact)
        return len(found) - len(self.artifacts)

    @property
    def usage(self) -> dict[str, int] | None:
        if not self._usage:
            return None
        used = {name: self._usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
        return used | {"total_tokens": self._usage.get("total_tokens", sum(used.values()))}

    @property
    def cost(self) -> float | None:
        usage = self.usage
        if self._cost is not None or usage is None:
            return self._cost
        return self._config.cost(usage["prompt_tokens"], usage["completion_tokens"])

    def result(self) -> dict[str, object]:
        """The result of the run; its `text` is what is delivered."""
        found: dict[str, object] = {
            "text": self.text,
            "model": self.model,
            "pipeline": self._config.pipeline,
            "pipeline_run_id": self.pipeline_run_id or None,
            "artifacts": list(self.artifacts),
            "usage": self.usage,
            "cost": self.cost,
            "finish_reason": self.finish_reason or None,
            "truncated": self.truncated,
        }
        if self.refused_tools:
            found["refused_tools"] = list(self.refused_tools)
        secrets = self._config.secrets
        return {name: scrubbed(value, secrets) for name, value in found.items()}


def clean(text: str) -> str:
    """Text that every store takes: no NUL, no lone surrogates."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd")


def short(value: object, most: int) -> str:
    """In one line, for names, models and the errors of others."""
    if not isinstance(value, str | int | float):
        return ""
    return " ".join(clean(str(value)[: most * 4]).split())[:most]


def _artifact(given: object, base: str) -> dict[str, str] | None:
    if not isinstance(given, Mapping):
        return None
    url = given.get("url")
    if not isinstance(url, str) or not url or len(url) > LONGEST_URL:
        return None
    try:
        # Only what a browser would call as well: no `tg:`, no `javascript:` (S74).
        whole = urljoin(base, url)
        parts = urlsplit(whole)
        callable_ = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    if not callable_ or whole != clean(whole) or any(char.isspace() for char in whole):
        return None
    name = short(given.get("name"), LONGEST_NAME) or parts.path.rpartition("/")[2] or "artifact"
    return {"name": name[:LONGEST_NAME], "url": whole}
