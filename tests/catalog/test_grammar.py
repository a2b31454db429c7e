"""The GPU grammar: what it reads, what it refuses, what it matches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.catalog import Accelerator, Catalog, GpuFilter, load_catalog, parse_gpu_filter
from tonnage.catalog.grammar import FORMS
from tonnage.errors import InputError

READ = [  # text, name, memory low, memory high, count low, count high
    ("H100", "H100", None, None, 1, None),
    ("H100:8", "H100", None, None, 8, 8),
    ("A100-80GB:1..8", "A100-80GB", None, None, 1, 8),
    ("24GB..80GB", None, 24.0, 80.0, 1, None),
    ("24GB..", None, 24.0, None, 1, None),
    ("..80GB:1..8", None, None, 80.0, 1, 8),
    ("80GB", None, 80.0, 80.0, 1, None),
    ("80gib:2..", None, 80.0, 80.0, 2, None),
    (" T4 : ..4 ", "T4", None, None, 1, 4),
    ("RTX 4090", "RTX 4090", None, None, 1, None),
    ("40.5GB", None, 40.5, 40.5, 1, None),
]
REFUSED = [
    "", ":", ":8", "..", "H100:", "H100:0", "H100:8..1", "80GB..24GB", "24GB80GB", "0GB", "H100:x", "H100:-1",
    "H100:1.5", "8", "80", "H100,T4", "A100:80GB:8", "H100::8", "-", "é100", "H100:12345678", "1..8",
    "H100:..",
]  # fmt: skip
MATCHES = [  # filter, devices it matches
    ("A100", {"A100-40GB-PCIe", "A100-40GB-SXM", "A100-80GB-PCIe", "A100-80GB-SXM"}),
    ("a100-80gb", {"A100-80GB-PCIe", "A100-80GB-SXM"}),
    ("A100-SXM", {"A100-40GB-SXM", "A100-80GB-SXM"}),
    ("H100-80GB-SXM", {"H100-SXM"}),
    ("H100-80GB", {"H100-SXM", "H100-PCIe"}),
    ("H100", {"H100-SXM", "H100-PCIe", "H100-NVL"}),
    ("A10", {"A10"}),
    ("A10G", {"A10G"}),
    ("T4", {"T4"}),
    ("L4", {"L4"}),
    ("L40", {"L40"}),
    ("V100", {"V100-16GB", "V100-32GB", "V100-PCIe-16GB"}),
    ("RTX6000Ada", {"RTX-6000-Ada"}),
    ("RTX 4090", {"RTX-4090"}),
    ("NVIDIA H100 80GB HBM3", {"H100-SXM"}),
    ("TPU", {"TPU-v2", "TPU-v3", "TPU-v4", "TPU-v5e", "TPU-v5p", "TPU-v6e", "TPU-v7x"}),
    ("A1", set()),
    ("H10", set()),
]


@pytest.mark.parametrize(("text", "name", "low", "high", "least", "most"), READ)
def test_reads_every_form(
    text: str, name: str | None, low: float | None, high: float | None, least: int, most: int | None
) -> None:
    """Each form of the grammar gives the bounds it says."""
    parsed = parse_gpu_filter(text)
    assert (parsed.name, parsed.min_memory_gib, parsed.max_memory_gib) == (name, low, high)
    assert (parsed.min_count, parsed.max_count) == (least, most)


@pytest.mark.parametrize("text", REFUSED)
def test_refuses_with_the_forms_that_work(text: str) -> None:
    """Text outside the grammar is an input error whose hint lists the forms."""
    with pytest.raises(InputError) as refused:
        parse_gpu_filter(text)
    assert refused.value.hint == FORMS


@pytest.mark.parametrize(("text", "devices"), MATCHES)
def test_names_match_whole_parts(catalog: Catalog, text: str, devices: set[str]) -> None:
    """A name matches whole dash-separated parts or an alias: A10 is neither A100 nor A10G."""
    wanted = parse_gpu_filter(text)
    assert {device.name for device in catalog.accelerators if wanted.matches(device, 1)} == devices


def test_memory_is_what_the_device_is_sold_with(catalog: Catalog) -> None:
    """24GB..80GB holds A10G to H100 and neither T4 nor H200; a device of unknown memory is in no range."""
    wanted = parse_gpu_filter("24GB..80GB")
    found = {device.name for device in catalog.accelerators if wanted.matches_device(device)}
    assert {"A10G", "L4", "A100-80GB-SXM", "H100-SXM"} <= found
    assert not {"T4", "H200", "H100-NVL", "MI25"} & found
    assert parse_gpu_filter("80GB").matches_device(catalog.accelerator("H100-SXM"))


def test_counts_are_exact_and_slices_pass_only_without_one(catalog: Catalog) -> None:
    """`A10:1` is one whole card; `A10` takes a third of one too, and no filter takes none at all."""
    device = catalog.accelerator("A10")
    assert parse_gpu_filter("A10").matches(device, 1 / 3)
    assert not parse_gpu_filter("A10:1").matches(device, 1 / 3)
    assert not parse_gpu_filter("A10:1").matches(device, 2)
    assert not parse_gpu_filter("A10").matches(device, 0)


counts = st.integers(1, 999_999)
sizes = st.integers(1, 4096)
DEVICES = load_catalog().accelerators


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, GpuFilter]:
    """A text in the grammar and the filter it means."""
    name = low = high = None
    if draw(st.booleans()):
        name = text = draw(st.sampled_from([device.name for device in DEVICES]))
    else:
        low, high = sorted((draw(sizes), draw(sizes)))
        form = draw(st.sampled_from(["{0}GB..{1}GB", "{0}GB..", "..{1}GB", "{0}GB"]))
        text = form.format(low, high)
        if form == "{0}GB":
            high = low
        low, high = (None if form.startswith("..") else low), (None if form.endswith("..") else high)
    least, most = sorted((draw(counts), draw(counts)))
    tail = draw(st.sampled_from(["", ":{0}", ":{0}..{1}", ":{0}..", ":..{1}"]))
    bounds = {"": (1, None), ":{0}": (least, least), ":{0}..{1}": (least, most)}
    bounds |= {":{0}..": (least, None), ":..{1}": (1, most)}
    text += tail.format(least, most)
    return text, GpuFilter(text, name, low, high, *bounds[tail])


@given(filters())
def test_every_text_of_the_grammar_reads_back(case: tuple[str, GpuFilter]) -> None:
    """What is built from the grammar parses to its parts, and str() gives the text again."""
    text, meant = case
    parsed = parse_gpu_filter(text)
    assert parsed == meant
    assert parse_gpu_filter(str(parsed)) == parsed


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the parser fail otherwise than by InputError."""
    try:
        parsed = parse_gpu_filter(text)
    except InputError:
        return
    assert parsed.min_count >= 1
    assert (parsed.name is None) != (parsed.min_memory_gib is None and parsed.max_memory_gib is None)


@given(st.sampled_from(DEVICES), st.integers(1, 64), st.integers(0, 64))
def test_a_wider_count_never_matches_less(device: Accelerator, count: int, slack: int) -> None:
    """Widening the count range keeps every match."""
    narrow = parse_gpu_filter(f"{device.name}:{count}")
    wide = replace(narrow, max_count=count + slack)
    assert narrow.matches(device, count)
    assert wide.matches(device, count)
