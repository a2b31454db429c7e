"""Which NVIDIA driver, CUDA and NCCL work together: published tables, each row with its source."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from tonnage.catalog.hardware import Source
from tonnage.catalog.rows import Row, read_rows
from tonnage.values import dataclass

Version = tuple[int, ...]
_VERSION: Final = re.compile(r"\d+(\.\d+){0,3}")
_GOOGLE_BRANCH: Final = re.compile(r"(?:^|-)nvidia-(\d{3})(?:-|$)")
GOOGLE_NAMES: Final = Source(
    text="https://cloud.google.com/deep-learning-vm/docs/images, names such as common-cu129-ubuntu-2204-nvidia-580",
    read_on=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaToolkit:
    """A release, and the driver that it came with: from that on everything it can do works."""

    cuda: Version  # (13, 0)
    driver: Version
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaMajor:
    """A family of releases: `least_driver` runs any of it by minor-version compatibility."""

    major: int
    least_driver: Version
    least_capability: Version  # compute capability of the oldest devices it compiles and has libraries for
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCuda:
    """The first release that compiles for devices of a compute capability."""

    capability: Version
    first_cuda: Version
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclBuild:
    """A release of NCCL, and the releases of CUDA that it was published for."""

    nccl: Version
    cuda: tuple[Version, ...]
    complete: bool  # whether these are all; else those that somebody has used
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDriver:
    """The driver of a machine image; a branch alone, such as (580,), where no more is published."""

    driver: Version
    source: Source


def parse_version(text: str) -> Version:
    """Its numbers. ValueError where it is not one.

    >>> parse_version("580.65.06"), parse_version("12.8")
    ((580, 65, 6), (12, 8))
    """
    if _VERSION.fullmatch(text.strip()) is None:
        raise ValueError(f"'{text}' is no version such as 580.65.06 or 12.8")
    return tuple(int(part) for part in text.strip().split("."))


def show_version(version: Version) -> str:
    """As NVIDIA writes a driver's version: the third number has two digits.

    >>> show_version((580, 65, 6)), show_version((12, 8))
    ('580.65.06', '12.8')
    """
    return ".".join(f"{part:02d}" if place == 2 else str(part) for place, part in enumerate(version))


@cache
def toolkits() -> tuple[CudaToolkit, ...]:
    """Every release of the packaged table, newest first."""
    found = (
        CudaToolkit(cuda=_version(row, "cuda"), driver=_version(row, "driver"), source=row.source())
        for row in _rows("cuda_toolkits.csv", ("cuda", "driver", "source", "read_on"))
    )
    return tuple(sorted(found, key=lambda one: one.cuda, reverse=True))


@cache
def majors() -> dict[int, CudaMajor]:
    """Families of releases by their first number."""
    columns = ("major", "least_driver", "least_capability", "notes", "source", "read_on")
    found = (
        CudaMajor(
            major=_version(row, "major")[0], least_driver=_version(row, "least_driver"),
            least_capability=_version(row, "least_capability"), source=row.source(),
        )
        for row in _rows("cuda_majors.csv", columns)
    )  # fmt: skip
    return {one.major: one for one in found}


@cache
def first_cudas() -> dict[Version, FirstCuda]:
    """By compute capability; older devices than are listed here are in every release of the table that has them."""
    found = (
        FirstCuda(capability=_version(row, "capability"), first_cuda=_version(row, "first_cuda"), source=row.source())
        for row in _rows("cuda_capabilities.csv", ("capability", "first_cuda", "devices", "source", "read_on"))
    )
    return {one.capability: one for one in found}


@cache
def nccl_builds() -> dict[Version, NcclBuild]:
    """By NCCL's version."""
    found = (
        NcclBuild(
            nccl=_version(row, "nccl"), cuda=tuple(map(parse_version, row.text("cuda").split())),
            complete=row.one_of("all_builds", ("yes", "no")) == "yes", source=row.source(),
        )
        for row in _rows("nccl_builds.csv", ("nccl", "cuda", "all_builds", "source", "read_on"))
    )  # fmt: skip
    return {one.nccl: one for one in found}


def driver_of_image(name: str) -> KnownDriver | None:
    """Of a machine image by its published name; None where nothing is known.

    >>> driver_of_image("common-cu129-ubuntu-2204-nvidia-580").driver
    (580,)
    >>> driver_of_image("debian-12") is None
    True
    """
    known = _image_drivers().get(name)
    if known is None and (branch := _GOOGLE_BRANCH.search(name)) is not None:
        return KnownDriver(driver=(int(branch[1]),), source=GOOGLE_NAMES)
    return known


@cache
def _image_drivers() -> dict[str, KnownDriver]:
    return {
        row.text("image"): KnownDriver(driver=_version(row, "driver"), source=row.source())
        for row in _rows("image_drivers.csv", ("image", "driver", "source", "read_on"))
    }


def _rows(name: str, columns: tuple[str, ...]) -> list[Row]:
    return list(read_rows(files("tonnage.catalog") / "data" / name, columns))


def _version(row: Row, column: str) -> Version:
    try:
        return parse_version(row.text(column))
    except ValueError as error:
        row.fail(column, str(error))
