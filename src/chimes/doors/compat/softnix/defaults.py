"""What a schedule gets that does not say otherwise (R1.38)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chimes.config import Settings
from chimes.model.policy import Policy
from chimes.service.targets import agent_policy

ONE_TIME = "one_time"
CRON = "cron"
WEB_UI = "web_ui"
TELEGRAM = "telegram"
RUNS_LISTED = 50
MOST_RUNS_LISTED = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptDefaults:
    #: Where neither the request nor the owner names one (C3).
    timezone: str
    #: C1, C6 and R1.32, without anybody who is told.
    policy: Policy


def prompt_defaults(settings: Settings) -> PromptDefaults:
    policy = agent_policy(settings)
    return PromptDefaults(
        timezone=settings.softnix_default_timezone,
        policy=replace(policy, misfire_grace=settings.misfire_grace, delivery=()),
    )
