"""What an image holds, from the workload that it is to carry out, with versions that are known to work together."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

from tonnage.errors import DataError, InputError
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob, TrainJob, Workload

Device = Literal["cpu", "cuda", "rocm"]
OWN: Final = "tonnage"
_RUNS: Final = re.compile(r"[-_.]+")
DEVICES: Final = get_args(Device)
PLATFORMS: Final = ("linux/amd64", "linux/arm64")
DEFAULT_BASE: Final = "docker.io/library/python:3.12-slim-bookworm"
# PyTorch's own index of builds without CUDA; PyPI's builds for Linux on x86 carry CUDA.
# Source: pytorch.org/get-started/locally, «Compute Platform: CPU».
CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
USER: Final = 1000  # places.toml has the same default for pods
SERVICE_PORT: Final = 8000
_BASE: Final = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?", re.ASCII)
_NAME: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """An image, before anything is built.

    `requirement` is what pip is given for Tonnage itself: a wheel of the build's folder, or a release by name.
    `swapped`: a package that takes another's place on this device, (out, in). `torch_index`: where pip also looks.
    """

    name: str
    requirement: str
    extras: tuple[str, ...]
    device: Device
    platforms: tuple[str, ...]
    base: str
    torch_index: str | None
    swapped: tuple[tuple[str, str], ...]
    serves: bool
    user: int

    @property
    def pinned(self) -> bool:
        """Whether the base is named by its digest: a tag may be another image tomorrow."""
        return "@sha256:" in self.base


def image_recipe(
    workload: Workload,
    *,
    requirement: str,
    version: str,
    device: Device | None = None,
    platforms: tuple[str, ...] = (),
    base: str = DEFAULT_BASE,
    torch_index: str | None = None,
    user: int = USER,
    name: str | None = None,
) -> ImageRecipe:
    """The image that carries out a workload: its extras and device follow from the kind of job.

    Without a device trainings are for CUDA; tables and encoder services are for processors. Raises InputError where
    no such image can be: a service that generates tokens (its engine's makers publish one), ROCm without an index of
    its PyTorch builds, or on Arm.
    """
    job = workload.job
    kind_device: Device = "cuda" if isinstance(job, TrainJob) else "cpu"
    chosen = device or kind_device
    where = platforms or ("linux/amd64",)
    _check(chosen, where, base, torch_index)
    extras, needs_torch = _extras(workload)
    swapped = (("xgboost-cpu", "xgboost"),) if "tabular" in extras and chosen == "cuda" else ()
    index = torch_index if torch_index or chosen != "cpu" or not needs_torch else CPU_INDEX
    plain = _NAME.sub("-", workload.name.casefold()).strip("-") or "work"
    return ImageRecipe(
        name=name or f"tonnage-{plain}:{version}-{chosen}", requirement=requirement, extras=extras, device=chosen,
        platforms=where, base=base, torch_index=index, swapped=swapped, serves=workload.is_service, user=user,
    )  # fmt: skip


def _extras(workload: Workload) -> tuple[tuple[str, ...], bool]:
    """Extras of the package, and whether they bring PyTorch. `fetch` reads and writes the buckets of places."""
    job = workload.job
    if isinstance(job, TabularJob):
        return (("tabular", "fetch"), False) if job.method == "boosted-trees" else (("train", "fetch"), True)
    if isinstance(job, TrainJob):
        return ("train", "fetch", *(("qlora",) if job.method == "qlora" else ())), True
    if job.requests.output_tokens is not None:
        raise InputError(
            f"{workload.name} generates tokens: its engine's makers publish an image",
            hint="`tonnage serve FILE --dry-run` names it, with the command that starts it",
        )
    return ("serve", "train", "fetch"), True


def _check(device: str, platforms: tuple[str, ...], base: str, torch_index: str | None) -> None:
    if device not in DEVICES:
        raise InputError(f"no device '{device}'", hint=f"one of {', '.join(DEVICES)}")
    for platform in platforms:
        if platform not in PLATFORMS:
            raise InputError(f"no images for the platform '{platform}'", hint=f"one of {', '.join(PLATFORMS)}")
    if not _BASE.fullmatch(base):
        raise InputError(f"'{base}' names no image", hint=f"such as {DEFAULT_BASE} or NAME@sha256:DIGEST")
    if device == "rocm":
        if "linux/arm64" in platforms:
            raise InputError("ROCm runs on x86 alone", hint="leave linux/arm64 out, or build it for cpu")
        if torch_index is None:
            raise InputError(
                "PyTorch for ROCm is in an index of its own, one for each ROCm",
                hint="--torch-index https://download.pytorch.org/whl/rocmVERSION, of the ROCm of your hosts",
            )


# Source: CycloneDX v1.6, cyclonedx.org/docs/1.6/json; package URLs: github.com/package-url/purl-spec (pypi, deb).
_SPACE: Final = uuid.UUID("5a0cf1b2-6c1e-5d3b-9f52-0d5a9a6c7d11")


def bill_of_materials(image: str, digest: str, pip: Mapping[str, Any], system: str) -> str:
    """JSON of an image's packages. `pip`: what `pip inspect` prints; `system`: lines NAME<tab>VERSION of dpkg-query.

    The same packages in the same image give the same text. Raises DataError where `pip` is not what pip prints.
    """
    try:
        python = [_python_part(one["metadata"]) for one in pip["installed"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"the list of packages in {image} is not what `pip inspect` prints: {error}") from error
    parts = sorted([*python, *_system_parts(system.splitlines())], key=lambda part: str(part["purl"]))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, json.dumps([image, digest, parts]))}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": digest, "name": image, "version": digest}},
        "components": parts,
    }
    return json.dumps(document, indent=1) + "\n"


def normal_name(name: str) -> str:
    """A package's name as indexes compare it: PEP 503.

    >>> normal_name("Typing_Extensions")
    'typing-extensions'
    """
    return _RUNS.sub("-", name).casefold()


def installed_pins(found: Iterable[Distribution] | None = None, swapped: Iterable[tuple[str, str]] = ()) -> str:
    """A constraints file of what is installed here, by name.

    A constraint holds for a package that is asked for, and asks for none. Builds of one device («2.13.0+cpu») are named
    without it, so that the image gets its own; what was installed from a folder or a file is left out.
    `swapped`: (a package, the one that takes its place at the same version).
    """
    pins: dict[str, str] = {}
    for one in distributions() if found is None else found:
        name, version = one.metadata["Name"], one.version
        if name is None or normal_name(name) == OWN or one.read_text("direct_url.json") is not None:
            continue
        pins.setdefault(normal_name(name), version.partition("+")[0])
    pins |= {into: pins[out] for out, into in swapped if out in pins}
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def _python_part(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name, version = normal_name(metadata["name"]), metadata["version"]
    purl = f"pkg:pypi/{name}@{quote(version, safe='.')}"
    part: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if expression := metadata.get("license_expression"):
        part["licenses"] = [{"expression": expression}]
    return part


def _system_parts(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        name, tab, version = line.partition("\t")
        if not tab:
            continue
        plain = name.partition(":")[0]
        purl = f"pkg:deb/debian/{plain}@{quote(version, safe='.')}"
        yield {"type": "library", "bom-ref": purl, "name": plain, "version": version, "purl": purl}
