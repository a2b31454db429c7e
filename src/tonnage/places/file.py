"""`places.toml`: the places of a project or a home, by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.places.terms import PlaceTerms
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.aws.place import BatchPlace, EC2Place, SageMakerPlace
    from tonnage.places.azure.place import AzureMLPlace, AzurePlace
    from tonnage.places.databricks.place import DatabricksPlace
    from tonnage.places.digitalocean.place import DigitalOceanPlace
    from tonnage.places.google.place import GCEPlace, VertexPlace
    from tonnage.places.kubernetes.place import KubernetesPlace
    from tonnage.places.ray.place import RayPlace
    from tonnage.places.skypilot.place import SkyPilotPlace
    from tonnage.places.spark.place import SparkPlace

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


if TYPE_CHECKING:
    CloudPlace = (  # clouds that `BucketRuns` serves as they are
        SageMakerPlace
        | EC2Place
        | BatchPlace
        | VertexPlace
        | AzurePlace
        | AzureMLPlace
        | DigitalOceanPlace
        | DatabricksPlace
        | SkyPilotPlace
    )
    WrittenPlace = SlurmPlace | SSHPlace | KubernetesPlace | GCEPlace | RayPlace | SparkPlace | CloudPlace
    AnyPlace = WrittenPlace | LocalPlace

KINDS: Final[Mapping[str, str]] = {  # that places.toml may name: where each is written down
    "slurm": "file.SlurmPlace",
    "ssh": "file.SSHPlace",
    "kubernetes": "kubernetes.place.KubernetesPlace",
    "sagemaker": "aws.place.SageMakerPlace",
    "ec2": "aws.place.EC2Place",
    "aws-batch": "aws.place.BatchPlace",
    "gce": "google.place.GCEPlace",
    "vertex": "google.place.VertexPlace",
    "azure": "azure.place.AzurePlace",
    "azureml": "azure.place.AzureMLPlace",
    "digitalocean": "digitalocean.place.DigitalOceanPlace",
    "databricks": "databricks.place.DatabricksPlace",
    "ray": "ray.place.RayPlace",
    "skypilot": "skypilot.place.SkyPilotPlace",
    "spark": "spark.place.SparkPlace",
}


def model_of(kind: str) -> type[WrittenPlace]:
    """What is written down of a kind; its module is loaded when a place is of it."""
    module, _, name = KINDS[kind].rpartition(".")
    found: type[WrittenPlace] = getattr(import_module(f"tonnage.places.{module}"), name)
    return found


GONE: Final[Mapping[str, tuple[str, str]]] = {
    "aci": (
        "Azure Container Instances offers no GPUs any more: they were retired",
        'kind = "azure" is a virtual machine with GPUs, "azureml" a job on nodes of Azure ML, "kubernetes" with '
        'cluster = "aks" a cluster of them',
    ),
}  # what is asked for and is no kind: why, and what to take instead
LOCAL: Final = "local"  # this machine's name among places
CHOSEN: Final = frozenset({LOCAL, "any", "plan"})  # what `--on` takes beside the names of places


def places_files(home: Path, project: Path) -> tuple[Path, ...]:
    """Where places are written down: the nearest `places.toml` from the project's folder upward, and that at home."""
    near = next((file for folder in (project, *project.parents) if (file := folder / FILE_NAME).is_file()), None)
    found = [*([near] if near else []), *([home / FILE_NAME] if (home / FILE_NAME).is_file() else [])]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class ReadPlaces:
    """What places.toml says: the places, and what is wrong with a table that is invalid."""

    places: Mapping[str, WrittenPlace]
    faults: Mapping[str, InputError]

    @property
    def names(self) -> tuple[str, ...]:
        """All that are written down, in their order; those that cannot be used come last."""
        return (*self.places, *self.faults)


