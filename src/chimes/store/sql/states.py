"""What targets keep from one run to the next."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select, update

from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.kept_state import KeptState
from chimes.model.run import accepts
from chimes.store.sql.base import SqlBase, append_audit, load_run
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import Value
from chimes.store.sql.rows.records import kept_of, kept_values
from chimes.store.sql.tables import kept_states

_THIS = kept_states.c.name == bindparam("this_name")
_STATE = select(kept_states).where(_THIS)
_CHANGE = update(kept_states).where(_THIS)
_FORGET = delete(kept_states).where(_THIS)


class SqlStates(SqlBase):
    async def keep_state(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        def work(tx: Tx) -> bool:
            run = load_run(tx, run_id)
            if run is None or not accepts(run, fence):
                return False
            values = kept_values(
                KeptState(name=name, value=value, changed_at=tx.now(), run_id=run_id)
            )
            if tx.run(_CHANGE, {"this_name": name, **values}) == 0:
                _add(tx, values)
            return True

        return await self._database.write(work)

    async def read_state(self, name: str) -> KeptState | None:
        row = await self._database.look(lambda tx: tx.first(_STATE, {"this_name": name}))
        return None if row is None else kept_of(row)

    async def set_state(
        self, name: str, value: str | None, audit: AuditEntry | None = None
    ) -> KeptState | None:
        def work(tx: Tx) -> KeptState | None:
            this = {"this_name": name}
            before = tx.first(tx.held(_STATE, kept_states.c.name), this)
            if value is not None:
                values = kept_values(KeptState(name=name, value=value, changed_at=tx.now()))
                # By what was found: a row that came meanwhile is what was there before.
                if before is None:
                    _add(tx, values)
                else:
                    tx.run(_CHANGE, {**this, **values})
            elif before is not None:
                tx.run(_FORGET, this)
            if audit is not None:
                append_audit(tx, audit)
            return None if before is None else kept_of(before)

        return await self._database.write(work)


def _add(tx: Tx, values: dict[str, Value]) -> None:
    """Of two that are the first the second waits here, and is then tried again as a whole."""
    tx.run(insert(kept_states), values)
