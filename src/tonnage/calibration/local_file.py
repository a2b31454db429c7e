"""Device profiles as files: `tonnage/device-profile@1`, written whole or not at all, equal profiles as equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tonnage.calibration.local_profile import SCHEMA, DeviceKind, DeviceProfile, MachineIdentity
from tonnage.calibration.store import plain_value, rebuild
from tonnage.errors import InputError, TonnageError, UnknownName, nearest
from tonnage.files import save_for_user

HINT: Final = "measure this machine: `tonnage calibrate --local`"
LARGEST_BYTES: Final = 64 * 2**20


def profile_text(profile: DeviceProfile) -> str:
    """The file's text."""
    document = {"schema": SCHEMA, **plain_value(profile)}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def save_profile(profile: DeviceProfile, path: Path) -> None:
    """Write the profile's file. Raises InputError where that cannot be done."""
    save_for_user(path, profile_text(profile), parents=True)


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a file. Raises InputError where it is not one, damaged, or of another version."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"{path} is too large for a device profile", hint=HINT)
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as a device profile: {error}", hint=HINT) from error
    if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
        raise InputError(f"{path} is not a device profile of this version ({SCHEMA})", hint=HINT)
    try:
        profile: DeviceProfile = rebuild(DeviceProfile, document)
        profile.check()
    except (KeyError, TypeError, ValueError, AttributeError, TonnageError) as error:
        raise InputError(f"{path} is damaged: {error}", hint=HINT) from error
    return profile


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a figure")


def devices_folder(home: Path) -> Path:
    return home / "devices"


def stored_profiles(home: Path) -> Iterator[Path]:
    """Profile files at home, by name."""
    folder = devices_folder(home)
    yield from sorted(folder.glob("[!.]*.json")) if folder.is_dir() else ()


def find_profile(
    wanted: str, home: Path, here: MachineIdentity, *, other_machine: bool = False, kind: DeviceKind | None = None
) -> DeviceProfile:
    """The profile that `wanted` names: `local` (the newest of this machine, of its `kind` where that is given), a name
    at home, or a file.

    One of another machine is refused unless `other_machine` asks for it.
    """
    if wanted == "local":
        return _newest_here(home, here, kind)
    path = Path(wanted) if wanted.endswith(".json") else devices_folder(home) / f"{wanted}.json"
    if not path.is_file():
        names = [one.stem for one in stored_profiles(home)]
        few = f"measured: {', '.join(names)}" if names else HINT
        raise UnknownName(f"no device profile '{wanted}'", suggestions=nearest(wanted, names), hint=few)
    profile = read_profile(path)
    if not other_machine and not profile.identity.same_machine(here):
        raise InputError(
            f"{path} is of another machine: {_machine(profile.identity)}; this one is {_machine(here)}",
            hint=f"--other-machine plans for that one; {HINT}",
        )
    return profile


def _newest_here(home: Path, here: MachineIdentity, kind: DeviceKind | None) -> DeviceProfile:
    read = [read_profile(path) for path in stored_profiles(home)]
    every = [one for one in read if one.identity.same_machine(here)]
    mine = [one for one in every if kind is None or one.kind == kind]
    if every and not mine:
        known = max(every, key=lambda one: (one.made_at, one.name))
        hint = f"`tonnage calibrate --local --device {kind}`"
        raise InputError(f"this machine's {known.kind} has been measured, the run is on {kind}", hint=hint)
    if not mine:
        others = f" ({len(read)} of other machines)" if read else ""
        raise InputError(f"no device profile of this machine in {devices_folder(home)}{others}", hint=HINT)
    return max(mine, key=lambda one: (one.made_at, one.name))


def _machine(one: MachineIdentity) -> str:
    return f"{one.device or one.processor}, {one.physical_cores} cores"
