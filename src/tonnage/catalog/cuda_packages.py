"""CUDA and NCCL of a Python environment, by the names and versions of its packages. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.cuda import Version, parse_version, show_version

NCCL_NAMES: Final = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
RUNTIME_NAMES: Final = ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")  # 13: no suffix
PACKAGES: Final = ("torch", *RUNTIME_NAMES, *NCCL_NAMES)  # whose versions are asked for
_BUILD: Final = re.compile(r"\+cu(\d{2})(\d)(?:\D|$)")


def cuda_of(packages: Mapping[str, str]) -> Version | None:
    """Of PyTorch: by its version, else by the CUDA runtime beside it; None where neither says it.

    >>> cuda_of({"torch": "2.7.0+cu128"}), cuda_of({"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"})
    ((12, 8), (13, 0))
    >>> cuda_of({"torch": "2.13.0+cpu"}) is None
    True
    """
    if "torch" not in packages or is_cpu_build(packages):
        return None
    if (build := _BUILD.search(packages["torch"])) is not None:
        return int(build[1]), int(build[2])
    found = [packages[name] for name in RUNTIME_NAMES if name in packages]
    return parse_version(".".join(found[0].split(".")[:2])) if len(found) == 1 else None


def is_cpu_build(packages: Mapping[str, str]) -> bool:
    """Whether PyTorch is one that uses no device."""
    return packages.get("torch", "").endswith("+cpu")


def nccl_of(packages: Mapping[str, str]) -> Version | None:
    """The one NCCL; None where there is none, or several, which write the same files."""
    found = [packages[name] for name in NCCL_NAMES if name in packages]
    return parse_version(".".join(found[0].split(".")[:3])) if len(found) == 1 else None


def nccl_fault(packages: Mapping[str, str], cuda: Version) -> str:
    """What is wrong with the NCCL packages beside a PyTorch of this CUDA; empty where nothing is.

    >>> nccl_fault({"nvidia-nccl-cu12": "2.27.5"}, (13, 0))
    'nvidia-nccl-cu12 beside a PyTorch of CUDA 13.0'
    """
    there = [name for name in NCCL_NAMES if name in packages]
    if len(there) > 1:
        return f"{' and '.join(there)} are installed, and write the same files"
    if there and not there[0].endswith(f"cu{cuda[0]}"):
        return f"{there[0]} beside a PyTorch of CUDA {show_version(cuda)}"
    return ""
