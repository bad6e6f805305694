"""Reads `connections:` of `chimes.yaml`: engines, brokers and databases that the operator names.

```yaml
connections:
  tasks: {kind: celery, url: "amqp://chimes:${RABBIT_PASSWORD}@rabbit/", result_backend: "rpc://"}
  events: {kind: nats, url: "nats://chimes:{{secret.NATS}}@nats:4222", roles: [member, admin]}
```

`${NAME}` is a variable of the environment of the node, filled when the file is read. A placeholder
`{{secret.NAME}}` names a secret of `system:config`, filled when the connection is used. Values are
not repeated in messages: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from urllib.parse import quote

from chimes.config.location import masked_store_url, store_secrets
from chimes.config.settings import ACCESS_ROLES
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.redaction import secret_placeholders
from chimes.triggers.values import suggest_name

#: URL schemes of each kind.
SCHEMES: Mapping[str, tuple[str, ...]] = {
    "celery": ("amqp", "amqps", "pyamqp", "redis", "rediss"),
    "amqp": ("amqp", "amqps"),
    "nats": ("nats", "tls"),
    "kafka": ("kafka", "kafkas"),
    "redis": ("redis", "rediss"),
    "sql": ("sqlite", "postgresql", "postgres", "mariadb", "mysql"),
    "dask": ("tcp", "tls"),
    "kubernetes": ("http", "https"),
}
KINDS = tuple(SCHEMES)
#: Keys of each kind besides those of every connection.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "celery": ("result_backend", "queue"),
    "redis": ("max_length",),
    "kafka": ("sasl_mechanism", "username", "password"),
    "kubernetes": ("namespace", "allow_manifest", "token", "token_file", "ca_file"),
}
_EVERY = ("kind", "url", "roles", "allow")
_NOT_TEXTS = ("kind", "roles", "allow", "max_length", "allow_manifest")
#: Names are parts of requirements, which are stored in a column of limited length.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
MAX_CONNECTIONS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """One named connection. `url` and the other texts may have placeholders of secrets."""

    name: str
    kind: str
    url: str = field(repr=False)
    #: Roles that may create schedules with it.
    roles: tuple[str, ...] = ("admin",)
    #: Patterns of the names that may be used: tasks, exchanges, subjects, streams, topics,
    #: functions, images; empty: any.
    allow: tuple[str, ...] = ()
    #: celery: where results are; empty: `rpc://` on RabbitMQ, the broker itself on Redis.
    result_backend: str = field(default="", repr=False)
    #: celery: the queue of targets that name none; empty: that of Celery.
    queue: str = ""
    #: redis: the approximate length at which streams are cut; 0: never.
    max_length: int = 0
    #: kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, with its credentials.
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    #: kubernetes.
    namespace: str = "default"
    #: Whether others than admins may use other namespaces and the field `manifest`.
    allow_manifest: bool = False
    token: str = field(default="", repr=False)
    #: Read for each request, because Kubernetes replaces it.
    token_file: str = ""
    ca_file: str = ""

    @property
    def capability(self) -> str:
        """What a node with this connection offers, and what a run requires."""
        return connection_requirement(self.kind, self.name)

    @property
    def display(self) -> str:
        """The URL without its password."""
        return masked_store_url(self.url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in logs, results or responses."""
        urls = [each for url in (self.url, self.result_backend) for each in store_secrets(url)]
        return tuple(each for each in (*urls, self.password, self.token) if each)

    @property
    def secret_names(self) -> frozenset[str]:
        """The secrets of `system:config` that its texts name."""
        pattern = secret_placeholders()
        return frozenset(name for text in self._texts().values() for name in pattern.findall(text))

    def allows(self, name: str) -> bool:
        return not self.allow or any(fnmatchcase(name, pattern) for pattern in self.allow)

    def filled(self, secrets: Mapping[str, str]) -> Connection:
        """With the values of the secrets; in URLs they are escaped."""
        if not self.secret_names:
            return self
        pattern = secret_placeholders()

        def fill(text: str, *, url: bool) -> str:
            def value(found: re.Match[str]) -> str:
                given = secrets.get(found[1], found[0])
                return quote(given, safe="") if url and found[1] in secrets else given

            return pattern.sub(value, text)

        texts = self._texts().items()
        return replace(
            self,
            **{name: fill(text, url=name in ("url", "result_backend")) for name, text in texts},  # type: ignore[arg-type] # only texts
        )

    def _texts(self) -> dict[str, str]:
        names = ("url", "result_backend", "username", "password", "token")
        return {name: getattr(self, name) for name in names}


