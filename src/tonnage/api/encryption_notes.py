"""How each gateway of a home encrypts what it keeps, noted where it starts and where its keys are rotated.

The note holds no secret: whether, with the key of which store, and when its newest data key was made.
"""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.files import make_private_folder, write_whole
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.gateway.file.described import Gateway

NOTES: Final = Path("gateway", "encryption-notes")  # in the home: one for each gateway file


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


def note_encryption(home: Path, gateway: Gateway, file: Path | str, now: datetime) -> None:
    """Write down in the home how the gateway of a file encrypts. Raises OSError, AccountsError."""
    from tonnage.gateway.state_keys import state_keys_made

    name = str(Path(file).absolute())
    values: dict[str, Any] = {"file": name, "at": now.isoformat()}
    if gateway.encrypt is not None:
        made = state_keys_made(gateway.store)
        values |= {"key_from": gateway.encrypt.key.partition(":")[0], "keys": len(made),
                   "newest_at": max(made).isoformat(), "plain": list(gateway.encrypt.plain)}  # fmt: skip
    make_private_folder(home / NOTES)
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    write_whole(home / NOTES / f"{digest}.json", json.dumps(values) + "\n")


def read_encryption_notes(home: Path) -> tuple[tuple[EncryptionNote, ...], str | None]:
    """The notes of a home whose gateway files are still there, in the order of these; and why some cannot be read."""
    found, faults = [], []
    for path in sorted((home / NOTES).glob("*.json")):
        try:
            note = _note_in(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            faults.append(f"{path} cannot be read ({error}): start its gateway again, or remove it")
            continue
        if Path(note.file).exists():
            found.append(note)
    return tuple(sorted(found, key=lambda one: one.file)), "; ".join(faults) or None


def _note_in(text: str) -> EncryptionNote:
    """ValueError, KeyError or TypeError for what is no note."""
    values = json.loads(text)
    file, at = str(values["file"]), datetime.fromisoformat(values["at"])
    newest = values.get("newest_at")
    return EncryptionNote(
        file=file, at=at, key_from=values.get("key_from"), keys=values.get("keys", 0),
        plain=tuple(values.get("plain", ())),
        newest_at=None if newest is None else datetime.fromisoformat(newest),
    )  # fmt: skip
