"""Message templates of owners and of the instance."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import ENGLISH
from chimes.model.access import SYSTEM_OWNER, Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import DeliveryId, RunId
from chimes.model.notification import Delivery
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import Origin, Run, RunDefinition, RunStatus
from chimes.model.target import HttpTarget
from chimes.notifications.message import NotificationMessage, build_message
from chimes.notifications.templates import (
    MessageTemplate,
    MessageTemplates,
    apply_template,
    check_template,
    check_templates,
    template_values,
)
from chimes.services.documents import Document, DocumentStore
from chimes.store.codec.values import codec_of
from chimes.store.port import Store

_STATE = "message-templates"
_codec = codec_of(MessageTemplates)
_STATUSES = {
    NotifyOn.SUCCESS: RunStatus.SUCCEEDED,
    NotifyOn.RECOVERY: RunStatus.SUCCEEDED,
    NotifyOn.LATE: RunStatus.SUCCEEDED,
    NotifyOn.ALWAYS: RunStatus.CANCELED,
}


class MessageTemplateService:
    """Members write templates for the messages of their schedules; admins those of the instance,
    which hold for owners without their own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, owner: Owner | None) -> tuple[MessageTemplate, ...]:
        """`owner` None: of the instance."""
        stored = await self._store.get_checkpoint(_name(owner))
        try:
            document = {} if stored is None else json.loads(stored.value)
            return _codec.decode(document).templates if document else ()
        except (ValueError, TypeError, KeyError, InvalidInput):
            return ()

    async def set(
        self, actor: Actor, owner: Owner | None, templates: Sequence[MessageTemplate]
    ) -> tuple[MessageTemplate, ...]:
        if not (actor.administers if owner is None else actor.may_write(owner)):
            raise NotAllowed()
        check_templates(templates)
        now = await self._store.now()
        names = [f"{each.language or '*'}/{each.on or '*'}" for each in templates]
        audit = entry(
            actor,
            "set_templates",
            "message_templates",
            "*" if owner is None else str(owner),
            at=now,
            owner=owner or SYSTEM_OWNER,
            changes={"templates": names},
        )

        def change(document: Document) -> tuple[Document, AuditEntry]:
            if not templates:
                return {}, audit
            return dict(_codec.encode(MessageTemplates(templates=tuple(templates)))), audit

        await DocumentStore(self._store, _name(owner)).change(change)
        return tuple(templates)

    async def preview(
        self, actor: Actor, template: MessageTemplate, run: Run | None, public_url: str
    ) -> NotificationMessage:
        """The message for a run, or for an example."""
        check_template(template)
        now = await self._store.now()
        event = template.on or NotifyOn.FAILURE
        if run is None:
            status = _STATUSES.get(event, RunStatus.FAILED)
            run = Run(
                id=RunId("0199a0b2-0000-7000-8000-000000000000"),
                definition=RunDefinition(
                    schedule_name="Morning report",
                    owner=actor.owner,
                    target=HttpTarget(url="https://example.com/report"),
                    policy=Policy(),
                ),
                origin=Origin.SCHEDULE,
                status=status,
                attempt=1,
                created_at=now,
                planned_at=now,
                available_at=now,
                started_at=now,
                finished_at=now,
                error="HTTP 503" if status is RunStatus.FAILED else "",
            )
        delivery = Delivery(
            id=DeliveryId("preview"),
            run_id=run.id,
            schedule_id=run.schedule_id,
            schedule_name=run.schedule_name,
            owner=run.owner,
            recipient=Recipient(channel=Channel.INBOX),
            notify_on=event,
            created_at=now,
            available_at=now,
        )
        language = template.language or ENGLISH
        url = public_url.rstrip("/")
        message = build_message(delivery, run, language=language, zone="UTC", public_url=url)
        values = template_values(message, delivery, run, "UTC")
        return apply_template(message, template, values)


def _name(owner: Owner | None) -> str:
    return _STATE if owner is None else f"{_STATE}:{owner}"
