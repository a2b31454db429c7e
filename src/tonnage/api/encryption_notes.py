"""How each gateway of a home encrypts what it keeps, noted where it starts and where its keys are rotated.

The note holds no secret: whether, with the key of which store, and when its newest data key was made.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.files import make_private_folder, write_whole
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.gateway.file.described import Gateway

NOTE: Final = "encryption-note.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionNote:
    """`file`: the gateway file; `key_from`: the scheme of its key's reference, None where it encrypts nothing;
    `keys`: data keys there are; `newest_at`: when the newest was made; `plain`: what stays readable."""

    file: str
    at: datetime
    key_from: str | None = None
    keys: int = 0
    newest_at: datetime | None = None
    plain: tuple[str, ...] = ()


def note_encryption(folder: Path, gateway: Gateway, file: Path | str, now: datetime) -> None:
    """Write down how a gateway encrypts, in its `folder` of the home. Raises OSError, AccountsError."""
    from tonnage.gateway.state_keys import state_keys_made

    values: dict[str, Any] = {"file": str(Path(file).absolute()), "at": now.isoformat()}
    if gateway.encrypt is not None:
        made = state_keys_made(gateway.store)
        values |= {"key_from": gateway.encrypt.key.partition(":")[0], "keys": len(made),
                   "newest_at": max(made).isoformat(), "plain": list(gateway.encrypt.plain)}  # fmt: skip
    make_private_folder(folder)
    write_whole(folder / NOTE, json.dumps(values) + "\n")


def read_encryption_notes(home: Path) -> tuple[EncryptionNote, ...]:
    """The notes of a home, in the order of their files."""
    found = []
    for path in (home / "gateway").glob(f"*/{NOTE}"):
        values = json.loads(path.read_text(encoding="utf-8"))
        newest = values.get("newest_at")
        found.append(EncryptionNote(
            file=values["file"], at=datetime.fromisoformat(values["at"]), key_from=values.get("key_from"),
            keys=values.get("keys", 0), plain=tuple(values.get("plain", ())),
            newest_at=None if newest is None else datetime.fromisoformat(newest),
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.file))
