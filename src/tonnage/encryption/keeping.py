"""Where the secret of an encryption may be kept: not beside what it opens, and not one that can be guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.secret_references import read_reference

LEAST_CHARACTERS: Final = 20


def read_key(reference: str, environment: Mapping[str, str], what: str, *, data: Iterable[Path]) -> str:
    """The secret that a reference names. InputError where it lies in or under one of the folders `data`, is shorter
    than 20 characters, or cannot be read; `what` names the key or option."""
    refuse_beside(reference, what, data)
    secret = read_reference(reference, environment, what)
    if len(secret) < LEAST_CHARACTERS:
        raise InputError(f"{what}: the key has {len(secret)} characters, and can be guessed",
                         hint=f"at least {LEAST_CHARACTERS}: `openssl rand -base64 32` makes one")  # fmt: skip
    return secret


def refuse_beside(reference: str, what: str, data: Iterable[Path]) -> None:
    """InputError where a reference names a file in or under one of the folders `data`, also through links."""
    scheme, _, name = reference.partition(":")
    if scheme != "file":
        return
    place = Path(name).resolve()
    for folder in data:
        if place.is_relative_to(folder.resolve()):
            raise InputError(
                f"{what}: {name} lies beside what it encrypts, in {folder}: who copies one has the other",
                hint="keep it elsewhere: another disk, keyring:, vault:, aws:, gcp: or azure: (docs/secrets.md)",
            )
