"""Whether the GPUs' driver at a place runs what a run brings: CUDA of its PyTorch, devices, NCCL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.cuda import KnownDriver, Version, driver_of_image, parse_version, show_version
from tonnage.catalog.cuda_compatibility import Compatibility, check_all
from tonnage.catalog.cuda_packages import cuda_of, is_cpu_build, nccl_fault, nccl_of
from tonnage.catalog.hardware import Accelerator, Source
from tonnage.catalog.loading import load_catalog
from tonnage.places.contract import PlaceFinding
from tonnage.places.terms import VERSION, PlaceTerms

KINDS: Final[Mapping[str, Literal["refused", "doubtful", "unchecked"]]] = {
    "fails": "refused", "limited": "doubtful", "unknown": "unchecked",
}  # of findings, by verdict  # fmt: skip
HOW_CUDA: Final = '`python -c "import torch; print(torch.version.cuda)"` in the image prints it'
HOW_DRIVER: Final = "`nvidia-smi --query-gpu=driver_version --format=csv,noheader` on a machine of it prints it"
_BRAND: Final = re.compile(r"^(nvidia[-_ ](tesla[-_ ])?)|([-_ ]\d+gb)$", re.IGNORECASE)


def software_at(
    place: PlaceTerms, name: str, *, driver: KnownDriver | None = None, packages: Mapping[str, str] | None = None
) -> Iterator[PlaceFinding]:
    """The questions, with devices of the packaged catalog, and the driver of the image that its machines boot."""
    if not place.gpus:
        return
    image = getattr(place, "machine_image", None)
    known = driver if driver is not None or image is None else driver_of_image(image)
    yield from software_questions(
        place, name, devices=devices_of(place, load_catalog()), driver=known, packages=packages
    )


def software_questions(
    place: PlaceTerms, name: str, *, devices: tuple[Accelerator, ...], driver: KnownDriver | None = None,
    packages: Mapping[str, str] | None = None,
) -> Iterator[PlaceFinding]:  # fmt: skip
    """Every question of a place with GPUs of NVIDIA; what is unknown is reported as unknown.

    `devices`: those that its GPUs may be. `driver`: as the place itself, or its image's publisher, says it: it goes
    before what is written down. `packages`: of the Python there, where it can be looked at.
    """
    if not place.gpus or any(one.vendor != "NVIDIA" for one in devices):
        return
    key, has = f"places.{name}", packages or {}
    if is_cpu_build(has):
        hint = "`pip uninstall torch`, then `pip install torch` there (a CUDA build)"
        yield PlaceFinding(kind="doubtful", message=f"its PyTorch {has['torch']} is built without CUDA", hint=hint)
        return
    cuda = cuda_of(has) or _written(place.cuda)
    known = driver.driver if driver is not None else _written(place.driver)
    if cuda is None:
        said = "whether the GPUs' driver runs the run's CUDA: it is not known which CUDA PyTorch has"
        yield PlaceFinding(kind="unchecked", message=said, hint=f'{key}.cuda = "12.8", for one: {HOW_CUDA}')
        return
    if known is None:
        said = f"whether the GPUs' driver runs CUDA {show_version(cuda)}: it is not known which driver they have"
        yield PlaceFinding(kind="unchecked", message=said, hint=f'{key}.driver = "580.65.06", for one: {HOW_DRIVER}')
    if fault := nccl_fault(has, cuda):
        hint = f"`pip uninstall` all of nvidia-nccl-*, then `pip install nvidia-nccl-cu{cuda[0]}` there"
        yield PlaceFinding(kind="doubtful", message=fault, hint=hint)
    levels = {one.compute_capability for one in devices}
    [level] = levels if len(levels) == 1 else [None]
    answers = check_all(
        cuda=cuda, driver=known, capability=None if level is None else parse_version(level),
        device=devices[0].name if devices else "", nccl=nccl_of(has) or _written(place.nccl),
        forward_package=place.cuda_compat,
    )  # fmt: skip
    yield from (_finding(one) for one in answers if one.verdict != "works")


def _finding(one: Compatibility) -> PlaceFinding:
    said = f"not known: {one.said}" if one.verdict == "unknown" else one.said
    hint = f"{one.mends} (source: {one.source})" if one.source else one.mends
    return PlaceFinding(kind=KINDS[one.verdict], message=said, hint=hint)


def oldest_driver(said: Sequence[str | None], *, source: str) -> KnownDriver | None:
    """The oldest driver that several machines name: a run may get that machine. None where none names one.

    >>> oldest_driver(["580.95.05", None, "570.26"], source="nvidia-smi").driver
    (570, 26)
    """
    known = [parse_version(one) for one in said if one and re.fullmatch(VERSION, one)]
    return KnownDriver(driver=min(known), source=Source(text=source, read_on=None)) if known else None


def devices_of(place: PlaceTerms, catalog: Catalog) -> tuple[Accelerator, ...]:
    """What the GPUs of a place may be: by its machine in the catalog, else by the type that is written; none where
    neither is known there."""
    machine = place.catalog_machine
    if machine is not None:
        sold = [one for one in catalog.instance_types
                if (one.provider, one.name) == (machine.provider, machine.instance_type)]  # fmt: skip
        names = {one.accelerator for one in sold if one.accelerator is not None}
        if names:
            return tuple(one for one in catalog.accelerators if one.name in names)
    if place.gpu is None:
        return ()
    wanted = _BRAND.sub("", _BRAND.sub("", place.gpu)).casefold()
    return tuple(
        one for one in catalog.accelerators
        if one.name.casefold() == wanted or one.name.casefold().startswith(f"{wanted}-")
    )  # fmt: skip


def _written(text: str | None) -> Version | None:
    return None if text is None else parse_version(text)
