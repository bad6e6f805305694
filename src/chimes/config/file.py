"""Reads `chimes.yaml` with a safe and strict YAML loader."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import yaml

from chimes.config.location import store_secrets
from chimes.config.settings import FIELDS, FILE_ALIASES
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.triggers.values import suggest_name

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
#: Code of the ConfigError for a file that is unsafe to read; commands exit with 6.
UNSAFE = "unsafe_file"

_RESERVED = ("sources", "schedules", "connections")
_NESTED = {"egress": "egress_"}
#: Names of EventNative, by their path in the file.
_SERVER = "server"
_EVENTNATIVE = {
    "server.admin_token": "admin_token",
    "server.port": "port",
    "server.sync_tasks.pool.size": "sync_workers",
    "server.sync_tasks.store_logs.last_runs": "sync_log_runs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileContent:
    #: By name or alternative name of a setting; its own name comes first.
    values: Mapping[str, object] = field(default_factory=dict)
    sources: object = None
    schedules: object = None
    connections: object = None
    warnings: tuple[str, ...] = ()


def read_file(file: Path) -> FileContent:
    """The settings in the file, not yet validated."""
    data = _parsed(file)
    if data is None:
        return FileContent()
    if not isinstance(data, dict):
        raise ConfigError(
            _(
                "{file}: expected settings as `key: value`, got {type}",
                file=file,
                type=type(data).__name__,
            )
        )
    values: dict[str, object] = {}
    for key, value in (_flat(data) | _eventnative_settings(file, data.get(_SERVER))).items():
        name = str(key).replace("-", "_")
        if name in (*_RESERVED, _SERVER):
            continue
        if name not in FIELDS and name not in FILE_ALIASES:
            raise _unknown_key(file, key)
        if value is not None:
            values[name] = value
    secret = any(_secret(name, value) for name, value in values.items()) or _any_password(
        data.get("connections")
    )
    return FileContent(
        values={name: values[name] for name in (*FIELDS, *FILE_ALIASES) if name in values},
        sources=data.get("sources"),
        schedules=data.get("schedules"),
        connections=data.get("connections"),
        warnings=readable_by_others(file) if secret else (),
    )


def _secret(name: str, value: object) -> bool:
    field = FIELDS.get(name) or FILE_ALIASES[name]
    return field.secret or (field.secret_part and bool(store_secrets(str(value))))


def _any_password(connections: object) -> bool:
    """Whether a connection has a password or token in the file itself."""
    if not isinstance(connections, dict):
        return False
    return any(
        not text.startswith(("${", "{{")) and (name != "url" or bool(store_secrets(text)))
        for each in connections.values()
        if isinstance(each, dict)
        for name, text in each.items()
        if name in ("url", "password", "token") and isinstance(text, str)
    )


def readable_by_others(file: Path) -> tuple[str, ...]:
    """A warning if other users of this machine own the file or can read it."""
    status = file.stat()
    if os.name != "posix":
        return ()
    if status.st_uid not in (os.geteuid(), 0):
        return (_("{file} belongs to another user; change its owner", file=file),)
    if stat.S_IMODE(status.st_mode) & 0o077:
        return (
            _(
                "other users of this machine can read {file}; run: chmod 600 {file}",
                file=file,
            ),
        )
    return ()


def _flat(data: dict[object, object]) -> dict[object, object]:
    """Flattens nested sections: `egress: {allow: …}` is `egress_allow: …`."""
    found: dict[object, object] = {}
    for key, value in data.items():
        prefix = _NESTED.get(key) if isinstance(key, str) else None
        if prefix is not None and isinstance(value, dict):
            found |= {f"{prefix}{inner}": each for inner, each in value.items()}
        else:
            found[key] = value
    return found


def _eventnative_settings(file: Path, server: object) -> dict[object, object]:
    found: dict[object, object] = {}
    waiting: list[tuple[str, object]] = [] if server is None else [(_SERVER, server)]
    while waiting:
        path, value = waiting.pop()
        if path in _EVENTNATIVE:
            found[_EVENTNATIVE[path]] = value
        elif isinstance(value, dict) and any(each.startswith(f"{path}.") for each in _EVENTNATIVE):
            waiting += [(f"{path}.{inner}", each) for inner, each in value.items()]
        else:
            raise _unknown_key(file, path, tuple(_EVENTNATIVE))
    return found


def _unknown_key(file: Path, key: object, further: tuple[str, ...] = ()) -> ConfigError:
    hint = suggest_name(str(key), (*FIELDS, *FILE_ALIASES, *_RESERVED, *_NESTED, *further))
    message = _("{file}: unknown key {key!r}", file=file, key=str(key)[:64])
    return ConfigError(
        _("{message}; {hint}", message=message, hint=hint) if hint else message, key=str(key)
    )


def _parsed(file: Path) -> object:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(_("cannot read {file}: {why}", file=file, why=error.strerror)) from None
    return parsed_yaml(raw, file)


def parsed_yaml(raw: bytes, file: object) -> object:
    """Parses YAML strictly. `file` is its name in errors."""
    if len(raw) > MAX_BYTES:
        raise _unsafe(file, _("it is larger than {limit} KiB", limit=MAX_BYTES // 1024))
    try:
        _check(file, raw)
        return yaml.load(raw, Loader=_Loader)  # noqa: S506 - a SafeLoader, see below
    except yaml.constructor.ConstructorError as error:
        raise _unsafe(file, _where(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(
            _("{file} is not valid YAML: {why}", file=file, why=_where(error))
        ) from None


#: What `read_schedules` reads.
SCHEDULES = "schedules"


def read_schedules(raw: bytes, file: object) -> dict[str, object] | None:
    """The section `schedules` of a file that has nothing else, by name, as JSON values. None: it is
    another file, such as a configuration. Raises ConfigError."""
    data = parsed_yaml(raw, file)
    if not isinstance(data, dict) or {*data} != {SCHEDULES}:
        return None
    return schedules_of(data[SCHEDULES], file)


def schedules_of(section: object, file: object) -> dict[str, object]:
    """The section `schedules` as JSON values: times that YAML has parsed become text again."""
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(
            _(
                "{file}: expected schedules by name, `schedules: {{NAME: …}}`, got {type}",
                file=file,
                type=type(section).__name__,
            ),
            key=SCHEDULES,
        )
    found = json_value(section, file)
    assert isinstance(found, dict)
    return found


def json_value(value: object, file: object) -> object:
    """A value of YAML as JSON has it. ConfigError for a key that is no text."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(
                    _("{file}: the key {key!r} is no text; put it in quotes", file=file, key=key),
                    key=str(key),
                )
        return {key: json_value(each, file) for key, each in value.items()}
    if isinstance(value, list):
        return [json_value(each, file) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigError(
        _("{file}: {type} is no value for a schedule", file=file, type=type(value).__name__)
    )


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text.rstrip("\n") and text == text.rstrip(" ") else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def to_yaml(value: object) -> str:
    """YAML in the order of the fields, which `parsed_yaml` reads back."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _check(file: object, raw: bytes) -> None:
    """Rejects aliases, which can expand exponentially, and deep nesting, before building values."""
    depth = 0
    for event in yaml.parse(raw, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _unsafe(
                file,
                _("it contains the alias *{anchor}; write the value instead", anchor=event.anchor),
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _unsafe(file, _("it is nested more than {limit} levels deep", limit=MAX_DEPTH))


def _unsafe(file: object, why: str) -> ConfigError:
    return ConfigError(_("{file} is unsafe to read: {why}", file=file, why=why), code=UNSAFE)


def _where(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error).splitlines()[0]
    mark = error.problem_mark
    return _(
        "line {line}, column {column}: {problem}",
        line=mark.line + 1,
        column=mark.column + 1,
        problem=error.problem,
    )


_BOOL, _INT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int"


def _keep_text(node: yaml.Node, tag: str, *, having: str = "") -> None:
    """Keeps the text of a scalar that YAML 1.1 would convert."""
    if isinstance(node, yaml.ScalarNode) and node.tag == tag and having in node.value:
        node.tag = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """The safe loader, which also rejects duplicate keys and two conversions of YAML 1.1: a key
    `on` is not a boolean, and 22:00 is not a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, value_node in node.value:
            _keep_text(key_node, _BOOL)
            _keep_text(value_node, _INT, having=":")
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=_("duplicate key {key!r}", key=key),
                    problem_mark=key_node.start_mark,
                )
            seen.add(key)
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found
