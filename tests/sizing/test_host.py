"""What hosts get ready: seconds of vCPU an item, the slower of work and reading, what is not known."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from tonnage.sizing.assumptions import HostAssumptions
from tonnage.sizing.host import host_item, host_rate, used_assumptions
from tonnage.workload.host import HostTerms
from tonnage.workload.jobs import BatchJob, Lengths, Requests, TrainJob
from tonnage.workload.known import find_model

ASSUMED = HostAssumptions()
ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "host_rates_2026-11-22.csv"
PICTURES = TrainJob(
    model=find_model("resnet-50"), samples=1_281_167, lengths=Lengths(mean=1, maximum=1), epochs=1, global_batch=256
)
TEXTS = BatchJob(
    model=find_model("bert-base-uncased"),
    requests=Requests(input_tokens=Lengths(mean=128, maximum=512), output_tokens=None),
    items=1_000_000,
)


def measured(stage: str) -> list[dict[str, str]]:
    with ROWS.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["stage"] == stage]


def test_measured_texts_lie_in_the_range() -> None:
    """Each row of WordPiece and BPE is within the range of fixed and per-token time; the median within a third."""
    errors = []
    for row in measured("tokenising"):
        lengths = Lengths(mean=float(row["tokens"]), maximum=4096)
        job = replace(TEXTS, requests=Requests(input_tokens=lengths, output_tokens=None))
        item = host_item(job, HostTerms(), ASSUMED)
        assert item is not None
        assert item.vcpu_s is not None
        took = 1 / float(row["rate"])
        assert 0.8 * item.vcpu_s.low <= took <= 1.25 * item.vcpu_s.high, row
        errors.append(abs(item.vcpu_s.value / took - 1))
    assert median(errors) < 1 / 3


def test_measured_pictures_lie_in_the_range() -> None:
    """Each decoder, prepared for the model, at both sizes."""
    rows = [row for row in measured("JPEG decoding") if "normalise" in row["what"]]
    assert {row["width"] for row in rows} == {"500", "1920"}
    for row in rows:
        terms = HostTerms(megapixels=int(row["width"]) * int(row["height"]) / 1e6)
        item = host_item(PICTURES, terms, ASSUMED)
        assert item is not None
        assert item.vcpu_s is not None
        assert 0.8 * item.vcpu_s.low <= 1 / float(row["rate"]) <= 1.1 * item.vcpu_s.high, row


def test_42000_jpegs_a_second_are_beyond_96_vcpus() -> None:
    """The rate that a plan once promised; 96 vCPUs decode a third of it at the upper end."""
    item = host_item(PICTURES, HostTerms(), ASSUMED)
    assert item is not None
    rate = host_rate(item, 96, 400, ASSUMED)
    assert rate is not None
    assert rate.items_per_s is not None
    assert (rate.stage, rate.items_per_s.high < 42_000) == ("JPEG decoding", True)
    assert 10_000 < rate.items_per_s.value < 25_000


def test_the_slower_of_work_and_reading_counts() -> None:
    """At 10 Gbit/s, half of it read, 5,500 JPEGs of 114 kB come in however many vCPUs decode them."""
    item = host_item(PICTURES, HostTerms(), ASSUMED)
    assert item is not None
    slow = host_rate(item, 192, 10, ASSUMED)
    assert slow is not None
    assert slow.items_per_s is not None
    assert slow.stage == "reading"
    assert slow.items_per_s.value == pytest.approx(0.5 * 10e9 / 8 / (0.19e6 * 0.6))


def test_what_is_stated_goes_before_what_was_measured() -> None:
    """An own rate is taken as it is, with all vCPUs busy and without an interval."""
    item = host_item(PICTURES, HostTerms(items_per_s_per_vcpu=150), ASSUMED)
    assert item is not None
    rate = host_rate(item, 8, None, ASSUMED)
    assert rate is not None
    assert rate.items_per_s is not None
    assert (rate.items_per_s.low, rate.items_per_s.value, rate.items_per_s.high) == pytest.approx((1200, 1200, 1200))


@pytest.mark.parametrize(
    ("job", "terms"),
    [
        (PICTURES, HostTerms(input="prepared")),
        (TEXTS, HostTerms(input="prepared")),
        (replace(PICTURES, model=find_model("bert-base-uncased")), HostTerms()),  # a training's texts are tokenised
        (replace(TEXTS, model=find_model("gpt2")), HostTerms()),
    ],
)
def test_what_asks_nothing_of_the_host(job: TrainJob | BatchJob, terms: HostTerms) -> None:
    assert host_item(job, terms, ASSUMED) is None


def test_pictures_decoded_on_the_gpu_are_read_all_the_same() -> None:
    """The host's processors do nothing, its network carries the JPEGs; without a known network nothing is said."""
    item = host_item(PICTURES, HostTerms(input="gpu"), ASSUMED)
    assert item is not None
    read = host_rate(item, None, 10, ASSUMED)
    assert read is not None
    assert read.stage == "reading"
    assert host_rate(item, None, None, ASSUMED) is None


@pytest.mark.parametrize(
    ("job", "terms", "names"),
    [
        (PICTURES, HostTerms(), {"picture_us", "picture_us_per_megapixel", "vcpu_share_kept", "read_network_fraction"}),
        (TEXTS, HostTerms(), {"text_us", "text_us_per_token", "vcpu_share_kept"}),
        (TEXTS, HostTerms(items_per_s_per_vcpu=10), set()),
        (PICTURES, HostTerms(input="prepared"), set()),
    ],
)
def test_the_judgements_behind_a_rate_are_listed(job: TrainJob | BatchJob, terms: HostTerms, names: set[str]) -> None:
    """What `explain` prints of the host: the judgements that the rate takes, in their ranges, and no others."""
    used = used_assumptions(host_item(job, terms, ASSUMED), ASSUMED)
    assert {one.name for one in used} == names
    assert all(one.low < one.value < one.high and one.source for one in used)


def test_unknown_vcpus_stay_unknown() -> None:
    item = host_item(PICTURES, HostTerms(), ASSUMED)
    assert item is not None
    rate = host_rate(item, None, 10, ASSUMED)
    assert rate is not None
    assert rate.items_per_s is None
