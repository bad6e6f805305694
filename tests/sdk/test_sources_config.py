"""Validation of `sources:` in chimes.yaml and the messages for mistakes in it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from chimes.errors import ConfigError
from chimes.model.sync import Collection, Sources
from chimes.runtime.apply_config import parse_sources
from chimes.targets.sync.config import read_sources, secrets_of
from chimes.targets.sync.function_check import check_callables
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every
from tests.builders import NOW
from tests.tables import each_row

PYTHON: dict[str, Any] = {"callable": "shop:sync"}


def read(text: str) -> Sources:
    return read_sources(yaml.safe_load(text)["sources"], "/somewhere", NOW)


def one(collection: str) -> Collection:
    text = "sources: {shop: {driver: python, config: {callable: 'shop:sync'}, collections: ["
    found = read(text + collection + "]}}").get("shop", "orders")
    assert found is not None
    return found


def test_all_keys_of_a_source() -> None:
    sources = read(
        """
        sources:
          shop:
            driver: python
            config: {callable: "shop.orders:sync", anything: [1, {a: b}]}
            collections:
              - {name: orders, schedule: "0/1 * * ? * * *", priority: 100, timeout: 10m}
              - name: users
          files:
            driver: command
            config: {command: [tap, --all], env: {A: 1, B: true}, cwd: x, format: singer,
                     output: a.jsonl, other: 1}
            collections: [all]
          api:
            driver: http_json
            config:
              url: "https://api.example.com/{collection}?since={cursor}"
              headers: {Authorization: Bearer abc}
              params: {limit: 10}
              records: data.items
              pagination: {style: next, path: paging.next, parameter: token}
              cursor: {field: updated_at, start: 2020-01-01T00:00:00Z}
              output: {format: sqlite, path: "{source}.db", table: "{collection}", key: id}
            collections: [{name: users, schedule: "@hourly"}]
        """.replace("2020-01-01T00:00:00Z", '"2020-01-01T00:00:00Z"')
    )
    assert sources.directory == "/somewhere"
    assert list(sources.by_id) == ["shop", "files", "api"]
    assert sources.get("shop", "orders") == Collection(
        name="orders",
        trigger=Cron("0/1 * * ? * * *"),
        priority=100,
        timeout=timedelta(minutes=10),
    )
    assert sources.get("shop", "users") == Collection(
        name="users", trigger=None, priority=200, timeout=timedelta(hours=1)
    )
    assert sources.by_id["shop"].config["anything"] == [1, {"a": "b"}]
    assert sources.get("files", "all") == Collection(name="all")
    assert sources.get("files", "none") is None
    assert sources.get("none", "all") is None


@pytest.mark.parametrize(
    ("schedule", "trigger"),
    [
        ("*/5 * * * *", Cron("*/5 * * * *")),
        ("@daily", Cron("@daily")),
        ("30 0 9 * * *", Cron("30 0 9 * * *")),
        ("0/1 * 0 ? * * *", Cron("0/1 * 0 ? * * *")),
        ("CRON_TZ=Asia/Bangkok 0 9 * * *", Cron("CRON_TZ=Asia/Bangkok 0 9 * * *")),
        ("@every 90s", Every("90s")),
        ("every 5m", Every("5m")),
    ],
)
def test_schedule_of_a_collection(schedule: str, trigger: Cron | Every) -> None:
    assert one(f"{{name: orders, schedule: '{schedule}'}}").trigger == trigger


COLLECTIONS = "collections: [{name: orders}]"
HTTP = "url: 'https://a.example/x', output: {format: jsonl, path: x}"


@each_row(
    ("text", "error"),
    [
        ("[]", "sources: expected `key: value`, got a list"),
        ("{shop: 1}", "sources.shop: expected `key: value`, got a number"),
        ("{'a b': {}}", "sources.a b: source must have 1 to 100 letters, digits and any of _ . -"),
        ("{1: {}}", "sources: the key '1' is not text; quote it"),
        ("{shop: {}}", "sources.shop: driver is missing"),
        (
            "{shop: {drive: python}}",
            "sources.shop.drive: unknown key 'drive'; did you mean driver?",
        ),
        (
            "{shop: {driver: pyton}}",
            "sources.shop.driver: unknown 'pyton'; did you mean python?",
        ),
        ("{shop: {driver: 5}}", "sources.shop.driver: expected one of python, command, http_json"),
        (
            f"{{shop: {{driver: python, {COLLECTIONS}}}}}",
            "sources.shop.config: callable is missing",
        ),
        (
            f"{{shop: {{driver: python, config: {{calable: 'a:b'}}, {COLLECTIONS}}}}}",
            "sources.shop.config: callable is missing (found calable: is that a typo?)",
        ),
        (
            f"{{shop: {{driver: python, config: {{callable: a.b}}, {COLLECTIONS}}}}}",
            "sources.shop.config.callable: expected module:function, such as shop.orders:sync",
        ),
        (
            f"{{shop: {{driver: command, config: {{command: 'a b'}}, {COLLECTIONS}}}}}",
            "sources.shop.config.command: expected a list such as [tap-shop, --all]",
        ),
        (
            f"{{shop: {{driver: command, config: {{command: [a, 1]}}, {COLLECTIONS}}}}}",
            "sources.shop.config.command[1]: expected text, got a number",
        ),
        (
            "{shop: {driver: command, config: {command: [a], format: singr}, " + COLLECTIONS + "}}",
            "sources.shop.config.format: unknown 'singr'; did you mean singer?",
        ),
        (
            f"{{shop: {{driver: command, config: {{command: [a], output: x}}, {COLLECTIONS}}}}}",
            "sources.shop.config.output: output requires format: singer",
        ),
        (
            "{shop: {driver: command, config: {command: [a], env: {CHIMES_X: 1}}, "
            f"{COLLECTIONS}}}}}",
            "sources.shop.config.env.CHIMES_X: names that begin with CHIMES_ are reserved",
        ),
        (
            f"{{shop: {{driver: http_json, config: {{{HTTP}, recods: a}}, {COLLECTIONS}}}}}",
            "sources.shop.config.recods: unknown key 'recods'; did you mean records?",
        ),
        (
            "{shop: {driver: http_json, config: {url: 'ftp://x/', output: {format: jsonl, path: x}}"
            f", {COLLECTIONS}}}}}",
            "sources.shop.config.url: ",
        ),
        (
            "{shop: {driver: http_json, config: {url: 'https://x.example/{colection}', "
            f"output: {{format: jsonl, path: x}}}}, {COLLECTIONS}}}}}",
            "sources.shop.config.url: unknown placeholder {colection}",
        ),
        (
            f"{{shop: {{driver: http_json, config: {{{HTTP}, pagination: {{style: pages}}}}, "
            f"{COLLECTIONS}}}}}",
            "sources.shop.config.pagination.style: unknown 'pages'; did you mean page?",
        ),
        (
            f"{{shop: {{driver: http_json, config: {{{HTTP}, pagination: {{style: link, "
            f"size: 3}}}}, {COLLECTIONS}}}}}",
            "sources.shop.config.pagination.size: unknown key 'size'",
        ),
        (
            f"{{shop: {{driver: http_json, config: {{{HTTP}, pagination: {{style: offset}}}}, "
            f"{COLLECTIONS}}}}}",
            "sources.shop.config.pagination: size is missing",
        ),
    ],
)
def test_invalid_sources(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"sources: {text}")
    assert caught.value.message.startswith(error)


@each_row(
    ("collections", "error"),
    [
        ("", "sources.shop.collections: expected a list of collections"),
        ("5", "sources.shop.collections[0]: expected `key: value`, got a number"),
        ("{}", "sources.shop.collections[0]: name is missing"),
        ("{name: 'a/b'}", "sources.shop.collections[0].name: collection must have 1 to 100"),
        ("a, {nam: b}", "sources.shop.collections[1].nam: unknown key 'nam'; did you mean name?"),
        (
            "{name: orders}, {name: b}, {name: orders}",
            "sources.shop.collections[2].name: 'orders' is already the name of "
            "sources.shop.collections[0]",
        ),
        ("{name: a, schedule: '* * * *'}", "sources.shop.collections[0].schedule: "),
        ("{name: a, schedule: '61 * * * *'}", "sources.shop.collections[0].schedule: "),
        ("a, {name: b, schedule: '0 0 31 2 *'}", "sources.shop.collections[1].schedule: "),
        ("{name: a, schedule: '0 0 0 1 1 ? 2020'}", "sources.shop.collections[0].schedule: "),
        ("{name: a, schedule: '2030-01-01T00:00:00Z'}", "sources.shop.collections[0].schedule: "),
        ("{name: a, schedule: 5}", "sources.shop.collections[0].schedule: expected text"),
        ("{name: a, priority: 0}", "sources.shop.collections[0].priority: expected a whole number"),
        ("{name: a, priority: -3}", "sources.shop.collections[0].priority: expected a whole"),
        ("{name: a, priority: high}", "sources.shop.collections[0].priority: expected a whole"),
        ("{name: a, priority: true}", "sources.shop.collections[0].priority: expected a whole"),
        ("{name: a, timeout: 10}", "sources.shop.collections[0].timeout: expected a duration"),
        ("{name: a, timeout: 5 parsecs}", "sources.shop.collections[0].timeout: "),
        ("{name: a, timeout: 1ms}", "sources.shop.collections[0].timeout: expected a duration"),
        ("{name: a, timeout: 2000h}", "sources.shop.collections[0].timeout: expected a duration"),
        (f"{{name: {'x' * 100}}}", ""),
    ],
)
def test_invalid_collections(collections: str, error: str) -> None:
    text = "sources: {shop: {driver: python, config: {callable: 'shop:sync'}, collections: "
    if not error:
        assert read(f"{text}[{collections}]}}}}")
        return
    with pytest.raises(ConfigError) as caught:
        read(f"{text}[{collections}]}}}}")
    assert caught.value.message.startswith(error)


def test_long_names_fit_into_keys() -> None:
    with pytest.raises(ConfigError, match="together exceed 180 characters"):
        read_sources(
            {"s" * 100: {"driver": "python", "config": PYTHON, "collections": ["c" * 100]}},
            "",
            NOW,
        )


def test_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "chimes.yaml"
    with pytest.raises(ConfigError) as caught:
        parse_sources({"shop": 1}, file, SettableClock(NOW))
    assert caught.value.message == f"{file}: sources.shop: expected `key: value`, got a number"


def test_no_sources() -> None:
    assert read_sources(None, "/d", NOW) == Sources(directory="/d")
    assert read_sources({}, "/d", NOW).by_id == {}


# Secrets


def test_secrets_are_redacted() -> None:
    text = "sources: {shop: {driver: python, config: {callable: 'hunter2 and more'}, "
    with pytest.raises(ConfigError) as caught:
        read(text + COLLECTIONS + "}}")
    assert "hunter2" not in caught.value.message
    sources = read(
        "sources: {shop: {driver: python, config: {callable: 'a:b', api_token: tok-1, "
        f"nested: [{{password: pw-2}}], headers: {{Authorization: Bearer xyz}}}}, {COLLECTIONS}}}}}"
    )
    assert set(secrets_of(sources)) == {"tok-1", "pw-2", "Bearer xyz", "xyz"}
    assert "tok-1" not in repr(sources)


# Functions


async def check(tmp_path: Path, path: str, module: str = "def sync(*given): ...") -> None:
    (tmp_path / "shop.py").write_text(module)
    raw = {"shop": {"driver": "python", "config": {"callable": path}, "collections": ["a"]}}
    await check_callables(read_sources(raw, str(tmp_path), NOW))


async def test_functions_are_checked(tmp_path: Path) -> None:
    await check(tmp_path, "shop:sync")
    await check(tmp_path, "shop:sync", "print('noise')\ndef sync(*given): ...")


@pytest.mark.parametrize(
    ("path", "module", "error"),
    [
        ("shop:snyc", "def sync(*given): ...", "shop has no 'snyc'; did you mean sync?"),
        (
            "no_shop:sync",
            "",
            "module 'no_shop' was not found beside the file or on the Python path",
        ),
        ("shop:sync", "import nothing_here", "shop:sync cannot be imported: ModuleNotFoundError"),
        ("shop:sync", "1 / 0", "shop:sync cannot be imported: ZeroDivisionError"),
        ("shop:sync", "raise SystemExit(3)", "shop:sync cannot be imported: SystemExit: 3"),
        ("shop:sync", "sync = 3", "shop:sync is not callable"),
    ],
)
async def test_missing_functions(tmp_path: Path, path: str, module: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await check(tmp_path, path, module)
    assert caught.value.message.startswith(f"sources.shop.config.callable: {error}")


async def test_check_does_not_expose_node_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in tasks: neither the admin token nor the URL of the store."""
    module = "import os\nassert not {'CHIMES_STORE', 'CHIMES_ADMIN_TOKEN'} & {*os.environ}\n"
    monkeypatch.setenv("CHIMES_STORE", "sqlite:///private.db")
    monkeypatch.setenv("CHIMES_ADMIN_TOKEN", "token-of-the-admin")
    await check(tmp_path, "shop:sync", module + "def sync(*given): ...")


async def test_module_that_ends_the_process_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ended the process \(status 7\)"):
        await check(tmp_path, "shop:sync", "import os\nos._exit(7)")