def connection_requirement(kind: str, name: str) -> str:
    """The capability of nodes that have this connection, such as `celery:tasks`."""
    return f"{kind}:{name}"


def read_connections(section: object, environ: Mapping[str, str]) -> tuple[Connection, ...]:
    """The section `connections:` of the file. ConfigError names the key and what was expected."""
    if section is None:
        return ()
    given = _mapping(section, "connections")
    if len(given) > MAX_CONNECTIONS:
        raise _error("connections", _("at most {most} connections", most=MAX_CONNECTIONS))
    return tuple(_connection(name, value, environ) for name, value in given.items())


def _connection(name: str, value: object, environ: Mapping[str, str]) -> Connection:
    path = f"connections.{name[:64]}"
    if not _NAME.fullmatch(name):
        raise _error(path, _("a name of up to 64 letters, digits, `_`, `.` and `-`"))
    given = _mapping(value, path)
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise _error(
            f"{path}.kind",
            _("one of {known}", known=", ".join(KINDS)),
            suggest_name(str(kind), KINDS) if isinstance(kind, str) else None,
        )
    known = (*_EVERY, *OPTIONS.get(kind, ()))
    for key in given:
        if key not in known:
            raise _error(
                f"{path}.{key[:64]}",
                _("one of the keys {known}", known=", ".join(known)),
                suggest_name(key, known),
            )
    texts = {
        each.name: _text(given[each.name], f"{path}.{each.name}", environ)
        for each in fields(Connection)
        if each.name in given and each.name not in _NOT_TEXTS
    }
    url = texts.pop("url", "")
    scheme, mark, rest = url.partition("://")
    schemes = SCHEMES[kind]
    if not mark or not rest or scheme.partition("+")[0] not in schemes:
        expected = ", ".join(f"{each}://…" for each in schemes)
        raise _error(f"{path}.url", _("a URL such as {expected}", expected=expected))
    return Connection(
        name=name,
        kind=kind,
        url=url,
        roles=_roles(given.get("roles"), f"{path}.roles"),
        allow=_names(given.get("allow"), f"{path}.allow"),
        max_length=_count(given.get("max_length"), f"{path}.max_length"),
        allow_manifest=_flag(given.get("allow_manifest"), f"{path}.allow_manifest"),
        **texts,
    )


def _roles(value: object, path: str) -> tuple[str, ...]:
    found = _names(value, path) or ("admin",)
    if not {*found} <= {*ACCESS_ROLES}:
        raise _error(path, _("a list of {known}", known=", ".join(ACCESS_ROLES)))
    return found


def _names(value: object, path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise _error(path, _("a list of texts"))
    return tuple(value)


def _count(value: object, path: str) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**9:
        raise _error(path, _("a whole number between {least} and {most}", least=1, most=10**9))
    return value


def _flag(value: object, path: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _error(path, _("true or false"))
    return bool(value)


def _text(value: object, path: str, environ: Mapping[str, str]) -> str:
    if not isinstance(value, str) or not value.strip() or any(ord(each) < 32 for each in value):
        raise _error(path, _("text without control characters"))

    def variable(found: re.Match[str]) -> str:
        if not environ.get(found[1]):
            raise _error(path, _("the environment variable {name} to be set", name=found[1]))
        return environ[found[1]]

    return _VARIABLE.sub(variable, value.strip())


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise _error(path, _("`key: value`"))
    return value


def _error(path: str, expected: str, hint: str | None = None) -> ConfigError:
    message = _("{path}: expected {expected}", path=path, expected=expected)
    return ConfigError(
        _("{message}; {hint}", message=message, hint=hint) if hint else message, key=path
    )


def find_connection(
    connections: Collection[Connection], name: str, *kinds: str
) -> Connection | None:
    """The connection of this name, if it is of one of the kinds."""
    return next((each for each in connections if each.name == name and each.kind in kinds), None)
