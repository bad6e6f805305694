"""Encrypted values: the keys of a store, and the envelope around each secret (ADR 52).

An envelope is the text `chimes:sealed:1:<key id>:<data>`. Its data is a nonce and the AES-256-GCM
ciphertext of the value as JSON. Version, key id and the name of the field are authenticated with
it, so that the envelope of one field cannot be used in another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from chimes.errors import ConfigError, SecretUnreadable
from chimes.i18n import _
from chimes.redaction import SEALED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "CHIMES_SECRET_KEY"
#: In the data directory of an embedded store.
KEY_FILE = "secret.key"
_VERSION = "1"
_ENVELOPE = re.compile(rf"{SEALED}([0-9]{{1,4}}):([0-9a-f]{{8}}):([A-Za-z0-9_-]+)")
_KEY_IDS = re.compile(rf"{SEALED}[0-9]{{1,4}}:([0-9a-f]{{8}}):".encode())
_KEY_BYTES = 32
_NONCE_BYTES = 12
#: A random key has fewer different bytes than this once in more than 10^30 cases.
_LEAST_DIFFERENT = 12


class SecretKey:
    """One key; its id says which key an envelope needs."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.id = hashlib.sha256(b"chimes secret key id\0" + value).hexdigest()[:8]

    def __repr__(self) -> str:
        return f"SecretKey({self.id})"

    @property
    def text(self) -> str:
        return base64.b64encode(self._value).decode()

    def seal(self, value: object, field: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        content = json.dumps(value, separators=(",", ":")).encode()
        data = nonce + self._cipher.encrypt(nonce, content, self._bound_to(field))
        encoded = base64.urlsafe_b64encode(data).decode().rstrip("=")
        return f"{SEALED}{_VERSION}:{self.id}:{encoded}"

    def open(self, data: str, field: str) -> object:
        from cryptography.exceptions import InvalidTag

        try:
            raw = _decode(data)
            nonce, sealed = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return json.loads(self._cipher.decrypt(nonce, sealed, self._bound_to(field)))
        except (InvalidTag, ValueError):
            raise SecretUnreadable(
                _(
                    "the encrypted value of {field!r} was changed, or belongs to another field",
                    field=field,
                )
            ) from None

    def digest(self, text: str) -> str:
        """Equal for equal texts, and useless for guessing them without the key."""
        return hmac.digest(self._digest_key, text.encode(errors="replace"), "sha256").hex()

    def _bound_to(self, field: str) -> bytes:
        return f"{_VERSION}:{self.id}:{field}".encode(errors="replace")

    @cached_property
    def _cipher(self) -> AESGCM:
        # Imported here, because most processes meet no secret.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._value)

    @cached_property
    def _digest_key(self) -> bytes:
        return hmac.digest(self._value, b"chimes digest", "sha256")


def new_key() -> SecretKey:
    return SecretKey(secrets.token_bytes(_KEY_BYTES))


class BadKey(ValueError):
    """The message says what was expected, and what is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            _(
                "32 random bytes in base64, as `chimes secret generate-key` prints them ({reason})",
                reason=reason,
            )
        )


def parse_keys(text: str) -> tuple[SecretKey, ...]:
    """The keys of a list separated by commas. Raises BadKey."""
    return tuple(parse_key(part.strip()) for part in text.split(","))


def parse_key(text: str) -> SecretKey:
    try:
        value = _decode(text)
    except ValueError:
        raise BadKey(_("it is not base64")) from None
    if len(value) != _KEY_BYTES:
        raise BadKey(_("it has {count} bytes", count=len(value)))
    steps = {(after - before) % 256 for before, after in pairwise(value)}
    if len(set(value)) < _LEAST_DIFFERENT or len(steps) == 1:
        raise BadKey(_("its bytes are not random"))
    if all(32 <= byte < 127 for byte in value):
        raise BadKey(_("it is an encoded text, such as an example or a password"))
    return SecretKey(value)


def _decode(text: str) -> bytes:
    """Standard or URL-safe base64, with or without padding. Raises ValueError."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


# --- opening: any key that this process knows -----------------------------------------------------
_known: dict[str, SecretKey] = {}
_rings: WeakSet[Keyring] = WeakSet()


def open_sealed(text: str, field: str) -> object:
    """The value in an envelope. SecretUnreadable without its key."""
    found = _ENVELOPE.fullmatch(text)
    if found is None:
        raise SecretUnreadable(_("the encrypted value of {field!r} is damaged", field=field))
    version, key_id, data = found.groups()
    if version != _VERSION:
        raise SecretUnreadable(
            _("the value of {field!r} was encrypted by a newer version of Chimes", field=field)
        )
    key = _known.get(key_id)
    if key is None:
        # Another process may have added a key to the file meanwhile.
        for ring in list(_rings):
            ring.reload()
        key = _known.get(key_id)
    if key is None:
        raise SecretUnreadable(
            _(
                "the value of {field!r} is encrypted with the key {id}, which this node does not "
                "have: add it to {variable}, or to {file} of an embedded store",
                field=field,
                id=key_id,
                variable=VARIABLE,
                file=KEY_FILE,
            )
        )
    return key.open(data, field)


def key_of(value: object) -> str:
    """The id of the key of an envelope; empty for another value."""
    found = _ENVELOPE.fullmatch(value) if isinstance(value, str) else None
    return found[2] if found else ""


def keys_in(content: bytes) -> list[str]:
    """The ids of the keys of all envelopes in a file."""
    return [each.decode() for each in _KEY_IDS.findall(content)]


def use_keys(keys: Iterable[SecretKey]) -> None:
    """Opens envelopes of these keys from now on."""
    _known.update((key.id, key) for key in keys)


def read_key_file(path: Path) -> tuple[SecretKey, ...]:
    """One key per line, `#` comments. ConfigError if it is invalid or others may read it."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = path.read_text("ascii", errors="replace").splitlines()
    except OSError as error:
        raise ConfigError(
            _("{file} cannot be read: {reason}", file=path, reason=error.strerror),
            key="secret_key",
        ) from None
    if mode & 0o077:
        raise ConfigError(
            _(
                "{file} can be read by other users: expected mode 0600; run chmod 600 {file}, and "
                "rotate the key if others may have read it",
                file=path,
            ),
            key="secret_key",
        )
    try:
        keys = tuple(parse_key(each) for line in lines if (each := line.strip())[:1] not in "#")
        if not keys:
            raise BadKey(_("it is empty"))
    except BadKey as bad:
        raise ConfigError(
            _("{file}: expected {wanted}", file=path, wanted=bad.args[0]), key="secret_key"
        ) from None
    return keys


# --- sealing: the first key of a store ------------------------------------------------------------
class Keyring:
    """The keys of one store: the first one encrypts, all of them decrypt.

    They come from the setting `secret_key`, or from a file that is created when the first secret is
    stored. Other processes may add keys to the file (`chimes secret rotate`).
    """

    def __init__(
        self,
        given: Sequence[SecretKey] = (),
        *,
        file: Path | None = None,
        durable: bool = True,
    ) -> None:
        """`durable`: False for a store that writes nothing down, whose values stay plain."""
        self._given = tuple(given)
        self._file = file
        self.durable = durable
        #: Whether it has a key, or can make one.
        self.can_seal = bool(self._given) or file is not None
        self._filed: tuple[SecretKey, ...] = ()
        self._read_at: tuple[int, int, int] | None = None
        self._lock = threading.Lock()
        use_keys(self._given)
        _rings.add(self)

    @property
    def file(self) -> Path | None:
        """Where new keys are stored; None: in the setting."""
        return None if self._given else self._file

    def keys(self) -> tuple[SecretKey, ...]:
        """Those that exist, the one that encrypts first."""
        self.reload()
        return (*self._given, *self._filed)

    def current(self) -> SecretKey | None:
        """The key that encrypts; made if there is none and the store is embedded."""
        if self._given:
            return self._given[0]
        if self._file is None:
            return None
        self.reload()
        if not self._filed:
            self._create()
        return self._filed[0]

    def seal(self, value: object, field: str) -> object:
        """The value in an envelope; as it is without a key."""
        key = self.current() if self.durable else None
        return value if key is None else key.seal(value, field)

    def reload(self) -> None:
        """Reads the file if it has changed. ConfigError if others may read it."""
        if self._file is None:
            return
        try:
            found = self._file.stat()
        except OSError:
            return
        mark = (found.st_mtime_ns, found.st_ino, found.st_size)
        if mark == self._read_at:
            return
        with self._lock:
            self._filed, self._read_at = read_key_file(self._file), mark
            use_keys(self._filed)

    def add_key(self) -> SecretKey:
        """Makes a new key in the file, which encrypts from now on; the others stay."""
        key = new_key()
        self._write((key, *self.keys()))
        return key

    def drop_old_keys(self) -> None:
        """Leaves only the key that encrypts in the file."""
        self._write(self.keys()[:1])

    def _create(self) -> None:
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._part(new_key())
        try:
            # Fails if another process was faster; its key is the one.
            os.link(part, self._file)
        except FileExistsError:
            pass
        finally:
            part.unlink()
        self._sync_directory()
        self.reload()

    def _write(self, keys: Sequence[SecretKey]) -> None:
        assert self._file is not None
        self._part(*keys).replace(self._file)
        self._sync_directory()
        self.reload()

    def _part(self, *keys: SecretKey) -> Path:
        assert self._file is not None
        part = self._file.with_name(f".{self._file.name}.{secrets.token_hex(8)}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:
            stream.write("# Keys of the secrets in this store; the first one encrypts. Keep a\n")
            stream.write("# copy apart from backups: without them the secrets are lost.\n")
            stream.writelines(f"{key.text}\n" for key in keys)
            stream.flush()
            os.fsync(stream.fileno())
        return part

    def _sync_directory(self) -> None:
        assert self._file is not None
        descriptor = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


#: Of a store without a key.
NO_KEYS = Keyring()
#: Of a store that writes nothing down.
IN_MEMORY = Keyring(durable=False)
