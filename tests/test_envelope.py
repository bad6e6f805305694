"""Keys of secrets, their file, and envelopes."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from chimes.config import load_settings
from chimes.envelope import BadKey, Keyring, SecretKey, new_key, open_sealed, parse_keys
from chimes.errors import ConfigError, SecretUnreadable
from chimes.redaction import replace_secrets

VALUE = bytes.fromhex("a1b2c3d4e5f60718293a4b5c6d7e8f900f1e2d3c4b5a69788796a5b4c3d2e1fb")


def test_keys_in_either_alphabet_and_without_padding() -> None:
    texts = [base64.b64encode(VALUE).decode(), base64.urlsafe_b64encode(VALUE).decode()]
    texts += [each.rstrip("=") for each in texts]
    assert {key.id for text in texts for key in parse_keys(text)} == {SecretKey(VALUE).id}
    assert [key.id for key in parse_keys(f"{new_key().text}, {texts[0]}")][1] == SecretKey(VALUE).id


def test_weak_keys_are_refused() -> None:
    for text, reason in {
        "": "0 bytes",
        "secret": "4 bytes",
        "short!": "not base64",
        base64.b64encode(VALUE[:31]).decode(): "31 bytes",
        base64.b64encode(bytes(32)).decode(): "not random",
        base64.b64encode(b"ab" * 16).decode(): "not random",
        base64.b64encode(bytes(range(32))).decode(): "not random",
        base64.b64encode(b"a secret text of 32 characters !").decode(): "encoded text",
    }.items():
        with pytest.raises(BadKey, match=reason):
            parse_keys(text)
    with pytest.raises(ConfigError, match="secret_key: expected 32 random bytes") as error:
        load_settings(environ={"CHIMES_SECRET_KEY": "hunter2hunter2"})
    assert "hunter2" not in error.value.message


def test_an_envelope_is_bound_to_its_field_and_key() -> None:
    ring = Keyring([new_key()])
    sealed = str(ring.seal({"a": [1, "x"]}, "args"))
    assert open_sealed(sealed, "args") == {"a": [1, "x"]}
    assert ring.seal("x", "args") != ring.seal("x", "args")
    with pytest.raises(SecretUnreadable, match="another field"):
        open_sealed(sealed, "body")
    other = SecretKey(VALUE).seal("x", "args")
    with pytest.raises(SecretUnreadable, match=SecretKey(VALUE).id):
        open_sealed(other, "args")
    with pytest.raises(SecretUnreadable, match="newer"):
        open_sealed(sealed.replace(":1:", ":2:", 1), "args")


def test_the_key_file_is_made_once_and_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "data" / "secret.key"
    first, second = Keyring(file=file), Keyring(file=file)
    assert not file.exists()
    sealed = str(first.seal("x", "body"))
    assert file.stat().st_mode & 0o777 == 0o600
    key = second.current()
    assert key is not None
    assert key.id in sealed
    # Another process adds a key: it encrypts from now on, without a restart.
    added = Keyring(file=file).add_key()
    assert added.id in str(first.seal("x", "body"))
    known = first.keys()
    assert [each.id for each in known] == [added.id, key.id]
    os.chmod(file, 0o640)
    with pytest.raises(ConfigError, match="mode 0600"):
        Keyring(file=file).reload()


def test_what_is_replaced() -> None:
    found: dict[str, object] = {}

    def note(name: str, value: object) -> object:
        found[name] = value
        return "sealed"

    plain: dict[str, object] = {
        "url": "https://u:p@x.example/",
        "headers": {"Authorization": "Basic eA==", "X-Plain": "y"},
        "max_tokens": 5,
        "signing_secrets": ["whsec_x"],
        "args": {"rows": 5, "db": {"password": "p", "host": "h"}},
        "body": "just text",
        "prompt": "chimes:sealed:1:00000000:AAAA",
        "token": "",
    }
    sealed = replace_secrets(plain, note)
    assert set(found) == {"url", "Authorization", "signing_secrets", "password", "prompt"}
    assert sealed["args"] == {"rows": 5, "db": {"password": "sealed", "host": "h"}}
    assert {name: sealed[name] for name in ("max_tokens", "body", "token")} == {
        "max_tokens": 5,
        "body": "just text",
        "token": "",
    }
