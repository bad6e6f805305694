"""What the rules draw from."""

from __future__ import annotations

from hypothesis import strategies as st

from chimes.model.policy import Misfire, OnLost, Overlap, Policy
from chimes.model.run import AttemptEnd
from tests.builders import SECOND

POLICIES = (
    Policy(),
    Policy(misfire=Misfire.SKIP, misfire_grace=SECOND),
    Policy(misfire=Misfire.ALL, misfire_grace=SECOND, catch_up_limit=3, overlap=Overlap.QUEUE),
    Policy(overlap=Overlap.CANCEL_OLD, max_retries=2),
    Policy(overlap=Overlap.QUEUE, max_concurrent_runs=2, misfire=Misfire.ALL),
    Policy(overlap=Overlap.ALLOW, on_lost=OnLost.STOP),
)
INTERVALS = (5, 12, 40)
STALE_DEEDS = ("beat", "claim", "start", "log", "release", "finish")
ENDS = (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED)
index = st.integers(0, 1000)
amount = st.integers(1, 4)
