"""Named limits that schedules and tasks share: concurrency, rate and circuit breaker (ADR 74).

A limit has a definition (`Limit`) and a state (`LimitState`), which all nodes change with
compare-and-set. Every change of the state is one of the pure functions below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import NodeId, RunId
from chimes.model.policy import MAX_LIMITS_OF_POLICY
from chimes.triggers import format_duration_iso

#: Of an owner, and shared ones.
MAX_LIMITS = 100
MAX_CONCURRENCY = 1000
MAX_BURST = 100_000
MAX_BREAKER_FAILURES = 1000
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(days=1)
#: Waiting runs of a node that the state lists, so that other nodes leave permits to them.
MAX_DEMAND = 8
#: Seconds after which the waiting runs of a node that does not renew them are ignored.
DEMAND_SECONDS = 2.0

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")
_RATE = re.compile(r"([0-9]{1,6})/([0-9]{0,4})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Breaker(Struct, frozen=True, kw_only=True):
    """After so many failed calls in a row, calls wait for `pause`; then one call probes."""

    failures: int
    pause: timedelta


class Limit(Struct, frozen=True, kw_only=True):
    name: str
    #: None: shared by the runs of all owners.
    owner: Owner | None
    #: Most runs at a time on all nodes; None: any number.
    concurrency: int | None = None
    #: Calls per time, such as `10/s`; empty: any number.
    rate: str = ""
    #: Calls that may follow each other at once after a pause; None: those of a second.
    burst: int | None = None
    breaker: Breaker | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def calls_per_second(self) -> float | None:
        return calls_per_second(self.rate) if self.rate else None

    @property
    def capacity(self) -> int:
        """Most tokens of the rate."""
        if self.burst is not None:
            return self.burst
        return max(1, math.ceil(self.calls_per_second or 1))

    @property
    def has_state_after_call(self) -> bool:
        """Whether the end of a call matters."""
        return self.concurrency is not None or self.breaker is not None


def calls_per_second(rate: str) -> float:
    """The rate of a text such as `10/s`, `100/m` or `5/10s`. Raises InvalidInput."""
    found = _RATE.fullmatch(rate.replace(" ", ""))
    if found is not None:
        count, number, unit = found.groups()
        seconds = int(number or 1) * _UNITS[unit]
        if int(count) > 0 and seconds > 0:
            return int(count) / seconds
    raise InvalidInput(
        _(
            "{rate!r} is not a rate: write a number per time, for example 10/s, 100/m or 5/10s",
            rate=rate,
        ),
        field="rate",
        code="bad_rate",
    )


def check_limit_name(name: str, field: str = "name") -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "the name of a limit has up to 64 letters, digits, `_`, `.`, `:` and `-`, and "
                "begins with a letter, a digit or `_`, for example api.example.com"
            ),
            field=field,
            code="limit_name",
        )
    return name


def check_limit(limit: Limit) -> None:
    """Raises InvalidInput for a limit that limits nothing, or with a value out of range."""
    check_limit_name(limit.name)
    if limit.rate:
        calls_per_second(limit.rate)
    if limit.burst is not None and not limit.rate:
        raise InvalidInput(
            _("burst needs a rate, for example 10/s"), field="burst", code="burst_without_rate"
        )
    if limit.concurrency is None and not limit.rate and limit.breaker is None:
        raise InvalidInput(
            _("a limit needs a concurrency, a rate or a breaker"), field="", code="empty_limit"
        )
    failures = None if limit.breaker is None else limit.breaker.failures
    numbers = [
        ("concurrency", limit.concurrency, MAX_CONCURRENCY),
        ("burst", limit.burst, MAX_BURST),
        ("breaker.failures", failures, MAX_BREAKER_FAILURES),
    ]
    for name, number, most in numbers:
        if number is not None and not 1 <= number <= most:
            raise _out_of_range(name, 1, most)
    if limit.breaker is not None and not SHORTEST_PAUSE <= limit.breaker.pause <= LONGEST_PAUSE:
        raise _out_of_range(
            "breaker.pause",
            format_duration_iso(SHORTEST_PAUSE),
            format_duration_iso(LONGEST_PAUSE),
        )


def _out_of_range(name: str, least: object, most: object) -> InvalidInput:
    return InvalidInput(
        _("{field} must be between {least} and {most}", field=name, least=least, most=most),
        field=name,
        code="out_of_range",
    )


def check_limit_names(names: Sequence[str], field: str = "policy.limits") -> None:
    """Raises InvalidInput for a list of limits that a policy may not have."""
    if len(names) > MAX_LIMITS_OF_POLICY:
        raise InvalidInput(
            _("a policy has at most {most} limits", most=MAX_LIMITS_OF_POLICY),
            field=field,
            code="too_many",
        )
    for place, name in enumerate(names):
        check_limit_name(name, f"{field}[{place}]")
        if name in names[:place]:
            raise InvalidInput(
                _("the limit {name!r} is given twice", name=name), field=field, code="twice"
            )


def unknown_limit(name: str) -> Message:
    return _(
        "there is no limit {name!r}: define it with `chimes limits set {name}` or PUT "
        "/api/v1/limits/{name}",
        name=name,
    )


# --- state ----------------------------------------------------------------------------------------
#: The order in which runs get permits: highest rank first, then the oldest.
Order = tuple[int, float, str]


class Waiter(Struct, frozen=True, kw_only=True):
    """A claimed run that wants to start."""

    run_id: RunId
    fence: int
    order: Order


class Demand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What waits on a node."""

    #: The first waiting runs, in order; at most MAX_DEMAND.
    first: tuple[Order, ...] = ()
    #: How many runs of the node wait, also in the queue.
    count: int = 0
    expires: float = 0.0


