"""Prompts: one attempt hands the prompt to the configured pipeline and brings its answer back."""

from chimes.targets.agent_prompt.config import AgentConfig
from chimes.targets.agent_prompt.runner import AgentPrompt

__all__ = ["AgentConfig", "AgentPrompt"]
