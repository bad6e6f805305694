"""The section `connections:` of `chimes.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chimes.config import load_settings
from chimes.config.connections import Connection, find_connection, read_connections
from chimes.errors import ConfigError


def write_file(directory: Path, text: str) -> Path:
    file = directory / "chimes.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_connections_are_read_with_variables_of_the_environment(tmp_path: Path) -> None:
    file = write_file(
        tmp_path,
        """
connections:
  tasks: {kind: celery, url: "amqp://chimes:${RABBIT}@rabbit/", queue: jobs}
  events: {kind: redis, url: "redis://cache/2", max_length: 1000, roles: [member, admin]}
  shop: {kind: sql, url: "postgresql://reader:{{secret.SHOP}}@db/shop", allow: ["orders.*"]}
""",
    )
    loaded = load_settings(config_file=file, environ={"RABBIT": "s3cret-rabbit"})
    tasks, events, shop = loaded.settings.connections
    assert tasks.url == "amqp://chimes:s3cret-rabbit@rabbit/"
    assert (tasks.queue, tasks.roles, tasks.capability) == ("jobs", ("admin",), "celery:tasks")
    assert (events.max_length, events.roles) == (1000, ("member", "admin"))
    assert "s3cret-rabbit" in loaded.secrets
    assert "s3cret-rabbit" not in f"{tasks!r} {tasks.display}"
    assert shop.secret_names == {"SHOP"}
    filled = shop.filled({"SHOP": "p@ss/word"})
    assert filled.url == "postgresql://reader:p%40ss%2Fword@db/shop"
    assert "p@ss/word" in filled.secrets
    assert shop.allows("orders.new")
    assert not shop.allows("users.new")
    assert find_connection(loaded.settings.connections, "shop", "sql") is shop
    assert find_connection(loaded.settings.connections, "shop", "redis") is None


def test_a_password_in_a_readable_file_is_warned_about(tmp_path: Path) -> None:
    file = write_file(tmp_path, 'connections: {a: {kind: amqp, url: "amqp://u:p4ssw0rd@h/"}}')
    file.chmod(0o644)
    assert load_settings(config_file=file, environ={}).warnings
    file.write_text('connections: {a: {kind: amqp, url: "amqp://h/"}}')
    assert not load_settings(config_file=file, environ={}).warnings


BAD: list[tuple[object, str, str]] = [
    ([], "connections", "key: value"),
    ({"a b": {}}, "connections.a b", "a name of up to"),
    ({"a": "amqp://h"}, "connections.a", "key: value"),
    ({"a": {"url": "amqp://h"}}, "connections.a.kind", "one of celery"),
    ({"a": {"kind": "amqpp", "url": "amqp://h"}}, "connections.a.kind", "did you mean amqp"),
    ({"a": {"kind": "amqp"}}, "connections.a.url", "amqp://…"),
    ({"a": {"kind": "amqp", "url": "http://h"}}, "connections.a.url", "amqp://…"),
    ({"a": {"kind": "amqp", "url": "amqp://h", "queu": "x"}}, "connections.a.queu", "one of the"),
    ({"a": {"kind": "amqp", "url": "amqp://${NONE}"}}, "connections.a.url", "NONE to be set"),
    ({"a": {"kind": "amqp", "url": "amqp://h", "roles": ["x"]}}, "connections.a.roles", "member"),
    ({"a": {"kind": "amqp", "url": "amqp://h", "allow": "x"}}, "connections.a.allow", "a list"),
    (
        {"a": {"kind": "kubernetes", "url": "https://h", "allow_manifest": "yes"}},
        "connections.a.allow_manifest",
        "true or false",
    ),
    (
        {"a": {"kind": "redis", "url": "redis://h", "allow_manifest": True}},
        "allow_manifest",
        "keys",
    ),
    ({"a": {"kind": "redis", "url": "redis://h", "max_length": 0}}, "connections.a.max", "whole"),
]


def test_mistakes_name_the_key_and_what_was_expected() -> None:
    wrong = []
    for section, key, expected in BAD:
        with pytest.raises(ConfigError) as found:
            read_connections(section, {})
        if key not in found.value.message or expected not in found.value.message:
            wrong.append((section, found.value.message))
    assert not wrong


def test_no_value_of_a_connection_is_repeated_in_an_error() -> None:
    with pytest.raises(ConfigError) as found:
        read_connections({"a": {"kind": "amqp", "url": "pg://u:hunter22@h"}}, {})
    assert "hunter22" not in found.value.message


def test_the_secrets_of_every_kind_are_known() -> None:
    connection = Connection(
        name="k", kind="kafka", url="kafka://h", password="pa55word", token="t0kent0ken"
    )
    assert {*connection.secrets} == {"pa55word", "t0kent0ken"}
