"""About page: health checks, versions, support information and licences."""

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
from chimes.model.node import Node, NodeState
from chimes.services.system import StoreHealth
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter
from chimes.web.dashboard.system.routes import require_operator
from chimes.web.dashboard.system.settings import package_version
from chimes.web.dashboard.system.views import CLOCK_WARNING

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_CLASSIFIER = "License :: "
_EXTRA = "extra =="
#: A licence given as full text is cut to its first line and this length.
_MAX_LICENCE_LENGTH = 60


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
    """Returns the licences of Chimes, of vendored scripts and of installed dependencies."""
    known = _installed_dependencies("chimes")
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


def _installed_dependencies(first: str) -> list[Distribution]:
    """Returns the installed transitive dependencies of a package."""
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
        # Extras count for Chimes itself, not for its dependencies; a server does not run tests.
        wanted = (
            each
            for each in found[key].requires or ()
            if _EXTRA not in each or (name == first and "testing" not in each)
        )
        named = map(_NAME.match, wanted)
        waiting += [each[0] for each in named if each]
    return list(found.values())


def _licence(package: Distribution) -> Licence:
    about = package.metadata
    classifiers = about.get_all("Classifier") or []
    words = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith(_CLASSIFIER)]
    candidates = [
        *(about.get_all("License-Expression") or ()),
        ", ".join(words),
        *(
            each.strip().partition("\n")[0][:_MAX_LICENCE_LENGTH]
            for each in about.get_all("License") or ()
        ),
    ]
    found = next(filter(None, candidates), "?")
    return Licence(name=package.name, version=package.version, licence=found)


def support_text(facts: Mapping[str, str], checks: Sequence[Check]) -> str:
    """Returns a report in English without schedule names, addresses or secrets."""
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    lines += [f"[{each.state}] {each.name}: {each.detail}" for each in checks]
    return "\n".join(lines)


router = PageRouter()
_MIN_FREE_DISK = 2**30
#: Years after which time zone data counts as outdated.
_MAX_TZDATA_AGE = 1


@router.get("/system/about")
async def about(request: PageRequest) -> Response:
    require_operator(request)
    health = await request.context.system.get_store_health(request.actor)
    nodes = await request.context.nodes.list_nodes(request.actor)
    checks = [
        *_store_checks(request, health),
        *_node_checks(request, nodes),
        _zone_check(request),
        *_disk_check(request),
    ]
    facts = {
        "Chimes": request.context.version,
        "Python": platform.python_version(),
        "tzdata": package_version("tzdata"),
        "platform": platform.platform(terse=True),
        "store": f"{health.status.kind} {health.status.schema}",
        "schedules": str(health.counts.schedules),
        "runs": str(sum(health.counts.runs.values())),
        "nodes": ", ".join(
            f"{node.version} {node.state(request.now)} {'+'.join(node.roles)}" for node in nodes
        ),
    }
    return request.render(
        "system/about.html",
        checks=checks,
        facts=facts,
        licences=licences(),
        support=support_text(facts, checks),
    )


def _store_checks(request: PageRequest, health: StoreHealth) -> list[Check]:
    status = health.status
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
    old = year.isdecimal() and request.now.year - int(year) > _MAX_TZDATA_AGE
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
    enough = free > _MIN_FREE_DISK
    return [
        Check(
            name=_("Disk"),
            state="ok" if enough else "warn",
            detail=_("{megabytes} MiB free", megabytes=free // 2**20),
            fix="" if enough else _("Free disk space in the data directory."),
        )
    ]