class LimitState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are seconds since the epoch, by the store's clock."""

    #: Fences of the runs that have a permit. A permit is void once its run is not running under
    #: this fence, so it ends with the lease of a lost node (`drop_void`).
    permits: dict[str, int] = field(default_factory=dict)
    #: Tokens of the rate at `refilled_at`; None: full.
    tokens: float | None = None
    refilled_at: float = 0.0
    #: Failed calls in a row.
    failures: int = 0
    #: The breaker is open: no calls before this time, and then one probe; 0: closed.
    open_until: float = 0.0
    #: The run that probes.
    probe: str = ""
    demands: dict[str, Demand] = field(default_factory=dict)


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    #: The pause is over: one call decides.
    PROBING = "probing"


def breaker_state(state: LimitState, now: float) -> BreakerState:
    if not state.open_until:
        return BreakerState.CLOSED
    return BreakerState.OPEN if now < state.open_until else BreakerState.PROBING


class Admission(Struct, frozen=True, kw_only=True):
    admitted: frozenset[RunId]
    #: Seconds until more can be admitted, if nothing is released before; None: unknown.
    wait: float | None = None
    #: Whether permits are used up, and not tokens or the breaker.
    at_concurrency: bool = False


def admit(
    state: LimitState,
    limit: Limit,
    node: NodeId,
    waiting: Sequence[Waiter],
    now: float,
    *,
    keep: int = 0,
    queued: int = 0,
) -> tuple[LimitState, Admission]:
    """Give permits and tokens to the first of the waiting runs, and leave some to runs of other
    nodes that come before them. `keep`: how many of the others go on waiting in this process,
    `queued`: how many went back to the queue."""
    state = _refill(state, limit, now)
    demands = {
        each: demand
        for each, demand in state.demands.items()
        if each != node and now < demand.expires < now + 2 * DEMAND_SECONDS
    }
    # A permit that was written and whose answer was lost.
    held = [each for each in waiting if state.permits.get(each.run_id) == each.fence]
    free, wait = _free(state, limit, now)
    others = [order for demand in demands.values() for order in demand.first]
    local = [(each.order, each) for each in waiting if each not in held]
    order = sorted([*local, *((each, None) for each in others)], key=lambda pair: pair[0])
    first = order if free is None else order[:free]
    admitted = [each for _order, each in first if each is not None]
    probing = breaker_state(state, now) is BreakerState.PROBING
    permits = state.permits
    if limit.concurrency is not None or probing:
        permits = permits | {each.run_id: each.fence for each in admitted}
    ids = frozenset(each.run_id for each in (*held, *admitted))
    rest = [
        each.order
        for each in sorted(waiting, key=lambda each: each.order)
        if each.run_id not in ids
    ]
    if rest[:keep]:
        before = state.demands.get(node)
        demand = Demand(
            first=tuple(rest[:keep][:MAX_DEMAND]),
            count=len(rest) + queued,
            expires=now + DEMAND_SECONDS,
        )
        # Written again only when half of its time is over: waiting alone changes nothing.
        same = before is not None and replace(before, expires=demand.expires) == demand
        if before is not None and same and before.expires > now + DEMAND_SECONDS / 2:
            demand = before
        demands[node] = demand
    tokens = state.tokens
    if tokens is not None and admitted:
        tokens -= len(admitted)
    after = replace(
        state,
        permits=permits,
        tokens=tokens,
        probe=admitted[0].run_id if probing and admitted else state.probe,
        demands=demands,
    )
    concurrency = limit.concurrency
    return after, Admission(
        admitted=ids,
        wait=wait if rest else None,
        at_concurrency=concurrency is not None and len(permits) >= concurrency,
    )


