"""`chimes secret`, and secrets in exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chimes.envelope import _known, parse_keys
from tests.cli.conftest import Cli, spawn

SECRET = "tok-5ecret-value"
ADD = (
    *("add", "0 9 1 1 *", "--name", "Far away", "-q"),
    *("--http", f"http://x.example/?token={SECRET}"),
)


@pytest.fixture(autouse=True)
def _keys_of_other_tests() -> Iterator[None]:
    """The commands run in this process, and some tests let it forget its keys."""
    before = dict(_known)
    yield
    _known.clear()
    _known.update(before)


def files(directory: Path) -> bytes:
    return b"".join(
        each.read_bytes()
        for each in directory.rglob("*")
        if each.name != "secret.key" and each.is_file()
    )


@pytest.mark.parametrize("store", ["sqlite:///one/one.db", "json:///one"])
def test_export_rotate_and_import(cli: Cli, tmp_path: Path, store: str) -> None:
    (tmp_path / "one").mkdir()
    assert cli(*ADD, CHIMES_STORE=store).code == 0
    export = tmp_path / "export.jsonl"
    assert cli("store", "export", str(export), CHIMES_STORE=store).code == 0
    first = (tmp_path / "one" / "secret.key").read_bytes()
    assert SECRET.encode() not in files(tmp_path)
    rotated = cli("secret", "rotate", CHIMES_STORE=store)
    assert rotated.code == 0, rotated.err
    assert "Encrypted " in rotated.err
    assert "still accepted" in rotated.err
    dropped = cli("secret", "rotate", "--drop-old", CHIMES_STORE=store)
    assert dropped.code == 0, dropped.err
    assert SECRET.encode() not in files(tmp_path)
    assert cli("doctor", "--json", CHIMES_STORE=store).out.count("encrypted with key") == 1
    _known.clear()
    shown = cli("show", "far-away", "--json", CHIMES_STORE=store)
    assert json.loads(shown.out)["target"]["url"] == "http://x.example/?token=***"
    # Another store has another key: the export needs its own.
    other = store.replace("one", "two")
    (tmp_path / "two").mkdir()
    refused = cli("store", "import", str(export), CHIMES_STORE=other)
    assert refused.code == 6
    assert "line 2" in refused.err
    assert "which this node does not have" in refused.err
    keys = tmp_path / "old.key"
    keys.write_bytes(first)
    keys.chmod(0o600)
    imported = cli("store", "import", str(export), "--key-file", str(keys), CHIMES_STORE=other)
    assert imported.code == 0, imported.err
    assert SECRET.encode() not in files(tmp_path)
    assert cli("store", "export", CHIMES_STORE=other).out.count("chimes:sealed:1:") >= 1


def test_a_server_store_needs_the_key(cli: Cli, postgres_url: str) -> None:
    refused = cli(*ADD, CHIMES_STORE=postgres_url)
    assert refused.code == 6
    assert "CHIMES_SECRET_KEY" in refused.err
    assert cli("secret", "rotate", CHIMES_STORE=postgres_url).code == 2
    assert "new secrets are refused" in cli("doctor", CHIMES_STORE=postgres_url).out
    key = cli("secret", "generate-key").out.strip()
    assert len(parse_keys(key)) == 1
    accepted = cli(*ADD, CHIMES_STORE=postgres_url, CHIMES_SECRET_KEY=key)
    assert accepted.code == 0, accepted.err
    # Without the key the schedule is shown with the reason, and can be deleted.
    _known.clear()
    shown = cli("show", "far-away", "--json", CHIMES_STORE=postgres_url)
    assert shown.code == 0, shown.err
    assert "which this node does not have" in json.loads(shown.out)["last_error"]
    assert cli("rm", "far-away", "--yes", CHIMES_STORE=postgres_url).code == 0


VALUE = "named-5ecret-value"


@pytest.mark.parametrize("store", ["sqlite:///one/one.db", "json:///one"])
def test_named_secrets(
    cli: Cli, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    file = tmp_path / "value"
    file.write_text(f"{VALUE}\n")
    env = {"CHIMES_STORE": store}
    add = ("add", "0 9 1 1 *", "--name", "Uses", "--http", "http://x.example/{{secret.TOKEN}}")
    refused = cli(*add, **env)
    assert refused.code == 6
    assert "chimes secret set TOKEN" in refused.err
    stored = cli("secret", "set", "TOKEN", "--from-file", str(file), **env)
    assert (stored.code, stored.out) == (0, "TOKEN\n"), stored.err
    file.unlink()
    assert cli(*add, **env).code == 0
    listed = json.loads(cli("secret", "list", "--json", **env).out)
    (found,) = listed["items"] if isinstance(listed, dict) else listed
    assert (found["name"], found["schedule_count"]) == ("TOKEN", 1)
    assert "value" not in found
    assert "Uses" in cli("secret", "list", **env).out
    kept = cli("secret", "rm", "TOKEN", **env)
    assert kept.code != 0
    assert "Uses (" in kept.err
    # Export, a new key and import keep the value, encrypted.
    export = tmp_path / "export.jsonl"
    assert cli("store", "export", str(export), **env).code == 0
    assert "chimes:sealed:1:" in export.read_text()
    first = (tmp_path / "one" / "secret.key").read_bytes()
    rotated = cli("secret", "rotate", "--drop-old", **env)
    assert rotated.code == 0, rotated.err
    _known.clear()
    assert cli("secret", "list", **env).code == 0
    keys = tmp_path / "old.key"
    keys.write_bytes(first)
    keys.chmod(0o600)
    other = {"CHIMES_STORE": store.replace("one", "two")}
    (tmp_path / "two").mkdir()
    imported = cli("store", "import", str(export), "--key-file", str(keys), **other)
    assert imported.code == 0, imported.err
    _known.clear()
    assert "TOKEN" in cli("secret", "list", **other).out
    assert VALUE.encode() not in files(tmp_path)
    assert cli("secret", "rm", "TOKEN", "--force", **env).code == 0
    assert cli("secret", "rm", "TOKEN", **env).code != 0


def test_the_value_of_a_secret_is_never_an_argument(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = cli("secret", "set", "TOKEN", VALUE)
    assert refused.code == 2
    assert VALUE not in refused.err + refused.out
    assert "--from-file" in refused.err
    # Without a terminal there is no prompt.
    assert cli("secret", "set", "TOKEN").code == 2
    from_stdin = spawn("secret", "set", "TOKEN", "-", cwd=tmp_path, stdin=f"{VALUE}\n")
    assert from_stdin.code == 0, from_stdin.err
    assert cli("secret", "set", "T", "--from-file", "missing").code == 2
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    assert "UTF-8" in cli("secret", "set", "T", "--from-file", str(binary)).err
    asked: list[dict[str, object]] = []

    def prompt(text: str, **given: object) -> str:
        asked.append(given)
        return VALUE

    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert cli("secret", "set", "PROMPTED").code == 0
    assert asked == [{"hide_input": True, "err": True}]
