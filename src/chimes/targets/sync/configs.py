"""What the drivers `python` and `command` are told by the `config` of their sources; pure. Read at
the start of a node, and once more in the process of each task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from chimes.errors import ConfigError
from chimes.targets.sync.sections import Section
from chimes.wording import say

#: `package.module:function`; the function may be an attribute of an object.
_CALLABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PREFIX = "CHIMES_"

PLAIN, SINGER = "plain", "singer"


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonConfig:
    #: `module:function`.
    callable: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandConfig:
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Relative to the file; empty: where the file lies.
    cwd: str = ""
    #: How standard output is read: `plain` lines, or the messages of a `singer` tap.
    format: str = PLAIN
    #: JSON Lines file that the records of a tap are appended to; empty: they are only counted.
    output: str = ""


def read_python(config: Section) -> PythonConfig:
    """The function is given all of `config`, so it may have any keys."""
    found = config.need("callable", config.text)
    if not _CALLABLE.fullmatch(found):
        raise config.wrong("callable", say("module:function, such as shop.orders:sync"))
    return PythonConfig(callable=found)


def read_command(config: Section) -> CommandConfig:
    """Besides these keys it may have any others: the command reads them in CHIMES_CONFIG_FILE."""
    if isinstance(config.plain.get("command"), str):
        raise ConfigError(
            say(
                "{at}: expected a list, such as [tap-shop, --all]; what a shell "
                'is to read is written [sh, -c, "…"]',
                at=config.at("command"),
            ),
            key=config.at("command"),
        )
    command = config.need("command", config.texts)
    if not command[0].strip():
        raise ConfigError(
            say("{at}[0]: names no program", at=config.at("command")), key=config.at("command")
        )
    how = config.choice("format", (PLAIN, SINGER)) or PLAIN
    output = config.text("output") or ""
    if output and how != SINGER:
        raise ConfigError(
            say(
                "{at}: records are only written for format: {format}",
                at=config.at("output"),
                format=SINGER,
            ),
            key=config.at("output"),
        )
    return CommandConfig(
        command=command,
        env=_environment(config.section("env")),
        cwd=config.text("cwd") or "",
        format=how,
        output=output,
    )


def _environment(section: Section | None) -> Mapping[str, str]:
    if section is None:
        return {}
    for name in section:
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(
                say("{path}: {name!r} is no name of a variable", path=section.path, name=name[:64])
            )
        if name.startswith(_OWN_PREFIX):
            raise ConfigError(
                say(
                    "{at}: variables that begin with {prefix} are set by Chimes",
                    at=section.at(name),
                    prefix=_OWN_PREFIX,
                ),
                key=section.at(name),
            )
    return {name: section.scalar(name) or "" for name in section}