def _free(state: LimitState, limit: Limit, now: float) -> tuple[int | None, float | None]:
    """How many runs may start, None: any number; and the seconds until there may be more."""
    counts: list[int] = []
    wait: float | None = None
    if limit.concurrency is not None:
        counts.append(max(0, limit.concurrency - len(state.permits)))
    if state.tokens is not None and (rate := limit.calls_per_second):
        counts.append(int(state.tokens))
        wait = max(0.0, 1 - state.tokens % 1) / rate
    match breaker_state(state, now) if limit.breaker else BreakerState.CLOSED:
        case BreakerState.OPEN:
            return 0, state.open_until - now
        case BreakerState.PROBING:
            counts.append(0 if state.probe in state.permits else 1)
        case BreakerState.CLOSED:
            pass
    return min(counts) if counts else None, wait


def _refill(state: LimitState, limit: Limit, now: float) -> LimitState:
    """A clock that is behind that of another node adds nothing."""
    rate = limit.calls_per_second
    if rate is None:
        return replace(state, tokens=None, refilled_at=0.0)
    full = float(limit.capacity)
    if state.tokens is None:
        return replace(state, tokens=full, refilled_at=now)
    # A clock that was set back by much would stop refilling for as long.
    since = state.refilled_at if state.refilled_at < now + 60 else now
    tokens = min(full, state.tokens + max(0.0, now - since) * rate)
    return replace(state, tokens=tokens, refilled_at=max(since, now))


def leave(
    state: LimitState,
    limit: Limit,
    run_id: RunId,
    fence: int,
    now: float,
    *,
    succeeded: bool | None,
) -> LimitState:
    """The run's call is over. `succeeded` None: canceled or lost, which says nothing about the
    receiver. A permit under another fence belongs to a later attempt, and stays."""
    held = state.permits.get(run_id, fence) == fence
    permits = _without(state.permits, [run_id]) if held else state.permits
    probed = held and state.probe == run_id
    after = replace(state, permits=permits, probe="" if probed else state.probe)
    breaker = limit.breaker
    if breaker is None:
        return replace(after, failures=0, open_until=0.0, probe="")
    if succeeded is None or (state.open_until and not probed):
        # A call that began before the breaker opened decides nothing.
        return after
    if succeeded:
        return replace(after, failures=0, open_until=0.0)
    failures = state.failures + 1
    opens = probed or failures >= breaker.failures
    return replace(
        after,
        failures=failures,
        open_until=now + breaker.pause.total_seconds() if opens else 0.0,
    )


def give_back(state: LimitState, limit: Limit, run_id: RunId, fence: int) -> LimitState:
    """The run got a permit and a token under this fence, and did not start."""
    tokens = state.tokens
    held = state.permits.get(run_id, fence) == fence
    return replace(
        state,
        permits=_without(state.permits, [run_id]) if held else state.permits,
        probe="" if held and state.probe == run_id else state.probe,
        tokens=None if tokens is None else min(float(limit.capacity), tokens + 1),
    )


def drop_void(state: LimitState, void: Mapping[str, int]) -> LimitState:
    """Without permits of runs that are not running under these fences any more."""
    gone = [each for each, fence in void.items() if state.permits.get(each) == fence]
    return replace(
        state,
        permits=_without(state.permits, gone),
        probe="" if state.probe in gone else state.probe,
    )


def _without(permits: dict[str, int], gone: Collection[str]) -> dict[str, int]:
    if not any(each in permits for each in gone):
        return permits
    return {each: fence for each, fence in permits.items() if each not in gone}


class LimitUse(Struct, frozen=True, kw_only=True):
    """A limit and its current use."""

    limit: Limit
    #: Runs that have a permit; None without a concurrency.
    in_use: int | None
    #: Calls that could start at once; None without a rate.
    tokens: int | None
    #: Runs that wait on the nodes, about.
    waiting: int
    breaker: BreakerState | None
    open_until: datetime | None = None
    failures: int = 0


def limit_use(limit: Limit, state: LimitState, now: datetime) -> LimitUse:
    at = now.timestamp()
    state = _refill(state, limit, at)
    opened = limit.breaker is not None and state.open_until > 0
    return LimitUse(
        limit=limit,
        in_use=None if limit.concurrency is None else len(state.permits),
        tokens=None if state.tokens is None else int(state.tokens),
        waiting=sum(each.count for each in _alive(state.demands.values(), at)),
        breaker=None if limit.breaker is None else breaker_state(state, at),
        open_until=datetime.fromtimestamp(state.open_until, now.tzinfo) if opened else None,
        failures=state.failures,
    )


def _alive(demands: Iterable[Demand], now: float) -> Iterable[Demand]:
    return (each for each in demands if each.expires > now)
