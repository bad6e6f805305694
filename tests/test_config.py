"""Settings: names, precedence, origins, errors, and where the store is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.config import (
    ROLES,
    Settings,
    load_settings,
    masked_store_url,
    resolve_store_url,
    store_location,
)
from chimes.config.loader import describe_settings
from chimes.config.settings import FIELDS
from chimes.errors import ConfigError
from tests.tables import each_row


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settings(environ: Mapping[str, str] | None = None, **flags: object) -> Settings:
    return load_settings(environ=environ or {}, flags=flags).settings


def from_yaml(text: str | bytes, environ: Mapping[str, str] | None = None) -> Settings:
    raw = text.encode() if isinstance(text, str) else text
    Path("chimes.yaml").write_bytes(raw)
    return load_settings(environ=environ or {}).settings


def test_fields_table_lists_exactly_the_settings() -> None:
    # Connections are a section of the file and have no variable or option.
    assert [*FIELDS, "connections"] == [field.name for field in fields(Settings)]


def test_all_values_default_without_configuration() -> None:
    loaded = load_settings(environ={})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.file is None


def test_default_values() -> None:
    found = settings()
    assert (found.host, found.port, found.data_dir) == ("127.0.0.1", 7100, Path("data"))
    assert found.default_timeout == timedelta(seconds=10)
    assert (found.max_retries, found.retry_backoff) == (3, timedelta(seconds=5))
    assert found.log_level == "info"


ENVIRONMENT = [
    ("CHIMES_STORE", "json", "store", "json"),
    ("CHIMES_DATA_DIR", "/srv/a", "data_dir", Path("/srv/a")),
    ("DATA_DIR", "/srv/a", "data_dir", Path("/srv/a")),
    # Bare numbers are seconds
    ("SOFTNIX_SCHEDULER_ENABLED", "false", "softnix_scheduler_enabled", False),
    ("SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC", "15", "dispatch_tick", timedelta(seconds=15)),
    ("SOFTNIX_SCHEDULER_POLL_INTERVAL_SEC", "0.5", "poll_interval", timedelta(seconds=0.5)),
    ("SOFTNIX_SCHEDULER_MAX_DISPATCH_PER_TICK", "20", "max_dispatch_per_tick", 20),
    ("SOFTNIX_SCHEDULER_DEFAULT_TIMEZONE", "UTC", "softnix_default_timezone", "UTC"),
    ("SOFTNIX_SCHEDULER_MAX_ACTIVE_PER_OWNER", "20", "max_active_per_owner", 20),
    ("SOFTNIX_SCHEDULER_RETRY_MAX_ATTEMPTS", "5", "dispatch_attempts", 5),
    ("SOFTNIX_SCHEDULER_RETRY_BACKOFF_SEC", "7", "dispatch_backoff", timedelta(seconds=7)),
    ("SOFTNIX_TELEGRAM_RATE_LIMIT_PER_MINUTE", "60", "telegram_per_minute", 60),
    ("CHIMES_TELEGRAM_ALLOWED_CHATS", "42,-1001", "telegram_allowed_chats", ("42", "-1001")),
    ("KSANA_DATA", "/srv/a", "data_dir", Path("/srv/a")),
    ("CHIMES_HOST", "::1", "host", "::1"),
    ("CHIMES_PORT", "8080", "port", 8080),
    ("PORT", "0", "port", 0),
    ("CHIMES_ROLES", "worker, api", "roles", ("api", "worker")),
    ("WORKERS", "16", "workers", 16),
    ("DEFAULT_TIMEOUT", "1m30s", "default_timeout", timedelta(seconds=90)),
    ("MAX_RETRIES", "0", "max_retries", 0),
    ("RETRY_BACKOFF", "PT2S", "retry_backoff", timedelta(seconds=2)),
    ("RETRY_BACKOFF", "0s", "retry_backoff", timedelta(0)),
    ("LOG_LEVEL", "WARN", "log_level", "warning"),
    ("CHIMES_LOG_FORMAT", "JSON", "log_format", "json"),
    ("CHIMES_DEFAULT_TIMEZONE", "Asia/Bangkok", "default_timezone", "Asia/Bangkok"),
    ("CHIMES_ALLOW_PRIVATE_TARGETS", "yes", "allow_private_targets", True),
    ("CHIMES_ALLOW_PRIVATE_TARGETS", "0", "allow_private_targets", False),
    ("CHIMES_EGRESS_ALLOW", "10.0.0.0/8:443,ci:80", "egress_allow", ("10.0.0.0/8:443", "ci:80")),
    ("CHIMES_CORS_ORIGINS", "https://a.example", "cors_origins", ("https://a.example",)),
    ("CHIMES_ADMIN_TOKEN", "hush", "admin_token", "hush"),
    ("AUTH_KEYS_FILE", "keys.txt", "auth_keys_file", Path("keys.txt")),
    ("CHIMES_REQUESTS_PER_SECOND", "2.5", "requests_per_second", 2.5),
    ("CHIMES_LEASE", "20s", "lease", timedelta(seconds=20)),
    ("CHIMES_HEARTBEAT", "2s", "heartbeat", timedelta(seconds=2)),
    ("CHIMES_APP", "shop.jobs:app", "app", "shop.jobs:app"),
    ("CHIMES_USE_DB_DRIVEN_SCHEDULING", "no", "use_db_driven_scheduling", False),
    ("CHIMES_RETENTION", "P30D", "retention", timedelta(days=30)),
    ("CHIMES_AUDIT_KEY", "a key of many letters", "audit_key", "a key of many letters"),
]


@each_row(("variable", "given", "field", "wanted"), ENVIRONMENT)
def test_environment_variables(variable: str, given: str, field: str, wanted: object) -> None:
    loaded = load_settings(environ={variable: given})
    assert getattr(loaded.settings, field) == wanted
    assert loaded.origins[field] == f"environment {variable}"


def test_precedence_of_data_dir_variables() -> None:
    both = {"KSANA_DATA": "k", "DATA_DIR": "d"}
    assert settings(both).data_dir == Path("d")
    assert settings(both | {"CHIMES_DATA_DIR": "c"}).data_dir == Path("c")


def test_empty_variable_counts_as_unset() -> None:
    assert load_settings(environ={"PORT": "", "CHIMES_PORT": ""}).origins["port"] == "default"


def test_kubernetes_service_link_variable_is_ignored() -> None:
    assert settings({"CHIMES_PORT": "tcp://10.0.0.1:7100"}).port == 7100
    assert settings({"CHIMES_PORT": "tcp://10.0.0.1:7100", "PORT": "8080"}).port == 8080


def test_flags_over_environment_over_file_over_default() -> None:
    Path("chimes.yaml").write_text("port: 1\nhost: localhost\nlog_level: error\n")
    loaded = load_settings(
        flags={"port": "3", "store": None}, environ={"PORT": "2", "LOG_LEVEL": "debug"}
    )
    assert loaded.settings.port == 3
    assert loaded.settings.log_level == "debug"
    assert loaded.settings.host == "localhost"
    assert loaded.origins["port"] == "flag --port"
    assert loaded.origins["log_level"] == "environment LOG_LEVEL"
    assert loaded.origins["host"] == "file chimes.yaml"
    assert loaded.origins["store"] == "default"


def test_file_search_order(tmp_path: Path) -> None:
    for name in ("named", "variable", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chimes.yaml").write_text(f"host: {name}.example\n")
    Path("chimes.yaml").write_text("host: here.example\n")
    variable = {"CHIMES_CONFIG": str(tmp_path / "variable/chimes.yaml")}
    named = load_settings(environ=variable, config_file=tmp_path / "named/chimes.yaml")
    assert named.settings.host == "named.example"
    assert settings(variable).host == "variable.example"
    assert settings().host == "data.example"
    assert settings(data_dir="elsewhere").host == "here.example"
    assert load_settings(environ={}).file == Path("data/chimes.yaml")


def test_missing_config_file_named_explicitly_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml"):
        load_settings(environ={}, config_file=tmp_path / "nothing.yaml")


def test_file_accepts_eventnative_setting_names(tmp_path: Path) -> None:
    file = tmp_path / "chimes.yaml"
    file.write_text(
        "server:\n  admin_token: secret-token\n  port: 8001\n"
        "  sync_tasks: {pool: {size: 4}, store_logs: {last_runs: 10}}\n"
    )
    file.chmod(0o600)
    found = load_settings(environ={}, config_file=file).settings
    assert (found.admin_token, found.port) == ("secret-token", 8001)
    assert (found.sync_workers, found.sync_log_runs) == (4, 10)


def test_file_accepts_yaml_types_nested_egress_and_dashed_keys() -> None:
    found = from_yaml(
        "data-dir: /srv/x\nport: 81\nroles: [worker]\nworkers: 5\nretry_backoff: 3s\n"
        "egress:\n  allow: ['ci.corp.example:8080']\n  allow_metadata: true\n"
        "requests_per_second: 5\nhost:\n"
    )
    assert found == Settings(
        data_dir=Path("/srv/x"),
        port=81,
        roles=("worker",),
        workers=5,
        retry_backoff=timedelta(seconds=3),
        egress_allow=("ci.corp.example:8080",),
        egress_allow_metadata=True,
        requests_per_second=5.0,
    )


def test_sources_and_schedules_are_returned_unparsed() -> None:
    Path("chimes.yaml").write_text("sources: {a: {b: 1}}\nschedules: [x]\n")
    loaded = load_settings(environ={})
    assert loaded.sources == {"a": {"b": 1}}
    assert loaded.schedules == ["x"]
    assert loaded.settings == Settings()


def test_empty_file_is_accepted() -> None:
    assert from_yaml("# nothing yet\n") == Settings()


BAD = [
    ({"PORT": "http"}, r"port: expected a whole number between 0 and 65535, got 'http'"),
    ({"PORT": "70000"}, r"port: .*65535, got '70000' \(environment PORT\)"),
    ({"PORT": "-1"}, "port"),
    ({"PORT": "٣"}, "port"),
    ({"WORKERS": "0"}, "workers: expected a whole number between 1"),
    ({"DEFAULT_TIMEOUT": "10"}, "default_timeout: expected a duration .*add a unit: 10s"),
    ({"DEFAULT_TIMEOUT": "0s"}, "default_timeout: expected a duration of 1ms or more"),
    ({"RETRY_BACKOFF": "-5s"}, "retry_backoff: expected a duration"),
    ({"CHIMES_HEARTBEAT": "10"}, "heartbeat: expected a duration .*add a unit: 10s"),
    (
        {"CHIMES_LEASE": "10s", "CHIMES_HEARTBEAT": "6s"},
        r"heartbeat: expected half of the lease \(10s\) or less, got 6s \(environment CHIMES_HEART",
    ),
    (
        {"CHIMES_AUDIT_RETENTION": "8760h"},
        r"audit_retention \(environment CHIMES_AUDIT_RETENTION\) needs audit_key: .*16 characters",
    ),
    ({"CHIMES_AUDIT_RETENTION": "8760h", "CHIMES_AUDIT_KEY": "too short"}, "at least 16 char"),
    ({"CHIMES_AUDIT_RETENTION": "1h"}, "audit_retention: expected a duration of 24h0m0s or more"),
    ({"CHIMES_USE_DB_DRIVEN_SCHEDULING": "x"}, "use_db_driven_scheduling: expected true or false"),
    ({"CHIMES_LEASE": "2h"}, "lease: expected a duration of 1h0m0s or less"),
    ({"LOG_LEVEL": "inof"}, "log_level: expected one of debug, info.*did you mean info"),
    ({"CHIMES_LOG_FORMAT": "xml"}, "log_format: expected one of auto, json, text"),
    ({"CHIMES_ROLES": "api,schedular"}, "roles: .*did you mean scheduler"),
    ({"CHIMES_ROLES": " , "}, "roles: expected one or more of api"),
    ({"CHIMES_ALLOW_PRIVATE_TARGETS": "maybe"}, "allow_private_targets: expected true or false"),
    ({"CHIMES_DEFAULT_TIMEZONE": "Asia/Bankok"}, "default_timezone: .*Asia/Bangkok"),
    ({"CHIMES_REQUESTS_PER_SECOND": "nan"}, "requests_per_second: expected a number above 0"),
    ({"CHIMES_REQUESTS_PER_SECOND": "many"}, "requests_per_second: expected a number above 0"),
    ({"CHIMES_HOST": "a\nb"}, "host: expected text without control characters"),
    ({"CHIMES_EGRESS_ALLOW_METADATA": "1"}, r"set egress_allow_metadata in chimes"),
]


@each_row(("environ", "message"), BAD)
def test_error_of_a_bad_value_names_key_expectation_and_value(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environ=environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"CHIMES_ADMIN_TOKEN": "hush\x07hush"},
        {"CHIMES_STORE": "postgresql://u:hush\x07@h/db"},
        {"CHIMES_STORE": "postgresql://u@h/db?password=hush\x07"},
    ],
)
def test_error_does_not_repeat_a_bad_secret(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("postgresql://u:hush@h:5432/db", "postgresql://u:***@h:5432/db", ("hush",)),
        ("postgresql://u:a%40b@h/db", "postgresql://u:***@h/db", ("a%40b", "a@b")),
        ("mariadb://u:p/a@ss@h/db", "mariadb://u:***@h/db", ("p/a@ss",)),
        ("mariadb://u:p#?@h/db", "mariadb://u:***@h/db", ("p#?",)),
        ("postgresql://u@h/db", "postgresql://u@h/db", ()),
        ("postgresql:///db?password=hush&x=1", "postgresql:///db?password=***&x=1", ("hush",)),
        ("sqlite:///some.db", "sqlite:///some.db", ()),
        ("memory", "memory", ()),
    ],
)
def test_store_url_is_shown_without_its_password(
    url: str, shown: str, secrets: tuple[str, ...]
) -> None:
    assert masked_store_url(url) == shown
    assert load_settings(environ={"CHIMES_STORE": url}).secrets == secrets
    if "://" in url and not url.startswith("sqlite"):
        place = store_location(Settings(store=url))
        assert not any(secret in place.display for secret in secrets)


BAD_FILES = [
    ("prot: 1\n", "unknown key 'prot'; did you mean port"),
    ("1: 2\n", "unknown key '1'"),
    ("egress: {alow: []}\n", "unknown key 'egress_alow'; did you mean egress_allow"),
    ("server: {prot: 1}\n", "unknown key 'server.prot'; did you mean server.port"),
    ("server: 7\n", "unknown key 'server'"),
    ("port: eighty\n", "port: expected a whole number"),
    ("port: true\n", "port: expected a whole number"),
    ("host: 5\n", "host: expected text, got 5"),
    ("data_dir: ''\n", "data_dir: expected a path"),
    ("roles: [1]\n", "roles: expected a list of strings"),
    ("lease: 30\n", "lease: expected a duration"),
    ("allow_private_targets: [1]\n", "expected true or false"),
    ("port: 1\nport: 2\n", "line 2, column 1: duplicate key 'port'"),
    ("- a\n", "expected settings as `key: value`, got list"),
    ("port: [\n", "is not valid YAML: line 2"),
    (b"\xff\xfe\x00", "is not valid YAML"),
]


@each_row(("text", "message"), BAD_FILES)
def test_invalid_files(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_yaml(text)
    assert caught.value.details.get("code") is None


def test_bad_value_in_the_file_is_an_error_even_if_overridden_by_environment() -> None:
    with pytest.raises(ConfigError, match="port"):
        from_yaml("port: x\n", {"PORT": "1"})


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host: !!python/object/apply:os.system ['true']\n", "python/object"),
        ("host: !!python/name:os.system\n", "python/name"),
        (BOMB, r"it contains the alias \*a"),
        ("sources: " + "[" * 200 + "]" * 200 + "\n", "nested more than 32"),
        ("sources: '" + "x" * 1024 * 1024 + "'\n", "larger than 1024 KiB"),
    ],
    ids=["object", "name", "bomb", "deep", "large"],
)
def test_unsafe_yaml_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_yaml(text)
    assert caught.value.details["code"] == "unsafe_file"


def test_world_readable_config_file_with_a_secret_gives_a_warning() -> None:
    file = Path("chimes.yaml")
    file.write_text("admin_token: hush\n")
    file.chmod(0o644)
    assert "chmod 600 chimes.yaml" in load_settings(environ={}).warnings[0]
    file.chmod(0o600)
    assert load_settings(environ={}).warnings == ()
    file.write_text("port: 1\nstore: postgresql://u@h/db\n")
    file.chmod(0o644)
    assert load_settings(environ={}).warnings == ()
    file.write_text("store: postgresql://u:hush@h/db\n")
    assert "chmod 600 chimes.yaml" in load_settings(environ={}).warnings[0]


def test_world_readable_key_file_gives_a_warning() -> None:
    Path("keys.txt").write_text("k\n")
    Path("keys.txt").chmod(0o640)
    assert "keys.txt" in load_settings(environ={"AUTH_KEYS_FILE": "keys.txt"}).warnings[0]


def test_secret_settings_are_listed_for_redaction() -> None:
    assert load_settings(environ={"CHIMES_ADMIN_TOKEN": "hush"}).secrets == ("hush",)
    assert load_settings(environ={}).secrets == ()


def test_roles_are_ordered_and_deduplicated() -> None:
    assert settings(roles="worker,api,worker,scheduler").roles == ROLES


def location(store: str, data_dir: str = "data") -> str:
    return resolve_store_url(Settings(store=store, data_dir=Path(data_dir)))


def test_default_store_is_sqlite_in_the_data_directory(tmp_path: Path) -> None:
    assert location("") == location("sqlite") == f"sqlite:///{tmp_path}/data/chimes.db"
    assert location("", "/srv/d") == "sqlite:////srv/d/chimes.db"
    assert location("json") == f"json:///{tmp_path}/data"
    assert location("memory") == location("memory://") == "memory://"


def test_sqlite_url_with_four_slashes_is_absolute(tmp_path: Path) -> None:
    assert location(f"json:///{tmp_path}/x") == f"json:///{tmp_path}/x"
    assert location(f"sqlite:///{tmp_path}/x/y.db") == f"sqlite:///{tmp_path}/x/y.db"
    assert location("sqlite:////no-such-root/y.db") == "sqlite:////no-such-root/y.db"


def test_sqlite_url_with_three_slashes_is_relative(tmp_path: Path) -> None:
    assert location("sqlite:///some.db") == f"sqlite:///{tmp_path}/some.db"
    assert location("sqlite:///sub/some.db") == f"sqlite:///{tmp_path}/sub/some.db"
    assert location("json:///dir") == f"json:///{tmp_path}/dir"
    assert location("json:///./tmp/dir") == f"json:///{tmp_path}/tmp/dir"
    assert location("json:///../dir") == f"json:///{tmp_path.parent}/dir"


def test_absolute_path_directly_after_the_scheme_is_accepted(tmp_path: Path) -> None:
    assert location(f"json://{tmp_path}") == f"json:///{tmp_path}"
    assert location(f"json://{tmp_path}/not/yet") == f"json:///{tmp_path}/not/yet"
    assert location(f"sqlite://{tmp_path}/not/yet.db") == f"sqlite:///{tmp_path}/not/yet.db"


def test_existing_relative_path_takes_precedence(tmp_path: Path) -> None:
    first = tmp_path.parts[1]
    (tmp_path / first).mkdir()
    rest = "/".join(tmp_path.parts[1:])
    assert location(f"json:///{first}/new") == f"json:///{tmp_path}/{first}/new"
    assert location(f"json:///{rest}") == f"json:///{tmp_path}"
    (tmp_path / rest).mkdir(parents=True)
    assert location(f"json:///{rest}") == f"json:///{tmp_path}/{rest}"


def test_locations_carry_kind_and_path(tmp_path: Path) -> None:
    found = store_location(Settings(store="json:///dir"))
    assert (found.kind, found.path) == ("json", tmp_path / "dir")
    assert store_location(Settings(store="memory")).path is None


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:6380/3?prefix=a:"])
def test_redis_url_needs_only_a_host(url: str, tmp_path: Path) -> None:
    """The marker file with the identity of the store is kept if there is a data directory."""
    found = store_location(Settings(store=url, allow_volatile=True))
    assert (found.kind, found.server, found.allow_volatile) == ("redis", url, True)
    assert found.marker is None
    (tmp_path / "data").mkdir()
    assert store_location(Settings(store=url)).marker == tmp_path / "data" / "redis-stores.json"
    elsewhere = Settings(store=url, data_dir=tmp_path / "new")
    assert store_location(elsewhere).marker == tmp_path / "new" / "redis-stores.json"


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("oracle://u:hush@h/db", "unknown scheme oracle://; supported: sqlite"),
        ("postgresql://u:hush@h", "the database name is missing: postgresql://…/chimes"),
        ("postgresql://u:hush@a,,b/db", "a host is missing before or after a comma"),
        ("postgresql://u:hush@a:5432,b:x/db", "the port of a host is not a number"),
        ("postgresql://u:hush@::1,::2/db", "a host is missing"),
        ("postgresql://u:hush@fe80::1,a/db", r"write IPv6 addresses as \[::1\]:5432"),
        ("postgresql://u:hush@a:5432,b:65536/db", "invalid port 65536: expected 1 to 65535"),
        ("mariadb://u:hush@a,b/db", "a list of hosts is possible with postgresql:// only"),
        ("redis://a:6379,b:6379/0", "a list of hosts is possible with postgresql:// only"),
        ("redis+sentinel://:hush@a:26379,b:26379/main/0", "Redis Sentinel is not supported"),
        ("mariadb://u:hush@h/?ssl=1", "the database name is missing"),
        ("redis-cluster://localhost", "unknown scheme redis-cluster://.*and redis://"),
        ("chimes.db", "sqlite:///chimes.db"),
        ("json://dir", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///a.db?mode=ro", "options are not supported"),
    ],
)
def test_invalid_store_urls(store: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        location(store)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush@h:99999/db",
        "mariadb://h:0/db",
        "postgresql://[::1]:70000,h:1/db",
        "redis://:hush@h:70000/0",
    ],
)
def test_invalid_port(url: str) -> None:
    """Drivers would silently connect to another port."""
    with pytest.raises(ConfigError, match="invalid port") as caught:
        store_location(Settings(store=url))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:99999@h/db", "postgresql://[::1]:5432/db", "postgresql://u:99999?@h/db"],
)
def test_password_or_ipv6_address_is_not_taken_for_a_port(url: str) -> None:
    assert store_location(Settings(store=url)).server == url


def test_settings_of_commands() -> None:
    found = load_settings(
        environ={
            "CHIMES_ALLOW_COMMANDS": "true",
            "CHIMES_COMMAND_ROLES": "admin,member",
            "CHIMES_LABELS": "zone=eu, os=linux",
        }
    ).settings
    assert found.allow_commands
    assert found.command_roles == ("admin", "member")
    assert found.labels == (("os", "linux"), ("zone", "eu"))
    for name, value, words in (
        ("CHIMES_LABELS", "zone", "zone=eu"),
        ("CHIMES_LABELS", "zone=eu,zone=us", "duplicate"),
        ("CHIMES_LABELS", ",".join(f"l{number}=x" for number in range(7)), "at most 6"),
        ("CHIMES_COMMAND_ROLES", "viewer", "member, admin"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_settings(environ={name: value})
        assert words in refused.value.message, (name, value)


def test_roles_by_group_are_shown_as_they_are_read() -> None:
    given = load_settings(environ={"CHIMES_SSO_ROLES": "ops team=admin, a=b=member"})
    assert given.settings.sso_roles == (("ops team", "admin"), ("a=b", "member"))
    shown = {each.name: each.value for each in describe_settings(given.settings, given.origins)}
    assert shown["sso_roles"] == "ops team=admin,a=b=member"
    for wrong in ("ops=root", "ops", "=admin"):
        with pytest.raises(ConfigError, match="roles by group"):
            load_settings(environ={"CHIMES_SSO_ROLES": wrong})
