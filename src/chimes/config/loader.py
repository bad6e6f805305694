"""Settings from flags, environment, `chimes.yaml` and defaults, in this order of precedence."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from chimes.config.location import masked_store_url, resolve_store_url, store_secrets
from chimes.config.settings import FIELDS, FILE_ALIASES, Expected, Field, Settings
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.redaction import HIDDEN
from chimes.triggers.values import format_duration_go

FILE_NAME = "chimes.yaml"
FILE_VARIABLE = "CHIMES_CONFIG"
#: Characters; a shorter key can be guessed.
MIN_AUDIT_KEY = 16
DEFAULT = _("default")
#: Kubernetes sets CHIMES_PORT=tcp://10.0.0.1:7100 in every pod beside a service called chimes. Such
#: a value is not the setting.
SERVICE_LINK = "tcp://"

# `Field.read` returns the type of its field, which mypy cannot infer.
_untyped_settings: Callable[..., Settings] = Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSettings:
    settings: Settings
    #: Origin of each value by field: `default`, `environment CHIMES_STORE`,
    #: `file chimes.yaml`, `flag --store`.
    origins: Mapping[str, str]
    file: Path | None = None
    #: Sections of the file that are parsed later, where they are used.
    sources: object = None
    schedules: object = None
    #: Warnings for the operator, such as a secret file that other users can read.
    warnings: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in logs or responses."""
        found: list[str] = []
        for field in FIELDS.values():
            value = getattr(self.settings, field.name)
            if field.secret and isinstance(value, tuple):
                found.extend(each for _name, each in value)
            elif field.secret and value:
                found.append(str(value))
            elif field.secret_part and value:
                found.extend(store_secrets(str(value)))
        for connection in self.settings.connections:
            found.extend(connection.secrets)
        return tuple(found)


def load_settings(
    *,
    flags: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> LoadedSettings:
    """Loads the settings. ConfigError names the key, the expected and the given value.

    A flag whose value is None was not given. The file is `config_file`, or CHIMES_CONFIG, or
    `chimes.yaml` in the data directory or the working directory.
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
            values[name] = _parse_value(field, given, origins[name])
    file = _find_file(config_file, environment, values)
    loaded = LoadedSettings(settings=Settings(), origins=origins, file=file)
    if file is not None:
        loaded = _from_file(file, values, origins, loaded, environment)
    settings = _untyped_settings(**values)
    _check_heartbeat(settings, origins)
    _check_audit_key(settings, origins)
    warnings = (*loaded.warnings, *_key_file_warnings(settings))
    return replace(loaded, settings=settings, origins=MappingProxyType(origins), warnings=warnings)


def _from_environment(
    field: Field,
    environment: Mapping[str, str],
    values: dict[str, object],
    origins: dict[str, str],
) -> None:
    for variable in field.variables:
        # Compose files set variables to empty to leave them unset.
        given = environment.get(variable, "")
        if given and not (field.name == "port" and given.startswith(SERVICE_LINK)):
            if field.file_only:
                raise ConfigError(
                    _(
                        "{variable} cannot be set in the environment: set {field} in {file_name}",
                        variable=variable,
                        field=field.name,
                        file_name=FILE_NAME,
                    ),
                    key=field.name,
                )
            origins[field.name] = _("environment {variable}", variable=variable)
            values[field.name] = _parse_value(field, given, origins[field.name])
            return


def _parse_value(field: Field, given: object, origin: str) -> object:
    try:
        return field.read(given)
    except Expected as expected:
        if field.secret_part:
            given = masked_store_url(str(given))
        masked = HIDDEN if field.secret else repr(given)[:80]
        raise ConfigError(
            _(
                "{field}: expected {wanted}, got {given} ({origin})",
                field=field.name,
                wanted=expected.args[0],
                given=masked,
                origin=origin,
            ),
            key=field.name,
        ) from None


def _check_heartbeat(settings: Settings, origins: Mapping[str, str]) -> None:
    """A lease that is renewed less than twice per period is lost by one late heartbeat."""
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


def _check_audit_key(settings: Settings, origins: Mapping[str, str]) -> None:
    """Without a key the checkpoint of pruned audit entries could be forged by everyone who can
    write to the store."""
    if settings.audit_retention is not None and len(settings.audit_key) < MIN_AUDIT_KEY:
        raise ConfigError(
            _(
                "audit_retention ({origin}) needs audit_key: expected at least {length} characters",
                origin=origins["audit_retention"],
                length=MIN_AUDIT_KEY,
            ),
            key="audit_key",
        )


def _find_file(
    config_file: Path | None, environment: Mapping[str, str], values: Mapping[str, object]
) -> Path | None:
    given = config_file or (
        Path(environment[FILE_VARIABLE]) if environment.get(FILE_VARIABLE) else None
    )
    if given is not None:
        if not given.is_file():
            raise ConfigError(
                _("configuration file {path!r} does not exist", path=str(given)), key="config"
            )
        return given
    data_dir = values.get("data_dir", Settings().data_dir)
    assert isinstance(data_dir, Path)
    for directory in (data_dir, Path()):
        if (directory / FILE_NAME).is_file():
            return directory / FILE_NAME
    return None


def _from_file(
    file: Path,
    values: dict[str, object],
    origins: dict[str, str],
    loaded: LoadedSettings,
    environment: Mapping[str, str],
) -> LoadedSettings:
    from chimes.config.file import read_file

    content = read_file(file)
    for key, given in content.values.items():
        field = FIELDS.get(key) or FILE_ALIASES[key]
        value = _parse_value(field, given, _file_origin(str(file), key))
        if origins[field.name] == DEFAULT:
            origins[field.name] = _file_origin(file.name, key)
            values[field.name] = value
    if content.connections is not None:
        from chimes.config.connections import read_connections

        values["connections"] = read_connections(content.connections, environment)
        origins["connections"] = _file_origin(file.name, "connections")
    return replace(
        loaded,
        sources=content.sources,
        schedules=content.schedules,
        warnings=content.warnings,
    )


def _file_origin(file: str, key: str) -> str:
    if key in FILE_ALIASES:
        return _("file {file} {key}", file=file, key=key)
    return _("file {file}", file=file)


def _key_file_warnings(settings: Settings) -> tuple[str, ...]:
    if settings.auth_keys_file is None or not settings.auth_keys_file.exists():
        return ()
    from chimes.config.file import readable_by_others

    return readable_by_others(settings.auth_keys_file)


# --- settings as text -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingView:
    """A setting as text, with secrets masked."""

    name: str
    value: str
    #: `default`, `environment CHIMES_STORE`, `file chimes.yaml`, `flag --store`.
    origin: str
    variables: tuple[str, ...]


def describe_settings(settings: Settings, origins: Mapping[str, str]) -> tuple[SettingView, ...]:
    return tuple(
        SettingView(
            name=name,
            value=_value_text(settings, field),
            origin=origins.get(name, ""),
            variables=tuple(field.variables),
        )
        for name, field in FIELDS.items()
    )


def _value_text(settings: Settings, field: Field) -> str:
    value = getattr(settings, field.name)
    if field.name == "store":
        try:
            return masked_store_url(resolve_store_url(settings))
        except ConfigError:
            return _("(invalid)")
    if field.secret:
        return HIDDEN if value else ""
    if field.secret_part:
        return masked_store_url(value)
    if isinstance(value, timedelta):
        return format_duration_go(value)
    if isinstance(value, tuple):
        # A mapping is shown as the environment has it.
        return ",".join(each if isinstance(each, str) else "=".join(each) for each in value)
    return "" if value is None else str(value)
