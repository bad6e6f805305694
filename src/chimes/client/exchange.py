"""One request until it has its answer: again after a lost connection, and when asked to wait.

Everything may be sent again: a POST carries an Idempotency-Key, the other methods are repeatable.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from chimes.client.problems import error_of
from chimes.client.steps import Call, NoAnswer, Reply, Steps, Wait
from chimes.errors import ChimesError, Unreachable
from chimes.wording import say

Json = dict[str, object]
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
#: Come back later: the store is away, too many requests, the first request is still under way.
_LATER = frozenset({429, 503})
_UNDER_WAY = "request_under_way"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    #: Seconds to wait in all, over the repeats of one request.
    patience: float

    def answer(self, call: Call) -> Steps[Json]:
        """The object that was asked for; every error is one of chimes.errors."""
        if call.method == "POST":
            key = {"Idempotency-Key": str(uuid.uuid4())}
            call = replace(call, headers={**call.headers, **key})
        waits = pauses()
        left = self.patience
        while True:
            reply = yield call
            if isinstance(reply, Reply):
                found = object_of(reply)
                if reply.status < 400:
                    return found
                error = error_of(reply.status, found, reply.headers)
                if reply.status not in _LATER and found.get("code") != _UNDER_WAY:
                    raise error
                pause = max(next(waits), asked_to_wait(reply.headers))
            else:
                assert isinstance(reply, NoAnswer)
                error = Unreachable(reply.reason)
                pause = next(waits)
            if pause > left:
                raise error
            left -= pause
            yield Wait(pause)


def asked_to_wait(headers: Mapping[str, str]) -> float:
    """Retry-After in seconds, which is how Chimes says it."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        # Spread, so that clients of a server that comes back do not all come at once.
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - nobody is to be kept from guessing
        pause = min(pause * 2, LONGEST_PAUSE)


def object_of(reply: Reply) -> Json:
    if not reply.body:
        return {}
    try:
        found = json.loads(reply.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _not_chimes(reply)
    return found


def _not_chimes(reply: Reply) -> ChimesError:
    return Unreachable(
        say(
            "the answer ({status}) does not come from Chimes; is the URL right?",
            status=reply.status,
        )
    )
