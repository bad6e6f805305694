from __future__ import annotations

from datetime import timedelta

from chimes.engine.events import RunsPruned
from chimes.model.policy import Misfire, Policy
from tests.engine.rig import Rig, eventually, until


# A pruned slot is never created again.
async def test_runs_older_than_the_retention_are_deleted(rig: Rig) -> None:
    first = await rig.engine()
    schedule = await rig.due_now(policy=Policy(misfire=Misfire.ALL))
    (run,) = await rig.ended(schedule)
    await first.drain()
    kept = await rig.once_at(await rig.now() + timedelta(hours=1))
    await rig.engine(retention=timedelta(0))
    await until(lambda: rig.emitted(RunsPruned))
    assert await eventually(lambda: rig.runs(schedule), lambda runs: not runs) == []
    assert (await rig.schedule(schedule.id)).purged_until == run.slot
    assert (await rig.schedule(kept.id)).purged_until is None
