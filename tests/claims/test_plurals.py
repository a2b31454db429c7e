"""Several GPUs of a kind, as documents write them: «four V100s», «8 A100s»."""

from __future__ import annotations

import pytest

from .test_checking import check, only


@pytest.mark.parametrize(
    ("text", "claimed", "verdict"),
    [
        ("A p3.8xlarge has 4 V100s.", "4x V100", "ok"),
        ("A p3.8xlarge has four V100s.", "4x V100", "ok"),
        ("A p4d.24xlarge has 4 A100s.", "4x A100", "wrong"),
        ("A p4d.24xlarge has 8 A100s.", "8x A100", "ok"),
        ("A p4d.24xlarge has 8 NVIDIA A100s.", "8x NVIDIA A100", "ok"),
        ("The g4dn.12xlarge comes with 2 T4s.", "2x T4", "wrong"),
        ("The g6e.12xlarge comes with 4 L40Ss.", "4x L40S", "ok"),
    ],
)
def test_a_plural_is_read_like_the_singular(text: str, claimed: str, verdict: str) -> None:
    """Under the name without its s, with the same count and verdict."""
    found = only(text)
    assert (found.quantity, found.claimed, found.verdict) == ("GPUs", claimed, verdict)


def test_figures_of_a_plural_are_those_of_one() -> None:
    """«T4s have 16 GB of memory» is said of each."""
    assert only("T4s have 16 GB of memory.").verdict == "ok"
    assert only("T4s have 32 GB of memory.").verdict == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "Two T4s have 32 GB of memory.",
        "Two T4s: 32 GB of memory.",
        "2 T4s have 32 GB of memory.",
        "Our T4s have 64 GB of memory in total.",
    ],
)
def test_figures_of_several_are_no_figures_of_one(text: str) -> None:
    """What several have together is not held against the data sheet of one."""
    assert not [one for one in check(text).findings if one.kind == "gpu"]


@pytest.mark.parametrize("gpu", ["one L4", "an L4", "a single L4", "one NVIDIA L4", "1 L4"])
def test_figures_behind_a_counted_gpu_are_read(gpu: str) -> None:
    """The memory of a g6.xlarge is 16 GiB."""
    found = {one.quantity: one.verdict for one in check(f"A g6.xlarge has {gpu}, 4 vCPUs and 64 GB of RAM.").findings}
    assert (found["vCPUs"], found["memory"]) == ("ok", "wrong")
