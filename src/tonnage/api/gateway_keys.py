"""Encryption of what a gateway keeps: its data keys opened and rotated, encrypted lines of its log read.

A note at home, without a secret, says how each gateway encrypts: whether, with the key of which store, and when its
newest data key was made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import DataError, InputError
from tonnage.files import make_private_folder, write_whole
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.gateway.file.described import Gateway
WHAT = "encrypt.key"
NOTES: Final = Path("gateway", "encryption-notes")  # in the home: one for each gateway file


def with_state_keys(gateway: Gateway, settings: Settings) -> Gateway:
    """The gateway with its data keys; as it is where its file encrypts nothing.

    InputError where the key is not there, can be guessed or lies beside what it encrypts; DataError where it is another
    than the data keys were wrapped with.
    """
    from tonnage.gateway.state_keys import open_state_keys

    if gateway.encrypt is None:
        return gateway
    secret = _secret(gateway, gateway.encrypt.key, WHAT, settings)
    return replace(gateway, state_keys=open_state_keys(gateway.store, secret, what=WHAT))


def rotate_gateway_keys(
    path: Path | str, *, before: str | None = None, settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> int:  # fmt: skip
    """Wrap the data keys with the key that the file names now, and make a new one for what is kept from now on. How
    many data keys there are then: older ones open what was kept before.

    `before`: a reference to the key that they are wrapped with; None: the same as now. A gateway that runs takes it at
    SIGHUP. `say` is called where the keys are rotated and the note for `tonnage compliance` cannot be written. Raises
    as `with_state_keys`.
    """
    from tonnage.api.gateway import load_gateway_file
    from tonnage.gateway.state_keys import rotate_state_keys

    settings = settings or current_settings()
    gateway = load_gateway_file(path, settings=settings)
    if gateway.encrypt is None:
        raise InputError(f"{path} encrypts nothing", hint="`encrypt: {key: env:NAME}`")
    after = _secret(gateway, gateway.encrypt.key, WHAT, settings)
    old, what = (after, WHAT) if before is None else (_secret(gateway, before, "--from", settings), "--from")
    count = rotate_state_keys(gateway.store, old, after, what=what)
    try:
        note_encryption(settings.home, gateway, path, datetime.now(UTC))
    except OSError as error:  # the keys are rotated all the same
        if say is not None:
            say(f"the keys are rotated, which is not noted for `tonnage compliance`: {error}")
    return count


def read_request_log(path: Path | str, log: Path | str, *, settings: Settings | None = None) -> Iterator[str]:
    """The lines of a file of the request log with their bodies in the clear. DataError names the line whose body does
    not open."""
    from tonnage.api.gateway import load_gateway_file
    from tonnage.gateway.observing.request_log import opened_line

    settings = settings or current_settings()
    gateway = with_state_keys(load_gateway_file(path, settings=settings), settings)
    try:
        with Path(log).open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield json.dumps(opened_line(json.loads(line), gateway.state_keys), ensure_ascii=False)
                except (DataError, ValueError) as error:
                    hint = error.hint if isinstance(error, DataError) else "is it a file of the request log?"
                    raise DataError(f"{log}:{number}: {error}", hint=hint) from error
    except OSError as error:
        raise InputError(f"{log} cannot be read: {error.strerror}", hint="a file of the request log") from error


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


def _secret(gateway: Gateway, reference: str, what: str, settings: Settings) -> str:
    from tonnage.encryption.data_keys import read_key

    beside = [settings.home]
    if "://" not in gateway.store:
        beside.append(Path(gateway.store).parent)
    if gateway.request_log is not None and gateway.request_log.folder is not None:
        beside.append(Path(gateway.request_log.folder))
    return read_key(reference, os.environ, what, data=beside)


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
