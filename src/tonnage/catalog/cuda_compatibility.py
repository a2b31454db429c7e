"""Whether a driver runs what was built with a CUDA release, on which devices, with which NCCL. Pure.

Rules, from NVIDIA's «CUDA Compatibility» (docs.nvidia.com/deploy/cuda-compatibility): a driver runs everything that was
built with the release it came with, and older; a release of the same family (11, 12, 13) from the family's least driver
on, without what needs the newer driver, such as PTX that is compiled as it is loaded; a newer family by the package
cuda-compat of the image alone, on data-centre devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from tonnage.catalog.cuda import CudaMajor, Version, first_cudas, majors, nccl_builds, show_version, toolkits
from tonnage.values import dataclass

Verdict = Literal["works", "limited", "fails", "unknown"]
COMPATIBILITY: Final = "https://docs.nvidia.com/deploy/cuda-compatibility"
PTX: Final = "code that is compiled from PTX as it is loaded fails, and so do the newer release's own functions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """One answer; `mends`: what to do where it is not «works»; `source`: of the rule or row that decided."""

    verdict: Verdict
    said: str
    mends: str = ""
    source: str = ""


def check_driver(cuda: Version, driver: Version, *, forward_package: bool = False) -> Compatibility:
    """Whether a driver runs code of a CUDA release. `driver` may be a part of its version: (580,).

    `forward_package`: the image has NVIDIA's cuda-compat of the release.

    >>> check_driver((12, 8), (550, 54, 14)).verdict, check_driver((13, 0), (570, 26)).verdict
    ('limited', 'fails')
    """
    family = majors().get(cuda[0])
    release = next((one for one in toolkits() if one.cuda == cuda[:2]), None)
    said = f"CUDA {show_version(cuda)} on driver {show_version(driver)}"
    if family is None or release is None:
        return _unlisted(cuda)
    if _not_older(driver, release.driver):
        return Compatibility(verdict="works", said=said, source=release.source.text)
    newer = f"a driver from {show_version(release.driver)} on"
    if _not_older(driver, family.least_driver):
        return Compatibility(
            verdict="limited", said=f"{said} by minor-version compatibility alone: {PTX}",
            mends=f"{newer}, or an image of an older CUDA {cuda[0]}", source=family.source.text,
        )  # fmt: skip
    least = show_version(family.least_driver)
    if forward_package:
        return Compatibility(
            verdict="limited", said=f"{said} by the forward-compatibility package alone, on data-centre devices",
            mends=f"{COMPATIBILITY} lists the driver branches that it works with; else {newer}", source=COMPATIBILITY,
        )  # fmt: skip
    return Compatibility(
        verdict="fails", said=f"{said}: CUDA {cuda[0]} needs {least} at the least",
        mends=f"{newer}, an image of an older CUDA, or one with cuda-compat-{cuda[0]}-{cuda[1]}",
        source=family.source.text,
    )  # fmt: skip


def check_device(cuda: Version, capability: Version, *, name: str) -> Compatibility:
    """Whether a CUDA release compiles, and has libraries, for devices of a compute capability.

    >>> check_device((13, 0), (7, 0), name="V100").verdict, check_device((12, 4), (10, 0), name="B200").verdict
    ('fails', 'limited')
    """
    family = majors().get(cuda[0])
    if family is None:
        return _unlisted(cuda)
    shown, level = f"CUDA {show_version(cuda)}", show_version(capability)
    if capability < family.least_capability:
        return _too_old(family, shown, name, level)
    first = first_cudas().get(capability)
    if first is None:
        later = [one for known, one in first_cudas().items() if known > capability]
        if len(later) == len(first_cudas()):  # older than all that are listed
            return Compatibility(verdict="works", said=f"{shown} on {name}", source=family.source.text)
        return Compatibility(verdict="unknown", said=f"the first CUDA for {name} (compute capability {level})",
                             mends=f"{COMPATIBILITY}; the maker of the image knows")  # fmt: skip
    if cuda[:2] < first.first_cuda:
        return Compatibility(
            verdict="limited", said=f"{shown} knows no {name} (compute capability {level}): PTX alone may run there",
            mends=f"an image of CUDA {show_version(first.first_cuda)} or newer", source=first.source.text,
        )  # fmt: skip
    return Compatibility(verdict="works", said=f"{shown} on {name}", source=first.source.text)


def check_nccl(cuda: Version, nccl: Version) -> Compatibility:
    """Whether NCCL was published for the CUDA family that a program was built with."""
    build = nccl_builds().get(nccl)
    said = f"NCCL {show_plain(nccl)} beside CUDA {show_version(cuda)}"
    if build is None:
        return Compatibility(verdict="unknown", said=f"which CUDA NCCL {show_plain(nccl)} was built for",
                             mends="https://docs.nvidia.com/deeplearning/nccl/archives")  # fmt: skip
    if any(one[0] == cuda[0] for one in build.cuda):
        return Compatibility(verdict="works", said=said, source=build.source.text)
    known = ", ".join(map(show_version, build.cuda))
    if not build.complete:
        return Compatibility(
            verdict="unknown", said=f"whether {said} was published: a build for CUDA {known} is known",
            mends="https://docs.nvidia.com/deeplearning/nccl/archives", source=build.source.text,
        )  # fmt: skip
    return Compatibility(
        verdict="fails", said=f"{said}: it was published for CUDA {known}",
        mends=f"the NCCL that this PyTorch asks for: pip show torch, «Requires»: nvidia-nccl-cu{cuda[0]}",
        source=build.source.text,
    )  # fmt: skip


def check_all(
    *, cuda: Version, driver: Version | None = None, capability: Version | None = None, device: str = "the GPU",
    nccl: Version | None = None, forward_package: bool = False,
) -> Iterator[Compatibility]:  # fmt: skip
    """Every question whose parts are known."""
    if driver is not None:
        yield check_driver(cuda, driver, forward_package=forward_package)
    if capability is not None:
        yield check_device(cuda, capability, name=device)
    if nccl is not None:
        yield check_nccl(cuda, nccl)


def show_plain(version: Version) -> str:
    """As NCCL writes its own.

    >>> show_plain((2, 27, 5))
    '2.27.5'
    """
    return ".".join(map(str, version))


def _not_older(driver: Version, least: Version) -> bool:
    """As far as a driver is known: the newest of a branch has what its first had, and `550.54` what `550.54.14` has."""
    return driver >= least[: len(driver)]


def _too_old(family: CudaMajor, shown: str, name: str, level: str) -> Compatibility:
    return Compatibility(
        verdict="fails", said=f"{shown} has left {name} out (compute capability {level})",
        mends=f"an image of CUDA {family.major - 1}", source=family.source.text,
    )  # fmt: skip


def _unlisted(cuda: Version) -> Compatibility:
    said = f"which driver CUDA {show_version(cuda)} needs: the table ends with {show_version(toolkits()[0].cuda)}"
    return Compatibility(
        verdict="unknown", said=said, mends="https://docs.nvidia.com/cuda/cuda-toolkit-release-notes has it"
    )
