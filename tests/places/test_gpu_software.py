"""`places check`: the GPUs' driver against the CUDA, the devices and the NCCL of what a run brings."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from tests.places.test_dry_runs import PLACES

from tonnage.catalog.cuda import driver_of_image
from tonnage.catalog.loading import load_catalog
from tonnage.places.file import model_of
from tonnage.places.gpu_software import devices_of, oldest_driver, software_at

KINDS = [pytest.param(kind, id=kind) for kind in PLACES]


def found(kind: str, *, told: Any = None, packages: dict[str, str] | None = None, **more: Any) -> list[str]:
    """Each finding: its kind, message and hint."""
    place = model_of(kind).model_validate({"kind": kind, **PLACES[kind], **more})
    return [f"{one.kind}: {one.message} | {one.hint}"
            for one in software_at(place, "it", driver=told, packages=packages)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_place_with_gpus_asks(kind: str) -> None:
    """What is not known is said as that; what fits is not mentioned; what fails is refused with its source."""
    [unknown] = found(kind)
    assert unknown.startswith("unchecked: ")
    assert 'places.it.cuda = "12.8"' in unknown
    [unknown] = found(kind, cuda="12.8")
    assert 'places.it.driver = "580.65.06"' in unknown
    assert found(kind, cuda="12.8", told=oldest_driver(["570.26"], source="it")) == []
    [refused] = found(kind, cuda="13.0", told=oldest_driver(["580.95.05", "570.26"], source="it"))
    assert refused.startswith("refused: CUDA 13.0 on driver 570.26")
    assert "docs.nvidia.com" in refused
    assert found(kind, gpus=0, accelerator=None) == [] if kind == "vertex" else found(kind, gpus=0) == []


def test_what_is_written_down_counts_where_nobody_tells() -> None:
    """And what a machine tells goes before it."""
    known = {"cuda": "12.8", "driver": "550.54.14"}
    [doubt] = found("ssh", **known)
    assert doubt.startswith("doubtful: CUDA 12.8 on driver 550.54.14 by minor-version compatibility alone")
    assert found("ssh", **known, nccl="2.26.2") == [doubt]
    told = oldest_driver(["580.95.05"], source="nvidia-smi")
    place = model_of("ssh").model_validate({"kind": "ssh", **PLACES["ssh"], **known})
    assert list(software_at(place, "it", driver=told)) == []
    [refused] = [one for one in found("ssh", cuda="13.0", told=told, nccl="2.12.12") if "NCCL" in one]
    assert refused.startswith("refused: ")
    assert "it was published for CUDA 10.2, 11.0, 11.6" in refused
    [unknown] = [one for one in found("ssh", cuda="13.0", told=told, nccl="2.26.2") if "NCCL" in one]
    assert unknown.startswith("unchecked: not known: whether NCCL 2.26.2 beside CUDA 13.0 was published")
    [compat] = found("ssh", cuda="13.0", told=oldest_driver(["535.183.01"], source="it"), cuda_compat=True)
    assert "forward-compatibility package" in compat


def test_packages_of_a_machine_tell_its_cuda() -> None:
    """A build for processors, and an NCCL of another family, are doubts."""
    told = oldest_driver(["580.95.05"], source="nvidia-smi")
    assert found("ssh", told=told, packages={"torch": "2.9.0+cu128", "nvidia-nccl-cu12": "2.27.5"}) == []
    [cpu] = found("ssh", told=told, packages={"torch": "2.13.0+cpu"})
    assert cpu.startswith("doubtful: its PyTorch 2.13.0+cpu is built without CUDA")
    mixed = found("ssh", told=told, packages={"torch": "2.12.0+cu130", "nvidia-nccl-cu12": "2.27.5"})
    assert any("nvidia-nccl-cu12 beside a PyTorch of CUDA 13.0" in one for one in mixed)


def test_boot_images_of_google_tell_their_branch() -> None:
    """A family of Deep Learning VMs."""
    family = "projects/deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
    [refused] = found("gce", boot_image=family, cuda="13.0")
    assert "on driver 570: CUDA 13 needs 580.65.06" in refused
    assert found("gce", boot_image=family, cuda="12.8") == []
    assert driver_of_image(family.rpartition("/")[2]) is not None


@pytest.mark.parametrize(
    ("kind", "more", "names"),
    [
        ("ec2", {}, {"H100-SXM"}),
        ("ssh", {"machine": "aws/p3.16xlarge"}, {"V100-16GB"}),
        ("slurm", {"machine": None, "gpu": "nvidia-l4"}, {"L4"}),
        ("slurm", {"machine": None, "gpu": "a100"}, {"A100-40GB-PCIe", "A100-40GB-SXM", "A100-80GB-PCIe",
                                                     "A100-80GB-SXM"}),
        ("slurm", {"machine": None, "gpu": "mi300x"}, {"MI300X"}), ("slurm", {"machine": None, "gpu": "thing"}, set()),
    ],
)  # fmt: skip
def test_devices_are_those_of_the_machine_or_the_type(kind: str, more: dict[str, Any], names: set[str]) -> None:
    """By the catalog; a type that it does not have is none."""
    place = model_of(kind).model_validate({"kind": kind, **PLACES[kind], **more})
    assert {one.name for one in devices_of(place, load_catalog())} == names


def test_devices_that_a_release_has_left_out_are_refused() -> None:
    """V100 and CUDA 13; AMD's cards are asked nothing of this."""
    told = oldest_driver(["580.95.05"], source="it")
    [volta] = found("ssh", machine="aws/p3.16xlarge", cuda="13.0", told=told)
    assert volta.startswith("refused: CUDA 13.0 has left V100-16GB out")
    assert found("slurm", machine=None, gpu="mi300x") == []


@pytest.mark.parametrize(("cuda", "taken"), [("12", False), ("12.8", True), ("12.8.1", True), ("12.8.1.2", False)])
def test_cuda_is_written_as_a_release(cuda: str, taken: bool) -> None:
    """CUDA 12 alone is none: each release has its own least driver."""
    terms = {"kind": "ssh", **PLACES["ssh"], "cuda": cuda}
    with nullcontext() if taken else pytest.raises(ValueError, match="cuda"):
        assert model_of("ssh").model_validate(terms)
