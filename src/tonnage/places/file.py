"""`places.toml`: the places of a project or a home, by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.workload.file.fields import StrictModel

FILE_NAME: Final = "places.toml"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class SlurmPlace(StrictModel):
    """A partition of a Slurm cluster whose login node this is. Figures are those of one node of the run."""

    kind: Literal["slurm"]
    partition: str | None = None  # None: the cluster's default
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    cores: Annotated[int, Field(ge=1)]
    memory_gib: Annotated[float, Field(gt=0)]
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu: str | None = None  # the type in `--gres=gpu:TYPE:N`; None: any
    gpu_memory_gib: Annotated[float, Field(gt=0)] | None = None
    time_limit_minutes: Annotated[int, Field(ge=1)]
    grace_s: Annotated[int, Field(ge=5, le=3600)] = 60  # to save in, before the time limit or a preemption
    python: str | None = None  # on the nodes; None: this one
    setup: Annotated[
        tuple[str, ...], Field(strict=False)
    ] = ()  # lines of shell before the run, such as `module load cuda`
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None  # of one node
    like_this_machine: bool = False  # its nodes are such machines as this one: its measurements predict runs there


AnyPlace = SlurmPlace
_ADAPTER: Final[TypeAdapter[SlurmPlace]] = TypeAdapter(SlurmPlace)


def places_files(home: Path, project: Path) -> tuple[Path, ...]:
    """Where places are written down: the nearest `places.toml` from the project's folder upward, and that at home."""
    near = next((file for folder in (project, *project.parents) if (file := folder / FILE_NAME).is_file()), None)
    found = [*([near] if near else []), *([home / FILE_NAME] if (home / FILE_NAME).is_file() else [])]
    return tuple(dict.fromkeys(found))


def read_places(files: tuple[Path, ...]) -> dict[str, AnyPlace]:
    """Every place by its name; of two with one name the project's. InputError names file and key of what is wrong."""
    found: dict[str, AnyPlace] = {}
    for file in reversed(files):
        found |= dict(_places_of(file))
    return found


def find_place(name: str, places: Mapping[str, AnyPlace], *, home: Path) -> tuple[str, AnyPlace]:
    """The place that `NAME` or `KIND:NAME` means. UnknownName lists those there are."""
    kind, colon, rest = name.partition(":")
    wanted = rest if colon else name
    if wanted not in places:
        known = f"places: {', '.join(places)}" if places else f"write it into {home / FILE_NAME}: docs/places.md"
        close = nearest(wanted, places)
        raise UnknownName(f"no place is named '{wanted}'", suggestions=close, hint=did_you_mean(close, known))
    if colon and places[wanted].kind != kind:
        raise InputError(f"the place '{wanted}' is of the kind {places[wanted].kind}", hint=f"--on {wanted}")
    return wanted, places[wanted]


def _places_of(file: Path) -> Iterator[tuple[str, AnyPlace]]:
    try:
        read: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}", hint="places.toml is TOML: [places.NAME]") from error
    if set(read) - {"places"}:
        raise InputError(f"{file}: {min(set(read) - {'places'})}: not a key", hint="every place is a [places.NAME]")
    for name, values in read.get("places", {}).items():
        if not NAME.fullmatch(name) or name == "local":
            raise InputError(f"{file}: '{name}' cannot be the name of a place", hint="letters, digits, - and _")
        try:
            yield name, _ADAPTER.validate_python(values)
        except ValidationError as error:
            first: Any = error.errors()[0]
            key = ".".join(("places", name, *(str(part) for part in first["loc"])))
            raise InputError(f"{file}: {key}: {first['msg']}", hint="docs/places.md lists the keys") from error
