"""Driver, CUDA and NCCL: the tables as NVIDIA published them, and what follows from them."""

from __future__ import annotations

import pytest

from tonnage.catalog.cuda import (
    driver_of_image,
    first_cudas,
    majors,
    nccl_builds,
    parse_version,
    show_version,
    toolkits,
)
from tonnage.catalog.cuda_compatibility import check_all, check_device, check_driver, check_nccl
from tonnage.catalog.cuda_packages import cuda_of, is_cpu_build, nccl_fault, nccl_of

PUBLISHED = {  # NVIDIA, CUDA Toolkit release notes 13.1, Table 3: the release's first driver on Linux x86_64
    "13.1": "590.44.01", "13.0": "580.65.06", "12.9": "575.51.03", "12.8": "570.26", "12.6": "560.28.03",
    "12.4": "550.54.14", "12.2": "535.54.03", "12.0": "525.60.13", "11.8": "520.61.05", "11.4": "470.42.01",
}  # fmt: skip


def test_the_table_is_the_published_one() -> None:
    """Newer releases came with newer drivers; every family's least driver is that of its first release or older
    than all that follow; each row has its source."""
    found = {show_version(one.cuda): show_version(one.driver) for one in toolkits()}
    assert PUBLISHED.items() <= found.items()
    in_order = [one.driver for one in toolkits()]
    assert in_order == sorted(in_order, reverse=True)
    for one in toolkits():
        family = majors()[one.cuda[0]]
        assert one.driver >= family.least_driver or one.cuda == (11, 0)
        assert (one.cuda[0] + 1) not in majors() or one.driver < majors()[one.cuda[0] + 1].least_driver
    rows = (*toolkits(), *majors().values(), *first_cudas().values(), *nccl_builds().values())
    assert all(row.source.text for row in rows)


@pytest.mark.parametrize(
    ("cuda", "driver", "verdict", "words"),
    [
        ("12.8", "570.26", "works", ""),
        ("12.8", "580.95.05", "works", ""),  # backward compatible
        ("11.8", "595.58.03", "works", ""),
        ("12.8", "570.25", "limited", "minor-version"),
        ("12.8", "525.60.13", "limited", "a driver from 570.26 on"),
        ("12.8", "525.60.12", "fails", "needs 525.60.13"),
        ("13.0", "575.57.08", "fails", "needs 580.65.06"),
        ("13.1", "580.65.06", "limited", "PTX"),
        ("13.0", "580", "works", ""),  # a branch alone
        ("12.4", "550.54", "works", ""),  # the first two of 550.54.14
        ("12.4", "550.53", "limited", ""),
        ("13.1", "580", "limited", ""),
        ("12.9", "570", "limited", ""),
        ("13.0", "570", "fails", "cuda-compat-13-0"),
        ("10.2", "580.65.06", "unknown", "the table ends with 13.3"),
        ("14.0", "700.1.1", "unknown", "release-notes"),
        ("12.7", "570.26", "unknown", "12.7"),  # no such release
    ],
)
def test_a_driver_runs_what_its_release_or_family_allows(cuda: str, driver: str, verdict: str, words: str) -> None:
    """And what it does not know it says."""
    found = check_driver(parse_version(cuda), parse_version(driver))
    assert found.verdict == verdict
    assert words in f"{found.said} {found.mends}"
    assert bool(found.mends) == (verdict != "works")


def test_the_forward_package_is_a_doubt_and_no_yes() -> None:
    """NVIDIA supports it for some branches and devices alone."""
    found = check_driver((13, 0), (535, 183, 1), forward_package=True)
    assert (found.verdict, "data-centre" in found.said) == ("limited", True)
    assert check_driver((13, 0), (580, 65, 6), forward_package=True).verdict == "works"


def test_more_driver_never_makes_it_worse() -> None:
    """For every release and every driver of the table."""
    order = {"fails": 0, "limited": 1, "works": 2}
    drivers = sorted({one.driver for one in toolkits()})
    for release in toolkits():
        levels = [order[check_driver(release.cuda, driver).verdict] for driver in drivers]
        assert levels == sorted(levels)
        assert check_driver(release.cuda, release.driver).verdict == "works"


