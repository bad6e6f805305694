"""Prompts: one attempt hands the prompt to the configured pipeline and brings its answer back."""

from chimes.targets.agent.runner import AgentPrompt
from chimes.targets.agent.service import AgentConfig

__all__ = ["AgentConfig", "AgentPrompt"]
