"""The doctor's line on driver, CUDA and NCCL of this machine, with a pretended nvidia-smi and pretended packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tonnage.api import machine_examination
from tonnage.api.machine_examination import _cuda

TORCH = {"torch": "2.12.0+cu130", "nvidia-nccl-cu13": "2.29.7"}


@pytest.mark.parametrize(
    ("told", "packages", "status", "words"),
    [
        ("580.95.05, 9.0", TORCH, "ok", "CUDA 13.0 on driver 580.95.05"),
        ("570.26, 9.0", TORCH, "problem", "CUDA 13 needs 580.65.06"),
        ("550.54.14, 9.0", {"torch": "2.8.0+cu128"}, "ok", "minor-version"),
        ("580.95.05, 7.0", TORCH, "problem", "has left"),
        ("580.95.05, 9.0", {"torch": "2.12.0+cu130", "nvidia-nccl-cu12": "2.27.5"}, "problem", "nvidia-nccl-cu12"),
        ("[N/A], [N/A]", TORCH, "missing", "no driver answers"),
        ("580.95.05, 9.0", {"torch": "2.13.0+cpu"}, "missing", "names no CUDA"),
        ("580.95.05, 9.0", {}, "missing", "no PyTorch"),
    ],
)
def test_the_driver_is_held_against_pytorch(
    told: str, packages: dict[str, str], status: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem has advice; a limit is said and is no problem."""

    def version(name: str) -> str:
        if name not in packages:
            raise PackageNotFoundError(name)
        return packages[name]

    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{told}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine_examination, "version", version)
    found = _cuda()
    assert (found.name, found.status) == ("cuda", status)
    assert words in found.found
    assert bool(found.advice) or status == "ok"
