"""What a target wants to find again the next time: the cursor of a sync, for example."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from chimes.model.ids import RunId

#: In characters; whoever keeps more gets a clear refusal before the store sees it.
LONGEST_STATE = 1024 * 1024
#: In place of a run.
BY_HAND = RunId("")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptState:
    #: Whose it is, e.g. `SyncTarget.key`.
    name: str
    #: JSON text.
    value: str
    changed_at: datetime
    #: The run that kept it last.
    run_id: RunId = BY_HAND