def read_places(files: tuple[Path, ...], *, only: str | None = None) -> ReadPlaces:
    """Every place by its name, or `only` that of one; of two with one name the project's, right or wrong.

    InputError where a file is no TOML, or has something else than places; a fault of one table is that place's alone.
    """
    found: dict[str, WrittenPlace | InputError] = {}
    for file in reversed(files):
        found |= _read_once(file, _version_of(file), only)
    return ReadPlaces(
        {name: one for name, one in found.items() if not isinstance(one, InputError)},
        {name: one for name, one in found.items() if isinstance(one, InputError)},
    )


def name_of(on: str) -> str:
    """The place's name in `NAME` or `KIND:NAME`.

    >>> name_of("slurm:cluster"), name_of("cluster")
    ('cluster', 'cluster')
    """
    return on.partition(":")[2] or on


def find_place(name: str, read: ReadPlaces, *, home: Path) -> tuple[str, WrittenPlace]:
    """The place that `NAME` or `KIND:NAME` means. UnknownName lists those there are; InputError where its table is
    wrong."""
    kind, colon, rest = name.partition(":")
    wanted, places = rest if colon else name, read.places
    if wanted in read.faults:
        raise read.faults[wanted]
    if wanted not in places:
        names = read.names
        known = f"places: {', '.join(names)}" if names else f"write it into {home / FILE_NAME}: docs/places.md"
        close = nearest(wanted, names)
        raise UnknownName(f"no place is named '{wanted}'", suggestions=close, hint=did_you_mean(close, known))
    if colon and places[wanted].kind != kind:
        raise InputError(f"the place '{wanted}' is of the kind {places[wanted].kind}", hint=f"--on {wanted}")
    return wanted, places[wanted]


def _version_of(file: Path) -> tuple[int, ...]:
    """What changes when a file does; empty where it cannot be looked at: reading it says why."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=8)
def _read_once(file: Path, version: tuple[int, ...], only: str | None) -> Mapping[str, WrittenPlace | InputError]:  # noqa: ARG001
    """A run asks for its place more than once; each version of a file is read and checked once."""
    return dict(_places_of(file, only))


def _places_of(file: Path, only: str | None) -> Iterator[tuple[str, WrittenPlace | InputError]]:
    try:
        read: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}", hint="places.toml is TOML: [places.NAME]") from error
    if set(read) - {"places"}:
        raise InputError(f"{file}: {min(set(read) - {'places'})}: not a key", hint="every place is a [places.NAME]")
    named = read.get("places", {})
    if not isinstance(named, dict):
        raise InputError(f"{file}: places: not a table", hint="every place is a [places.NAME]")
    for name, values in named.items():
        if only is not None and name != only:
            continue
        try:
            yield name, _place(file, name, values)
        except InputError as fault:
            yield name, fault


def _place(file: Path, name: str, values: Any) -> WrittenPlace:
    if not NAME.fullmatch(name) or name in CHOSEN:
        raise InputError(
            f"{file}: '{name}' cannot be the name of a place", hint="letters, digits, - and _; not local, any or plan"
        )
    if not isinstance(values, dict):
        raise InputError(f"{file}: places.{name}: not a table", hint=f"[places.{name}] and its keys below")
    kind = values.get("kind")
    if isinstance(kind, str) and kind in GONE:
        why, instead = GONE[kind]
        raise InputError(f"{file}: places.{name}.kind: {why}", hint=instead)
    if not isinstance(kind, str) or kind not in KINDS:
        said = "is missing" if kind is None else f"no kind is named '{kind}'"
        hint = did_you_mean(nearest(str(kind or ""), KINDS, count=1), f"kinds: {', '.join(KINDS)}")
        raise InputError(f"{file}: places.{name}.kind: {said}", hint=hint)
    model = model_of(kind)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        from tonnage.workload.file.tables import refuse_table  # where it is needed alone: it loads all kinds of files

        raise refuse_table(
            error, model, values, file=str(file), table=("places", name), page="docs/places.md"
        ) from error
