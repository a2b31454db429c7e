"""Keys of people and programs: kept as hashes, with a role, an end and when they were last used."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, get_args

from filelock import FileLock

from tonnage.errors import DataError, InputError, UnknownName, did_you_mean, nearest
from tonnage.files import make_private_folder, write_whole
from tonnage.values import dataclass

Role = Literal["viewer", "operator", "admin"]
Holder = Literal["person", "service"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)  # each may do what those before it may
PREFIX: Final = "tnk-"
KEY_BYTES: Final = 24
USED_EVERY_S: Final = 60.0  # a key's last use is written so often at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret. Times are UTC; `expires_at` None: it never ends. `projects` None: all of them; else the
    role holds for runs and budgets of these alone. A service's key signs no browser in."""

    name: str
    hash: str
    role: Role
    made_at: datetime
    expires_at: datetime | None
    used_at: datetime | None = None
    projects: tuple[str, ...] | None = None
    holder: Holder = "person"

    def holds(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


def allows(role: Role, needed: Role) -> bool:
    """Whether a role may do what `needed` may.

    >>> allows("admin", "operator"), allows("viewer", "operator")
    (True, False)
    """
    return ROLES.index(role) >= ROLES.index(needed)


class KeyFile:
    """The keys of one home, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._stamp: tuple[int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def every(self) -> tuple[ApiKey, ...]:
        """By name. Raises DataError for a file that cannot be read, so that no one gets in by mistake."""
        with self._lock:
            return tuple(sorted(self._read().values(), key=lambda one: one.name))

    def owner(self, secret: str, now: datetime) -> ApiKey | None:
        """The key of a secret; None where there is none, or its time is over."""
        with self._lock:
            found = self._read().get(_hash(secret))
        return found if found is not None and found.holds(now) else None

    def add(
        self, name: str, role: Role, *, now: datetime, expires_at: datetime | None,
        projects: tuple[str, ...] | None = None, holder: Holder = "person",
    ) -> str:  # fmt: skip
        """A new key; its secret is shown once and kept nowhere. Raises InputError for a name that is taken."""
        if not name or len(name) > 80 or any(not (mark.isalnum() or mark in "-_.@") for mark in name):
            raise InputError(f"'{name}' cannot be the name of a key", hint="letters, digits and -_.@, at most 80")
        secret = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        made = ApiKey(name=name, hash=_hash(secret), role=role, made_at=now, expires_at=expires_at, projects=projects,
                      holder=holder)  # fmt: skip
        with self._changing() as keys:
            if any(one.name == name for one in keys.values()):
                raise InputError(f"a key is named '{name}' already", hint="`tonnage ui revoke` ends it")
            keys[made.hash] = made
        return secret

    def revoke(self, name: str) -> None:
        """End a key at once. Raises UnknownName."""
        with self._changing() as keys:
            found = next((one for one in keys.values() if one.name == name), None)
            if found is None:
                known = [one.name for one in keys.values()]
                hint = did_you_mean(nearest(name, known), "`tonnage ui keys` lists them")
                raise UnknownName(f"no key is named '{name}'", hint=hint)
            del keys[found.hash]

    def used(self, key: ApiKey, now: datetime) -> None:
        """Note that a key was used, once a minute at most."""
        if key.used_at is not None and (now - key.used_at).total_seconds() < USED_EVERY_S:
            return
        with self._changing() as keys:
            if key.hash in keys:
                keys[key.hash] = replace(keys[key.hash], used_at=now)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, ApiKey]]:
        make_private_folder(self.path.parent)
        with self._lock, FileLock(f"{self.path}.lock"):
            keys = dict(self._read())
            yield keys
            write_whole(self.path, json.dumps({"keys": [_plain(one) for one in keys.values()]}, indent=1))
            self._stamp = None

    def _read(self) -> dict[str, ApiKey]:
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            self._keys, self._stamp = {}, None
            return self._keys
        stamp = (state.st_mtime_ns, state.st_ino)
        if stamp != self._stamp:
            try:
                rows = json.loads(self.path.read_text(encoding="utf-8"))["keys"]
                self._keys = {one.hash: one for one in map(_key, rows)}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DataError(f"{self.path} cannot be read: {error}", hint="restore it from a backup") from error
            self._stamp = stamp
        return self._keys


def _hash(secret: str) -> str:
    """A key has 192 random bits: a fast hash of it cannot be turned back by guessing."""
    return blake2b(secret.encode(), digest_size=32).hexdigest()


def _plain(one: ApiKey) -> dict[str, Any]:
    times = {name: getattr(one, name) for name in ("made_at", "expires_at", "used_at")}
    projects = None if one.projects is None else list(one.projects)
    said = {"name": one.name, "hash": one.hash, "role": one.role, "projects": projects, "holder": one.holder}
    return said | {name: None if value is None else value.isoformat() for name, value in times.items()}


def _key(row: dict[str, Any]) -> ApiKey:
    if row["role"] not in ROLES:
        raise ValueError(f"role {row['role']!r}")
    times = {
        name: None if row[name] is None else datetime.fromisoformat(row[name]) for name in ("expires_at", "used_at")
    }
    projects, holder = row.get("projects"), row.get("holder", "person")  # files of before have neither
    if holder not in get_args(Holder) or not (projects is None or isinstance(projects, list)):
        raise ValueError(f"holder {holder!r}, projects {projects!r}")
    return ApiKey(
        name=row["name"], hash=row["hash"], role=row["role"], made_at=datetime.fromisoformat(row["made_at"]),
        projects=None if projects is None else tuple(map(str, projects)), holder=holder, **times,
    )  # fmt: skip


def now_utc() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
