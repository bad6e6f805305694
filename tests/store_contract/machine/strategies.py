"""Hypothesis strategies of the rules."""

from __future__ import annotations

from hypothesis import strategies as st

from chimes.model.policy import Misfire, OnLost, Overlap, Policy
from chimes.model.run import AttemptEnd
from chimes.model.target import ActionTarget, FlowTarget, Target, TaskTarget
from tests.builders import ACTION, CHAT, FLOW, HOOK, INBOX, SECOND, SYNC, TARGET, TASK

POLICIES = (
    Policy(),
    Policy(misfire=Misfire.SKIP, misfire_grace=SECOND, delivery=(HOOK,)),
    Policy(misfire=Misfire.ALL, misfire_grace=SECOND, catch_up_limit=3, overlap=Overlap.QUEUE),
    Policy(overlap=Overlap.CANCEL_OLD, max_retries=2, delivery=(INBOX, CHAT)),
    Policy(overlap=Overlap.QUEUE, concurrency_key="shared"),
    Policy(overlap=Overlap.SKIP, concurrency_key=SYNC.key),
    Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared", max_concurrent_runs=2),
    Policy(overlap=Overlap.QUEUE, max_concurrent_runs=2, misfire=Misfire.ALL),
    Policy(overlap=Overlap.ALLOW, on_lost=OnLost.STOP, delivery=(INBOX,)),
)
#: Text that every store accepts: no NUL, no lone surrogates.
_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5)
_leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text
)
json_values = st.recursive(
    _leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3)
)
arguments = st.dictionaries(_text, json_values, max_size=3)
#: Names are among the capabilities of the machine's nodes.
targets: st.SearchStrategy[Target] = st.one_of(
    st.just(TARGET),
    st.just(TARGET),
    st.builds(TaskTarget, name=st.just(TASK.name), args=arguments),
    st.builds(FlowTarget, name=st.just(FLOW.name), input=arguments),
    st.just(SYNC),
    st.builds(
        ActionTarget,
        action_type_id=st.just(ACTION.action_type_id),
        kn_id=st.just(ACTION.kn_id),
        branch=_text,
        identities=st.lists(arguments, max_size=2).map(tuple),
        params=arguments,
        account_id=_text,
        account_type=_text,
    ),
)
INTERVALS = (5, 12, 40)
STALE_ACTIONS = ("beat", "claim", "start", "log", "state", "release", "finish")
STATES = (SYNC.key, "another")
ENDS = (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED)
index = st.integers(0, 1000)
amount = st.integers(1, 4)
