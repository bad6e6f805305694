"""Routing rules: who else is notified of runs, by label, owner and status."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from chimes.errors import Conflict, InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor, secret_names
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import RunId
from chimes.model.notification import plan_deliveries
from chimes.model.recipient import Recipient
from chimes.model.routing import (
    MAX_RULE_RECIPIENTS,
    MAX_RULES,
    ROUTING_CHECKPOINT,
    Routing,
    Rule,
)
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule, run_definition
from chimes.model.validation import check_text
from chimes.redaction import mask_url
from chimes.services.documents import Document, DocumentStore
from chimes.services.schedules.rules import ScheduleRules
from chimes.store.codec.values import routing_from_text, routing_to_plain
from chimes.store.port import Store

MAX_LABELS = 10


async def refresh_routing(store: Store) -> Routing:
    """Reads the rules for the runs that end in this process from now on."""
    stored = await store.get_checkpoint(ROUTING_CHECKPOINT)
    store.routing.current = routing_from_text(None if stored is None else stored.value)
    return store.routing.current


class RoutingService:
    """Operators and admins see the rules; admins change them, because a rule sends messages about
    the runs of every owner."""

    def __init__(self, store: Store, rules: ScheduleRules) -> None:
        self._store = store
        self._rules = rules
        self._document = DocumentStore(store, ROUTING_CHECKPOINT)

    async def get(self, actor: Actor) -> Routing:
        if not actor.sees_everything:
            raise NotAllowed()
        return await refresh_routing(self._store)

    async def set(
        self, actor: Actor, rules: Iterable[Rule], *, expected: int | None = None
    ) -> Routing:
        """Replaces the rules. With `expected`, raises Conflict if another version is stored."""
        if not actor.administers:
            raise NotAllowed()
        new = tuple(rules)
        self._check(new)
        now = await self._store.now()

        def change(document: Document) -> tuple[Document, AuditEntry]:
            before = routing_from_text(json.dumps(document) if document else None)
            if expected is not None and expected != before.version:
                raise Conflict(
                    _(
                        "the rules have version {stored}, not {expected}: read them again",
                        stored=before.version,
                        expected=expected,
                    ),
                    code="stale",
                )
            after = Routing(version=before.version + 1, rules=new)
            changes: dict[str, object] = {
                "version": [before.version, after.version],
                "rules": [_summary(before.rules), _summary(new)],
            }
            audit = entry(
                actor, "set_routing", "routing", "*", at=now, owner=SYSTEM_OWNER, changes=changes
            )
            return dict(routing_to_plain(after)), audit

        await self._document.change(change)
        return await refresh_routing(self._store)

    async def recipients_for(
        self, actor: Actor, schedule: Schedule, status: RunStatus
    ) -> tuple[tuple[Recipient, ...], tuple[Rule, ...]]:
        """Who would be notified if a run of the schedule ended now, and the rules that match."""
        routing = await self.get(actor)
        run = _ended_run(schedule, status, await self._store.now())
        deliveries = plan_deliveries(run, schedule.last_status, run.created_at, routing)
        return (
            tuple(each.recipient for each in deliveries if each.run_id is not None),
            tuple(routing.matching(run)),
        )

    def _check(self, rules: tuple[Rule, ...]) -> None:
        if len(rules) > MAX_RULES:
            raise InvalidInput(
                _("at most {most} rules", most=MAX_RULES), field="rules", code="too_many"
            )
        for place, rule in enumerate(rules):
            try:
                self._check_rule(rule)
            except InvalidInput as error:
                raise error.within(f"rules[{place}]") from None

    def _check_rule(self, rule: Rule) -> None:
        check_text(rule.name, "name")
        if len(rule.labels) > MAX_LABELS:
            raise InvalidInput(
                _("at most {most} labels", most=MAX_LABELS), field="labels", code="too_many"
            )
        for name, value in rule.labels.items():
            check_text(name, "labels")
            check_text(value or "", "labels")
        if not rule.recipients:
            raise InvalidInput(
                _("a rule needs at least one recipient"), field="recipients", code="missing"
            )
        if len(rule.recipients) > MAX_RULE_RECIPIENTS:
            raise InvalidInput(
                _("at most {most} recipients", most=MAX_RULE_RECIPIENTS),
                field="recipients",
                code="too_many",
            )
        self._rules.check_recipients(rule.recipients)
        for place, each in enumerate(rule.recipients):
            if secret_names(each):
                raise InvalidInput(
                    _(
                        "a rule has no owner whose secrets it could use: write the value itself, "
                        "which is stored encrypted"
                    ),
                    field=f"recipients[{place}].to",
                    code="secret_not_used",
                )


def _summary(rules: Iterable[Rule]) -> list[object]:
    """For the audit log, without secrets."""
    return [
        {
            "name": rule.name,
            "labels": dict(rule.labels),
            "recipients": [f"{each.channel}:{mask_url(each.to)}" for each in rule.recipients],
        }
        for rule in rules
    ]


def _ended_run(schedule: Schedule, status: RunStatus, now: datetime) -> Run:
    return Run(
        id=RunId("test"),
        definition=run_definition(schedule),
        origin=Origin.SCHEDULE,
        status=status,
        created_at=now,
        planned_at=now,
        available_at=now,
        started_at=now,
        finished_at=now,
    )
