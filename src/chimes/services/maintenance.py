"""Maintenance mode: stops all firing of the instance or of a namespace, and lets it continue."""

from __future__ import annotations

from datetime import datetime

from chimes.errors import Conflict, InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import canonical_namespace
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    MaintenanceWindow,
    begin_window,
    end_windows,
    windows_from_document,
    windows_to_document,
)
from chimes.model.validation import check_text
from chimes.services.documents import Document, DocumentStore
from chimes.services.system import may_control
from chimes.store.port import Store, read_maintenance
from chimes.triggers.values import format_moment


class MaintenanceService:
    """Operators and admins switch it; every user may see it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, MAINTENANCE_CHECKPOINT, write=store.set_maintenance)

    async def list_active(self) -> tuple[MaintenanceWindow, ...]:
        """The windows that are on now, the one of the instance first."""
        now = await self._store.now()
        found = [each for each in await read_maintenance(self._store) if each.is_active(now)]
        return tuple(sorted(found, key=lambda each: each.namespace))

    async def begin(
        self,
        actor: Actor,
        *,
        namespace: str = "",
        until: datetime | None = None,
        reason: str = "",
        silence: bool = False,
    ) -> MaintenanceWindow:
        """No schedule fires any more when it returns. Again: changes the end, the reason and
        `silence`: whether notifications are not sent either."""
        _check_permission(actor)
        check_text(reason, "reason")
        now = await self._store.now()
        if until is not None and until <= now:
            raise InvalidInput(
                _("until must lie in the future"), field="until", code="out_of_range"
            )
        window = MaintenanceWindow(
            namespace=canonical_namespace(namespace),
            since=now,
            until=until,
            reason=reason,
            by=actor.name,
            silence=silence,
        )
        changes: dict[str, object] = {
            "until": [None, None if until is None else format_moment(until)]
        }
        if silence:
            changes["silence"] = [False, True]
        audit = _audit(actor, "begin_maintenance", window.namespace, now, changes, reason)

        def change(document: Document) -> tuple[Document, AuditEntry]:
            windows = windows_from_document(document)
            return windows_to_document(begin_window(windows, window)), audit

        stored = windows_from_document(await self._document.change(change))
        return next(
            each for each in stored if each.namespace == window.namespace and each.is_active(now)
        )

    async def end(self, actor: Actor, *, namespace: str = "", reason: str = "") -> None:
        """Schedules fire again from their next slot. Raises Conflict if it is not on."""
        _check_permission(actor)
        check_text(reason, "reason")
        now = await self._store.now()
        name = canonical_namespace(namespace)
        audit = _audit(actor, "end_maintenance", name, now, {}, reason)

        def change(document: Document) -> tuple[Document, AuditEntry]:
            windows = windows_from_document(document)
            ended = end_windows(windows, name, now)
            if ended == windows:
                raise _not_on([each for each in windows if each.is_active(now)])
            return windows_to_document(ended), audit

        await self._document.change(change)


def _check_permission(actor: Actor) -> None:
    if not may_control(actor):
        raise NotAllowed()


def _audit(
    actor: Actor,
    verb: str,
    namespace: str,
    now: datetime,
    changes: dict[str, object],
    reason: str,
) -> AuditEntry:
    return entry(
        actor,
        verb,
        "maintenance",
        namespace or "*",
        at=now,
        owner=SYSTEM_OWNER,
        changes=changes,
        reason=reason,
    )


def _not_on(active: list[MaintenanceWindow]) -> Conflict:
    names = ", ".join(sorted(each.namespace for each in active if each.namespace))
    if names:
        return Conflict(
            _("maintenance is on for other namespaces only: {names}", names=names),
            code="not_in_maintenance",
        )
    if active:
        return Conflict(
            _("maintenance is on for the whole instance, not for this namespace"),
            code="not_in_maintenance",
        )
    return Conflict(_("maintenance is not on"), code="not_in_maintenance")
