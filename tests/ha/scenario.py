"""One fault under load on a Patroni cluster, and its counts."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, get_args

from tests.ha.cluster import APP, Cluster
from tests.ha.load import Counts, Load, Observer, Records, Row, after_fault, count, read_rows
from tests.system.node import wait_until

Fault = Literal["kill", "pause", "partition", "isolate", "switchover"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
NODES = 2
#: Load before the fault and after it.
WARM_UP_CALLS = 1000
COOL_DOWN_CALLS = 1000
ON_TIME_SECONDS = 60.0


def inject(cluster: Cluster, fault: Fault) -> Callable[[], None]:
    """Injects the fault into the leader; the result heals it."""
    leader = cluster.leader()
    member = cluster.members[leader]
    match fault:
        case "kill":
            member.kill()
            return member.patroni.start
        case "pause":
            member.pause()
            return member.resume
        case "partition":
            cluster.network.cut(leader)
            return lambda: cluster.network.heal(leader)
        case "isolate":
            # From the other servers and etcd, not from Chimes: it takes writes until Patroni
            # demotes it.
            cluster.network.cut(leader, "back")
            return lambda: cluster.network.heal(leader)
        case "switchover":
            switching = ThreadPoolExecutor(1).submit(cluster.switch_over)
            return switching.result


def run(cluster: Cluster, fault: Fault) -> Counts:
    cluster.wait_until_healthy()
    database = f"chimes_{secrets.token_hex(4)}"
    store = cluster.new_database(database)
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="chimes-ha-") as directory,
        Load(cluster.network, APP, store, Path(directory), NODES) as load,
    ):
        load.create_schedules()
        load.wait_for_calls(WARM_UP_CALLS)
        with cluster.network.threads(APP, 1) as thread:
            observer = Observer(thread, store)
            try:
                load.wait_for_calls(WARM_UP_CALLS)
                leader = cluster.leader()
                at = time.time()
                heal = inject(cluster, fault)
                wait_until(lambda: cluster.leader(leader), "another leader", 120)
                led = time.time()
                load.wait_for_calls(1)
                heal()
                # On a busy machine 200 slots a second may be too many.
                on_time = load.wait_until_on_time(ON_TIME_SECONDS)
                load.wait_for_calls(COOL_DOWN_CALLS)
                cluster.wait_until_healthy()
            finally:
                observer.close()
        load.pause_schedules()
        rows = wait_until(lambda: _all_ended(cluster, store), "every run to end", 300)
        records = Records(
            first=load.first,
            paused=load.paused,
            rows=rows,
            calls=list(load.receiver.calls),
            seen=observer.seen,
        )
        events = load.events()
    cluster.drop_database(database)
    found = count(records, may_lose_commits=cluster.mode == "async")
    after_fault(found, records.calls, at, led)
    if not on_time:
        found.on_time_after = None
    found.mode, found.fault, found.nodes = cluster.mode, fault, NODES
    found.seconds = round(time.monotonic() - begun, 1)
    found.regressions = events["the store lost committed data"]
    found.leases_lost = events["lease lost"]
    return found


def _all_ended(cluster: Cluster, store: str) -> list[Row]:
    rows = cluster.on_app_host(asyncio.run, read_rows(store))
    ended = all(row.status not in ("queued", "running") for row in rows)
    return rows if ended else []
