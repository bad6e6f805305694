"""Settings from flags, environment, `chimes.yaml` and defaults, in this order of precedence."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from chimes.config.location import masked_store_url, resolve_store_url, store_secrets
from chimes.config.settings import FIELDS, SPELLINGS, Expected, Field, Settings
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.redaction import HIDDEN
from chimes.triggers import format_duration_go as format_duration_go_shown
from chimes.triggers.duration import format_duration_go

FILE_NAME = "chimes.yaml"
FILE_VARIABLE = "CHIMES_CONFIG"
DEFAULT = _("default")
#: Kubernetes sets CHIMES_PORT=tcp://10.0.0.1:7100 in every pod beside a service called chimes.
SERVICE_LINK = "tcp://"

# The readers of the table answer with the type of their field, which mypy cannot see.
_build: Callable[..., Settings] = Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSettings:
    settings: Settings
    #: For each field where its value came from: `default`, `environment CHIMES_STORE`,
    #: `file chimes.yaml`, `flag --store`.
    origins: Mapping[str, str]
    file: Path | None = None
    #: Parts of the file that are read later, by those who know them.
    sources: object = None
    schedules: object = None
    #: What the operator should hear, such as a file that others can read (S63).
    warnings: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in a log or an answer."""
        found: list[str] = []
        for field in FIELDS.values():
            value = getattr(self.settings, field.name)
            if field.secret and isinstance(value, tuple):
                found.extend(each for _unused, each in value)
            elif field.secret and value:
                found.append(str(value))
            elif field.secret_part and value:
                found.extend(store_secrets(str(value)))
        return tuple(found)


def load_settings(
    *,
    flags: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> LoadedSettings:
    """Raises ConfigError that names the key, what was expected and what was given.

    A flag that is None was not given. The file is `config_file`, else the one that CHIMES_CONFIG
    names, else `chimes.yaml` in the data directory, else in the working directory.
    """
    environment = os.environ if environ is None else environ
    values: dict[str, object] = {}
    origins: dict[str, str] = {field.name: DEFAULT for field in fields(Settings)}
    for field in FIELDS.values():
        _from_environment(field, environment, values, origins)
    for name, given in flags.items():
        if given is not None:
            field = FIELDS[name]
            origins[name] = _("flag {option}", option=field.option)
            values[name] = _value(field, given, origins[name])
    file = _file(config_file, environment, values)
    loaded = LoadedSettings(settings=Settings(), origins=origins, file=file)
    if file is not None:
        loaded = _from_file(file, values, origins, loaded)
    settings = _build(**values)
    _check_heartbeat(settings, origins)
    warnings = (*loaded.warnings, *_key_file_warnings(settings))
    return replace(loaded, settings=settings, origins=MappingProxyType(origins), warnings=warnings)


def _from_environment(
    field: Field,
    environment: Mapping[str, str],
    values: dict[str, object],
    origins: dict[str, str],
) -> None:
    for variable in field.variables:
        # An empty variable is how a compose file says "not set".
        given = environment.get(variable, "")
        if given and not (field.name == "port" and given.startswith(SERVICE_LINK)):
            if field.file_only:
                raise ConfigError(
                    _(
                        "{variable} is not read from the environment: {field} may only be set "
                        "in {file_name}",
                        variable=variable,
                        field=field.name,
                        file_name=FILE_NAME,
                    ),
                    key=field.name,
                )
            origins[field.name] = _("environment {variable}", variable=variable)
            values[field.name] = _value(field, given, origins[field.name])
            return


def _value(field: Field, given: object, origin: str) -> object:
    try:
        return field.read(given)
    except Expected as wanted:
        if field.secret_part:
            given = masked_store_url(str(given))
        shown = HIDDEN if field.secret else repr(given)[:80]
        raise ConfigError(
            _(
                "{field}: expected {wanted}, got {given} ({origin})",
                field=field.name,
                wanted=wanted.args[0],
                given=shown,
                origin=origin,
            ),
            key=field.name,
        ) from None


def _check_heartbeat(settings: Settings, origins: Mapping[str, str]) -> None:
    """A lease that is renewed less than twice in its time is lost to a single late answer."""
    if settings.heartbeat is not None and settings.heartbeat > settings.lease / 2:
        lease = format_duration_go(settings.lease)
        raise ConfigError(
            _(
                "heartbeat: expected half of the lease ({lease}) or less, "
                "got {heartbeat} ({origin})",
                lease=lease,
                heartbeat=format_duration_go(settings.heartbeat),
                origin=origins["heartbeat"],
            ),
            key="heartbeat",
        )


def _file(
    named: Path | None, environment: Mapping[str, str], values: Mapping[str, object]
) -> Path | None:
    told = named or (Path(environment[FILE_VARIABLE]) if environment.get(FILE_VARIABLE) else None)
    if told is not None:
        if not told.is_file():
            raise ConfigError(
                _("There is no configuration file {path!r}", path=str(told)), key="config"
            )
        return told
    data_dir = values.get("data_dir", Settings().data_dir)
    assert isinstance(data_dir, Path)
    for directory in (data_dir, Path()):
        if (directory / FILE_NAME).is_file():
            return directory / FILE_NAME
    return None


def _from_file(
    file: Path, values: dict[str, object], origins: dict[str, str], loaded: LoadedSettings
) -> LoadedSettings:
    from chimes.config.file import read_file

    content = read_file(file)
    for key, given in content.values.items():
        field = FIELDS.get(key) or SPELLINGS[key]
        value = _value(field, given, _in_file(str(file), key))
        if origins[field.name] == DEFAULT:
            origins[field.name] = _in_file(file.name, key)
            values[field.name] = value
    return replace(
        loaded,
        sources=content.sources,
        schedules=content.schedules,
        warnings=content.warnings,
    )


def _in_file(file: str, key: str) -> str:
    if key in SPELLINGS:
        return _("file {file} {key}", file=file, key=key)
    return _("file {file}", file=file)


def _key_file_warnings(settings: Settings) -> tuple[str, ...]:
    if settings.auth_keys_file is None or not settings.auth_keys_file.exists():
        return ()
    from chimes.config.file import readable_by_others

    return readable_by_others(settings.auth_keys_file)


# @@ Settings as people may see them: each value as text, secrets hidden.

#: Stands for a secret that is set.
_SET = "***"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSetting:
    name: str
    value: str
    #: `default`, `environment CHIMES_STORE`, `file chimes.yaml`, `flag --store`.
    origin: str
    variables: tuple[str, ...]


def shown_settings(settings: Settings, origins: Mapping[str, str]) -> tuple[ShownSetting, ...]:
    return tuple(
        ShownSetting(
            name=name,
            value=_shown(settings, field),
            origin=origins.get(name, ""),
            variables=tuple(field.variables),
        )
        for name, field in FIELDS.items()
    )


def _shown(settings: Settings, field: Field) -> str:
    value = getattr(settings, field.name)
    if field.name == "store":
        try:
            return masked_store_url(resolve_store_url(settings))
        except ConfigError:
            return _("(cannot be used)")
    if field.secret:
        return _SET if value else ""
    if field.secret_part:
        return masked_store_url(value)
    if isinstance(value, timedelta):
        return format_duration_go_shown(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)
