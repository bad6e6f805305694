"""System, about: what this is, whether it is in order, and whose work it contains."""

from __future__ import annotations

import platform
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files

from starlette.responses import Response

from chimes.i18n import _, joined
from chimes.model.listing import Counts
from chimes.model.node import Node, NodeState
from chimes.store.port import StoreStatus
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.system.routes import operators_only
from chimes.web.dashboard.system.settings import package_version
from chimes.web.dashboard.system.views import CLOCK_WARNING

# @@ About: whose work is in here, and what helps somebody who helps; nothing here asks a store.

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_CLASSIFIER = "License :: "
_EXTRA = "extra =="
#: Where a package says so in a whole text, its first line has to do.
_LONGEST = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """`state`: ok, warn or bad."""

    name: str
    state: str
    detail: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Licence:
    name: str
    version: str
    licence: str
    #: Sent to browsers, not only used by the server.
    vendored: bool = False


@lru_cache(maxsize=1)
def licences() -> tuple[Licence, ...]:
    """Of Chimes itself, of what it sends to browsers, and of every package that it needs here."""
    known = _needed("chimes")
    own = tuple(_licence(each) for each in known if each.name == "chimes")
    others = [_licence(each) for each in known if each.name != "chimes"]
    return (*own, *_vendored(), *sorted(others, key=lambda each: each.name.lower()))


def _vendored() -> list[Licence]:
    text = (files("chimes.web.dashboard") / "static" / "vendor" / "VENDOR.toml").read_text("utf-8")
    return [
        Licence(
            name=str(each["package"]),
            version=str(each["version"]),
            licence=str(each["licence"]),
            vendored=True,
        )
        for each in tomllib.loads(text).values()
    ]


def _needed(first: str) -> list[Distribution]:
    """What is installed of a package and of all that it names, and so on."""
    found: dict[str, Distribution] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            continue
        # Extras are our own to choose; those of others are not asked for.
        wanted = (each for each in found[key].requires or () if name == first or _EXTRA not in each)
        named = map(_NAME.match, wanted)
        waiting += [each[0] for each in named if each]
    return list(found.values())


def _licence(package: Distribution) -> Licence:
    about = package.metadata
    classifiers = about.get_all("Classifier") or []
    words = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith(_CLASSIFIER)]
    said = [
        *(about.get_all("License-Expression") or ()),
        ", ".join(words),
        *(each.strip().partition("\n")[0][:_LONGEST] for each in about.get_all("License") or ()),
    ]
    found = next(filter(None, said), "?")
    return Licence(name=package.name, version=package.version, licence=found)


def support_text(facts: Mapping[str, str], checks: Sequence[Check]) -> str:
    """In English, without names of schedules, addresses or secrets."""
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    lines += [f"[{each.state}] {each.name}: {each.detail}" for each in checks]
    return "\n".join(lines)


router = PageRouter()
_LITTLE_DISK = 2**30
#: A year of rules that is older than this many years is old.
_OLD_ZONES = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    status: StoreStatus
    counts: Counts
    nodes: tuple[Node, ...]


@router.get("/system/about")
async def about(request: PageRequest) -> Response:
    operators_only(request)
    store = request.context.store
    looked = Looked(
        status=await store.status(), counts=await store.counts(), nodes=await store.nodes()
    )
    checks = _checks(request, looked)
    facts = {
        "Chimes": request.context.version,
        "Python": platform.python_version(),
        "tzdata": package_version("tzdata"),
        "platform": platform.platform(terse=True),
        "store": f"{looked.status.kind} {looked.status.schema}",
        "schedules": str(looked.counts.schedules),
        "runs": str(sum(looked.counts.runs.values())),
        "nodes": ", ".join(
            f"{node.version} {node.state(request.now)} {'+'.join(node.roles)}"
            for node in looked.nodes
        ),
    }
    return request.render(
        "system/about.html",
        checks=checks,
        facts=facts,
        licences=licences(),
        support=support_text(facts, checks),
    )


def _checks(request: PageRequest, looked: Looked) -> list[Check]:
    return [
        *_store_checks(request, looked),
        *_node_checks(request, looked.nodes),
        _zone_check(request),
        *_disk_check(request),
    ]


def _store_checks(request: PageRequest, looked: Looked) -> list[Check]:
    status = looked.status
    found = [
        Check(
            name=_("Store"),
            state="warn" if status.degraded else "ok",
            detail=_("{kind}, schema {schema}", kind=status.kind, schema=status.schema),
            fix=status.degraded or "",
        )
    ]
    reason = request.context.not_ready()
    if reason:
        found.append(Check(name=_("This node"), state="warn", detail=reason))
    return found


def _node_checks(request: PageRequest, nodes: tuple[Node, ...]) -> list[Check]:
    states = {node.id: node.state(request.now) for node in nodes}
    alive = [node for node in nodes if states[node.id] is not NodeState.GONE]
    working = [node for node in alive if not node.drain]
    off = [str(node.id) for node in alive if abs(node.clock_offset) > CLOCK_WARNING]
    versions = sorted({node.version for node in alive})
    return [
        Check(
            name=_("Nodes"),
            state="ok" if working else "bad",
            detail=_("{alive} of {all} active", alive=len(alive), all=len(nodes)),
            fix="" if working else _("Start a node, or resume a drained one."),
        ),
        Check(
            name=_("Versions"),
            state="warn" if len(versions) > 1 else "ok",
            detail=", ".join(versions) or "–",
            fix=_("Upgrade all nodes to the same version.") if len(versions) > 1 else "",
        ),
        Check(
            name=_("Clocks"),
            state="warn" if off else "ok",
            detail=joined(", ", off) if off else _("within one second of the store clock"),
            fix=_("Synchronize the clock, for example with chrony.") if off else "",
        ),
    ]


def _zone_check(request: PageRequest) -> Check:
    number = package_version("tzdata")
    year = number.partition(".")[0]
    old = year.isdecimal() and request.now.year - int(year) > _OLD_ZONES
    return Check(
        name=_("Time zones"),
        state="ok" if number and not old else "warn",
        detail=_("tzdata {version}", version=number)
        if number
        else _("operating system time zone data"),
        fix=_("Upgrade tzdata to get current time zone rules.") if old or not number else "",
    )


def _disk_check(request: PageRequest) -> list[Check]:
    folder = request.context.settings.data_dir
    if not folder.is_dir():
        return []
    free = shutil.disk_usage(folder).free
    enough = free > _LITTLE_DISK
    return [
        Check(
            name=_("Disk"),
            state="ok" if enough else "warn",
            detail=_("{megabytes} MiB free", megabytes=free // 2**20),
            fix="" if enough else _("Free disk space in the data directory."),
        )
    ]