@pytest.mark.parametrize(
    ("cuda", "capability", "verdict"),
    [
        ("13.0", "7.0", "fails"), ("12.8", "7.0", "works"), ("13.0", "7.5", "works"), ("12.0", "3.7", "fails"),
        ("11.4", "3.7", "works"), ("12.4", "10.0", "limited"), ("12.8", "12.0", "works"), ("11.7", "9.0", "limited"),
        ("13.0", "9.0", "works"), ("12.9", "10.3", "works"), ("12.9", "11.7", "unknown"), ("14.0", "9.0", "unknown"),
    ],
)  # fmt: skip
def test_a_release_compiles_for_some_devices(cuda: str, capability: str, verdict: str) -> None:
    """CUDA 13 left Volta out; Blackwell came with 12.8."""
    found = check_device(parse_version(cuda), parse_version(capability), name="it")
    assert found.verdict == verdict
    assert bool(found.mends) == (verdict != "works")


def test_nccl_is_of_the_family_it_was_published_for() -> None:
    """By the names of NVIDIA's archives; an unlisted one is not known."""
    assert check_nccl((13, 0), (2, 30, 7)).verdict == check_nccl((12, 8), (2, 30, 7)).verdict == "works"
    found = check_nccl((13, 0), (2, 12, 12))
    assert (found.verdict, "nvidia-nccl-cu13" in found.mends) == ("fails", True)
    assert check_nccl((12, 8), (2, 29, 7)).verdict == "unknown"  # one build of it is known, and there may be others
    assert check_nccl((13, 0), (2, 29, 7)).verdict == "works"
    assert check_nccl((13, 0), (2, 99, 0)).verdict == "unknown"
    asked = {"driver": (570, 26), "capability": (9, 0), "nccl": (2, 26, 2)}
    assert [one.verdict for one in check_all(cuda=(12, 8), **asked)] == ["works", "works", "works"]  # type: ignore[arg-type]
    assert list(check_all(cuda=(12, 8))) == []


def test_images_say_their_driver_by_their_name() -> None:
    """Those of AWS's release notes as a whole, Google's by the branch."""
    known = driver_of_image("Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261009")
    assert known is not None
    assert show_version(known.driver) == "595.91.07"
    assert "docs.aws.amazon.com" in known.source.text
    google = driver_of_image("pytorch-2-7-cu128-ubuntu-2204-nvidia-570-v20260120")
    assert google is not None
    assert google.driver == (570,)
    assert driver_of_image("gpu-h100x8-base") is None


def test_an_environment_says_its_cuda_by_its_packages() -> None:
    """The build in PyTorch's version goes first; two NCCLs, or one of another family, are faults."""
    assert cuda_of({"torch": "2.6.0+cu124", "nvidia-cuda-runtime-cu12": "12.8.90"}) == (12, 4)
    assert cuda_of({"torch": "2.9.0", "nvidia-cuda-runtime-cu12": "12.8.90"}) == (12, 8)
    assert cuda_of({"torch": "2.9.0"}) is cuda_of({}) is cuda_of({"nvidia-cuda-runtime": "13.0.96"}) is None
    assert cuda_of({"torch": "2.9.0", "nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cuda-runtime": "13.0.96"}) is None
    assert is_cpu_build({"torch": "2.13.0+cpu"})
    assert nccl_of({"nvidia-nccl-cu13": "2.29.7"}) == (2, 29, 7)
    both = {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.29.7"}
    assert nccl_of(both) is None
    assert "write the same files" in nccl_fault(both, (13, 0))
    assert nccl_fault({"nvidia-nccl-cu13": "2.29.7"}, (13, 0)) == nccl_fault({}, (13, 0)) == ""


@pytest.mark.parametrize("wrong", ["", "580.", "v580", "580.65.06.1.2", "5 80"])
def test_no_version(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        parse_version(wrong)
