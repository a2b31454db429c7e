"""`places.toml`: the places of a project or a home, by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.places.aws.ec2_place import EC2Place
from tonnage.places.aws.sagemaker_place import SageMakerPlace
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.google.place import GCEPlace
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.ray.place import RayPlace
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.places.terms import PlaceTerms

FILE_NAME: Final = "places.toml"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class LocalPlace(PlaceTerms):
    """This machine. It is never written down: its name is `local`, its figures are looked up."""

    kind: Literal["local"]


class SlurmPlace(PlaceTerms):
    """A partition of a Slurm cluster whose login node this is."""

    kind: Literal["slurm"]
    partition: str | None = None  # None: the cluster's default
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    nodes: Annotated[int, Field(ge=1, le=1024)] = 1  # of one run; more than one: the runner `torchrun`
    time_limit_minutes: Annotated[int, Field(ge=1)]
    setup: Annotated[
        tuple[str, ...], Field(strict=False)
    ] = ()  # lines of shell before the run, such as `module load cuda`

    @property
    def machines(self) -> int:
        return self.nodes

    @property
    def where(self) -> str:
        return self.partition or ""

    @property
    def longest_job_h(self) -> float | None:
        return self.time_limit_minutes / 60


class SSHPlace(PlaceTerms):
    """A machine with an SSH server. What is left out here is as `~/.ssh/config` says."""

    kind: Literal["ssh"]
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:%-]*$")]  # a name, an address, or an alias
    user: str | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key: str | None = None  # the file of a private key
    jump: str | None = None  # [USER@]HOST[:PORT] of the machine in between
    known_hosts: str | None = None  # a file of host keys
    folder: Annotated[str, Field(pattern=r"^/[^\n]*[^/\n]$")]  # there: runs, inputs and code lie in it
    python: str = "python3"  # there, with what runs need installed
    wheels: Annotated[tuple[str, ...], Field(strict=False)] = ()  # of the project's own code, sent with each run
    env: Annotated[dict[str, str], Field(default_factory=dict)]  # of runs there
    share: bool = False  # a run may start beside the work of others
    free_gib: Annotated[float, Field(ge=0)] = 1.0  # the least room that a run starts with

    @property
    def where(self) -> str:
        return self.host


WrittenPlace = Annotated[
    SlurmPlace
    | SSHPlace
    | KubernetesPlace
    | SageMakerPlace
    | EC2Place
    | GCEPlace
    | DatabricksPlace
    | RayPlace
    | SkyPilotPlace,
    Field(discriminator="kind"),
]  # the kinds that places.toml may name
AnyPlace = WrittenPlace | LocalPlace
LOCAL: Final = "local"  # this machine's name among places
CHOSEN: Final = frozenset({LOCAL, "any", "plan"})  # what `--on` takes beside the names of places
_ADAPTER: Final[TypeAdapter[WrittenPlace]] = TypeAdapter(WrittenPlace)


def places_files(home: Path, project: Path) -> tuple[Path, ...]:
    """Where places are written down: the nearest `places.toml` from the project's folder upward, and that at home."""
    near = next((file for folder in (project, *project.parents) if (file := folder / FILE_NAME).is_file()), None)
    found = [*([near] if near else []), *([home / FILE_NAME] if (home / FILE_NAME).is_file() else [])]
    return tuple(dict.fromkeys(found))


def read_places(files: tuple[Path, ...]) -> dict[str, WrittenPlace]:
    """Every place by its name; of two with one name the project's. InputError names file and key of what is wrong."""
    found: dict[str, WrittenPlace] = {}
    for file in reversed(files):
        found |= dict(_places_of(file))
    return found


def find_place(name: str, places: Mapping[str, WrittenPlace], *, home: Path) -> tuple[str, WrittenPlace]:
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


def _places_of(file: Path) -> Iterator[tuple[str, WrittenPlace]]:
    try:
        read: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}", hint="places.toml is TOML: [places.NAME]") from error
    if set(read) - {"places"}:
        raise InputError(f"{file}: {min(set(read) - {'places'})}: not a key", hint="every place is a [places.NAME]")
    for name, values in read.get("places", {}).items():
        if not NAME.fullmatch(name) or name in CHOSEN:
            raise InputError(
                f"{file}: '{name}' cannot be the name of a place",
                hint="letters, digits, - and _; not local, any or plan",
            )
        try:
            yield name, _ADAPTER.validate_python(values)
        except ValidationError as error:
            first: Any = error.errors()[0]
            within = [str(part) for part in first["loc"]]
            key = ".".join(("places", name, *within[within[:1] == [values.get("kind")] :]))
            said = str(first["msg"]).removeprefix("Value error, ")
            raise InputError(f"{file}: {key}: {said}", hint="docs/places.md lists the keys") from error
