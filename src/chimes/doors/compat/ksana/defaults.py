"""What a job gets that does not say otherwise (R3.38)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDefaults:
    timeout: timedelta = timedelta(seconds=10)
    max_retries: int = 3
    retry_backoff: timedelta = timedelta(seconds=5)
