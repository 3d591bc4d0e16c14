"""Manages the keys of a service, in a file of salted hashes.

    python -m sparring keys add NAME       prints the key, once; clients send it as `Authorization: Bearer KEY`
    python -m sparring keys remove NAME    the key is refused from then on, also by running services
    python -m sparring keys list

The file is JSON: {NAME: {"salt", "sha256", "made"}}. A key is 256 random bits and cannot be guessed, so a fast hash is
enough.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.core.errors import SparringError


class StoredKey(BaseModel):
    model_config = ConfigDict(extra="forbid")
    salt: str
    sha256: str
    made: str

    def fits(self, key: str) -> bool:
        return hmac.compare_digest(digest(self.salt, key), self.sha256)


STORED = TypeAdapter(dict[str, StoredKey])


def digest(salt: str, key: str) -> str:
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


def read_keys(path: Path) -> dict[str, StoredKey]:
    """Returns the stored keys by name. Raises SparringError."""
    try:
        return STORED.validate_json(path.read_bytes())
    except OSError as error:
        raise SparringError(
            f"{path}: {error.strerror}; `python -m sparring keys add NAME` makes it"
        ) from None
    except ValidationError as error:
        raise SparringError(
            f"{path}: not a file of keys: {error.errors()[0]['msg']}; `python -m sparring keys add NAME` makes one"
        ) from None


def write_keys(path: Path, keys: dict[str, StoredKey]) -> None:
    """Writes the file atomically, readable by its owner only."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump({name: key.model_dump() for name, key in keys.items()}, file, indent=1)
    os.replace(partial, path)


class Keyring:
    """The keys of a file, which is read again when it changes. While the file cannot be read, no key is valid."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises SparringError if it cannot be read or holds no key."""
        self._path = path
        self._seen = self._stamp()
        self._keys = read_keys(path)
        if not self._keys:
            raise SparringError(f"{path}: holds no key; `python -m sparring keys add NAME` makes one")

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def name_of(self, key: str) -> str | None:
        if (stamp := self._stamp()) != self._seen:
            self._seen = stamp
            try:
                self._keys = read_keys(self._path)
            except SparringError as error:
                logging.getLogger(__name__).error("%s", error)
                self._keys = {}
        return next((name for name, stored in self._keys.items() if stored.fits(key)), None)


def add(path: Path, name: str) -> str:
    """Adds a key and returns it. Only its hash is stored. Raises SparringError."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise SparringError(f"{name!r}: a key's name is 1 to 64 letters, digits, `_`, `.` or `-`")
    keys = read_keys(path) if path.exists() else {}
    if name in keys:
        raise SparringError(
            f"{path}: {name!r} has a key; `python -m sparring keys remove {name}` first, if it is lost"
        )
    key, salt = f"sk-{secrets.token_urlsafe(32)}", secrets.token_hex(16)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    write_keys(path, keys | {name: StoredKey(salt=salt, sha256=digest(salt, key), made=made)})
    return key


def remove(path: Path, name: str) -> None:
    keys = read_keys(path)
    if name not in keys:
        raise SparringError(f"{path}: no key is called {name!r}: there are {', '.join(keys) or 'none'}")
    write_keys(path, {other: key for other, key in keys.items() if other != name})


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("sparring keys", __doc__)
    parser.add_argument("command", choices=["add", "remove", "list"])
    parser.add_argument("name", nargs="?", help="who has the key: it stands in the audit log")
    parser.add_argument(
        "--keys", type=home_path, default=Path("keys.json"), help="the file; default: keys.json"
    )
    options = parser.parse_args(arguments)
    if (options.command == "list") != (options.name is None):
        parser.error("`add` and `remove` want a name, `list` none")
    with plain_endings():
        if options.command == "add":
            print(add(options.keys, options.name))
        elif options.command == "remove":
            remove(options.keys, options.name)
        else:
            for name, key in read_keys(options.keys).items():
                print(name, key.made)


if __name__ == "__main__":
    main()
