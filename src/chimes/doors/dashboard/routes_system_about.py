"""System, about: what this is, whether it is in order, and whose work it contains."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass

from starlette.responses import Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.views_system import CLOCK_WARNING
from chimes.doors.dashboard.views_system_about import Check, licences, support_text
from chimes.doors.dashboard.views_system_settings import package_version
from chimes.doors.dashboard.visit import Visit
from chimes.model.listing import Counts
from chimes.model.node import Node, NodeState
from chimes.store.answers import StoreStatus
from chimes.wording import joined, say

pages = Pages()
_LITTLE_DISK = 2**30
#: A year of rules that is older than this many years is old.
_OLD_ZONES = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    status: StoreStatus
    counts: Counts
    nodes: tuple[Node, ...]


@pages.get("/system/about")
async def about(visit: Visit) -> Response:
    operators_only(visit)
    store = visit.door.store
    looked = Looked(
        status=await store.status(), counts=await store.counts(), nodes=await store.nodes()
    )
    checks = _checks(visit, looked)
    facts = {
        "Chimes": visit.door.version,
        "Python": platform.python_version(),
        "tzdata": package_version("tzdata"),
        "platform": platform.platform(terse=True),
        "store": f"{looked.status.kind} {looked.status.schema}",
        "schedules": str(looked.counts.schedules),
        "runs": str(sum(looked.counts.runs.values())),
        "nodes": ", ".join(
            f"{node.version} {node.state(visit.now)} {'+'.join(node.roles)}"
            for node in looked.nodes
        ),
    }
    return visit.page(
        "system/about.html",
        checks=checks,
        facts=facts,
        licences=licences(),
        support=support_text(facts, checks),
    )


def _checks(visit: Visit, looked: Looked) -> list[Check]:
    return [
        *_store_checks(visit, looked),
        *_node_checks(visit, looked.nodes),
        _zone_check(visit),
        *_disk_check(visit),
    ]


def _store_checks(visit: Visit, looked: Looked) -> list[Check]:
    status = looked.status
    found = [
        Check(
            name=say("Store"),
            state="warn" if status.degraded else "ok",
            detail=say("{kind}, schema {schema}", kind=status.kind, schema=status.schema),
            fix=status.degraded or "",
        )
    ]
    reason = visit.door.not_ready()
    if reason:
        found.append(Check(name=say("This node"), state="warn", detail=reason))
    return found


def _node_checks(visit: Visit, nodes: tuple[Node, ...]) -> list[Check]:
    states = {node.id: node.state(visit.now) for node in nodes}
    alive = [node for node in nodes if states[node.id] is not NodeState.GONE]
    working = [node for node in alive if not node.drain]
    off = [str(node.id) for node in alive if abs(node.clock_offset) > CLOCK_WARNING]
    versions = sorted({node.version for node in alive})
    return [
        Check(
            name=say("Nodes"),
            state="ok" if working else "bad",
            detail=say("{alive} of {all} are alive", alive=len(alive), all=len(nodes)),
            fix="" if working else say("Start a node, or resume one that is drained."),
        ),
        Check(
            name=say("Versions"),
            state="warn" if len(versions) > 1 else "ok",
            detail=", ".join(versions) or "–",
            fix=say("Bring all nodes to the same version.") if len(versions) > 1 else "",
        ),
        Check(
            name=say("Clocks"),
            state="warn" if off else "ok",
            detail=joined(", ", off) if off else say("within a second of the store's"),
            fix=say("Let a time service such as chrony set the clock.") if off else "",
        ),
    ]


def _zone_check(visit: Visit) -> Check:
    number = package_version("tzdata")
    year = number.partition(".")[0]
    old = year.isdecimal() and visit.now.year - int(year) > _OLD_ZONES
    return Check(
        name=say("Time zones"),
        state="ok" if number and not old else "warn",
        detail=say("tzdata {version}", version=number)
        if number
        else say("the rules of the machine"),
        fix=say("Upgrade tzdata: countries change their rules.") if old or not number else "",
    )


def _disk_check(visit: Visit) -> list[Check]:
    folder = visit.door.settings.data_dir
    if not folder.is_dir():
        return []
    free = shutil.disk_usage(folder).free
    enough = free > _LITTLE_DISK
    return [
        Check(
            name=say("Disk"),
            state="ok" if enough else "warn",
            detail=say("{megabytes} MiB are free", megabytes=free // 2**20),
            fix="" if enough else say("Make room where the data is kept."),
        )
    ]
