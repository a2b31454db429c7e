"""Which server this user asks, and with which key: what `tonnage login` keeps at home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tonnage.errors import DataError
from tonnage.files import make_private_folder, write_whole
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

FILE_NAME: Final = "login.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogin:
    """A server's address without a slash at its end, and the key that it takes; None: it asks for none."""

    server: str
    key: str | None


def login_file(settings: Settings | None = None) -> Path:
    """Where it is kept, for its user alone."""
    return (settings or current_settings()).home / "ui" / FILE_NAME


def read_login(settings: Settings | None = None) -> KeptLogin | None:
    """What is kept; None without a login. Raises DataError for a file that cannot be read."""
    path = login_file(settings)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return KeptLogin(server=str(found["server"]), key=None if found["key"] is None else str(found["key"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read: {type(error).__name__}", hint="`tonnage login URL` again") from error


def keep_login(made: KeptLogin, settings: Settings | None = None) -> None:
    """Keep it, whole or not at all, readable by its user alone."""
    path = login_file(settings)
    make_private_folder(path.parent)
    path.touch(mode=0o600)
    write_whole(path, json.dumps({"server": made.server, "key": made.key}))
    path.chmod(0o600)


def forget_login(settings: Settings | None = None) -> bool:
    """Whether there was one."""
    path = login_file(settings)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
