"""Which server this user asks, and with which key: what `tonnage login` keeps at home.

A key that a reference names is not copied: the reference is kept, and the key is read where it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tonnage.errors import DataError
from tonnage.files import make_private_folder, write_whole
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

FILE_NAME: Final = "login.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogin:
    """A server's address without a slash at its end, and the key that it takes, in the clear or by reference; None of
    both: it asks for none."""

    server: str
    key: str | None = None
    key_from: str | None = None  # a reference

    def secret(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The key. Raises InputError where the reference names none."""
        if self.key_from is None:
            return self.key
        from tonnage.secret_references import read_reference

        return read_reference(self.key_from, environment, "the key of `tonnage login`")


def login_file(settings: Settings | None = None) -> Path:
    """Where it is kept, for its user alone."""
    return (settings or current_settings()).home / "ui" / FILE_NAME


def read_login(settings: Settings | None = None) -> KeptLogin | None:
    """What is kept; None without a login. Raises DataError for a file that cannot be read."""
    path = login_file(settings)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known = {name: str(found[name]) for name in ("key", "key_from") if found.get(name) is not None}
        return KeptLogin(server=str(found["server"]), **known)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} cannot be read: {type(error).__name__}", hint="`tonnage login URL` again") from error


def keep_login(made: KeptLogin, settings: Settings | None = None) -> None:
    """Keep it, whole or not at all, readable by its user alone."""
    path = login_file(settings)
    make_private_folder(path.parent)
    path.touch(mode=0o600)
    write_whole(path, json.dumps({"server": made.server, "key": made.key, "key_from": made.key_from}))
    path.chmod(0o600)


def forget_login(settings: Settings | None = None) -> bool:
    """Whether there was one."""
    path = login_file(settings)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
