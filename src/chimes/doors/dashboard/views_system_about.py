"""About: whose work is in here, and what helps somebody who helps; nothing here asks a store."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files

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
    text = (files("chimes.doors.dashboard") / "static" / "vendor" / "VENDOR.toml").read_text(
        "utf-8"
    )
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
