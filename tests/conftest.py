"""What every test may count on."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same examples on every machine; CHIMES_HYPOTHESIS=search looks for new ones, longer.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", parent=settings.get_profile("default"), deadline=None)
settings.load_profile(os.environ.get("CHIMES_HYPOTHESIS", "repeatable"))
