"""AI prompts: one attempt sends the prompt to the configured pipeline and returns its answer."""

from chimes.targets.agent.runner import AgentPrompt
from chimes.targets.agent.service import AgentConfig

__all__ = ["AgentConfig", "AgentPrompt"]
