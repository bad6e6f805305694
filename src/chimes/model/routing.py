"""Routing rules: further recipients of runs by label, owner and status (ADR 76).

One document in the store holds the rules. Each process that ends runs keeps a copy in its store
(`RoutingCache`), which `plan_deliveries` applies in the transaction that ends a run.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.recipient import NotifyOn, Recipient
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.silence import LabelFilter, has_labels

#: Name of the checkpoint that holds the document.
ROUTING_CHECKPOINT = "routing"
MAX_RULES = 100
MAX_RULE_RECIPIENTS = 10


class Rule(Struct, frozen=True, kw_only=True):
    """Matches runs with all of its conditions; without a condition, every run."""

    name: str = ""
    labels: LabelFilter = {}
    #: `user:alice`; empty: any.
    owner: str = ""
    #: Empty: any.
    statuses: tuple[RunStatus, ...] = ()
    on: tuple[NotifyOn, ...] = (NotifyOn.ALWAYS,)
    recipients: tuple[Recipient, ...] = ()
    #: Whether later rules are applied to a run that matches.
    proceed: bool = field(default=False, name="continue")

    def matches(self, run: Run) -> bool:
        definition = run.definition
        return (
            self.owner in ("", str(definition.owner))
            and (not self.statuses or run.status in self.statuses)
            and has_labels(definition.labels, self.labels)
        )

    def routed(self) -> Iterator[Recipient]:
        """Its recipients, each for the events that both it and the rule select."""
        for each in self.recipients:
            on = each.on
            if NotifyOn.ALWAYS in on:
                on = self.on
            elif NotifyOn.ALWAYS not in self.on:
                on = tuple(event for event in on if event in self.on)
            if on:
                yield replace(each, on=on)


class Routing(Struct, frozen=True, kw_only=True):
    """The document. `version` counts its changes."""

    version: int = 0
    rules: tuple[Rule, ...] = ()

    def matching(self, run: Run) -> Iterator[Rule]:
        if run.origin is Origin.CHILD:
            return
        for rule in self.rules:
            if rule.matches(run):
                yield rule
                if not rule.proceed:
                    return

    def recipients_of(self, run: Run) -> tuple[Recipient, ...]:
        """The recipients of a run: its own, then those of the rules that match. An address may be
        there with different events; `plan_deliveries` notifies it once."""
        own = run.definition.policy.delivery
        if not self.rules:
            return own
        routed = [each for rule in self.matching(run) for each in rule.routed()]
        return tuple(dict.fromkeys([*own, *routed]))


NO_ROUTING = Routing()


class RoutingCache:
    """The rules that the stores of a process apply to runs that end."""

    def __init__(self) -> None:
        self.current = NO_ROUTING

    def recipients_of(self, run: Run) -> tuple[Recipient, ...]:
        return self.current.recipients_of(run)

    @property
    def depends_on_time(self) -> bool:
        """Whether the wall clock decides when a recipient of a rule is notified."""
        rules = self.current.rules
        return any(each.depends_on_time for rule in rules for each in rule.recipients)
