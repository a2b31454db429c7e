"""A workload file's keys become frozen values; its examples load and its reference is fresh."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import tonnage.workload
from tonnage.catalog import load_catalog
from tonnage.errors import WorkloadError
from tonnage.workload.file.kinds import KINDS
from tonnage.workload.file.length_fields import PERCENTILES, LengthFields, freeze_lengths
from tonnage.workload.file.yaml_lines import read_yaml
from tonnage.workload.jobs import (
    BatchJob,
    BuyTerms,
    Constraints,
    DataPlace,
    Lengths,
    ServeJob,
    TabularJob,
    TrainJob,
    Workload,
)
from tonnage.workload.loading import load_workload, parse_workload
from tonnage.workload.reference import EXAMPLES, render_workload_reference

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
TRAIN = "kind: train\nmodel: bert-base-uncased\ndata: {samples: 1000, seq_len: 128}\n"
SERVE = "kind: serve\nmodel: gpt2\nserve: {rate_per_s: 5, input_tokens: 64, output_tokens: 16}\n"


def read(text: str) -> Workload:
    return parse_workload(text, file="w.tonnage.yaml", folder=None, as_of=AS_OF)


def train_job(text: str) -> TrainJob:
    job = read(text).job
    assert isinstance(job, TrainJob)
    return job


def test_a_short_file_takes_the_defaults_of_the_frozen_values() -> None:
    """What the file leaves out is what `jobs` says, so the two never drift apart."""
    workload = read(TRAIN)
    assert workload.name == "w"
    assert workload.constraints == Constraints()
    assert workload.buy == BuyTerms()
    job = workload.job
    assert isinstance(job, TrainJob)
    assert job == TrainJob(
        model=job.model, samples=1000, lengths=Lengths(mean=128, maximum=128), epochs=1, global_batch=32
    )
    tabular = read("kind: tabular\ntabular: {rows: 10, features: 3}").job
    assert tabular == TabularJob(rows=10, features=3)
    serve = read(SERVE).job
    assert isinstance(serve, ServeJob)
    assert serve == ServeJob(model=serve.model, requests=serve.requests, rate_per_s=5)


def test_every_field_of_the_frozen_values_can_be_set_from_the_file() -> None:
    """A file that sets everything changes every field of TrainJob, Constraints and Buy from its default."""
    workload = read(
        """
name: all of it
kind: train
model: gpt2
data: {tokens: 1e6, seq_len: {mean: 100, max: 200}, epochs: 2.5, location: aws/us-east-1, size_gb: 20}
train:
  {method: qlora, precision: bf16, objective: classification, global_batch: 48, optimizer: adamw-8bit,
   attention: eager, compile: yes, lora: {rank: 8, targets: attention}, micro_batch: 4, recompute: full,
   sharding: zero2, tensor_parallel: 2, pipeline_parallel: 3}
layout: {nodes: 4, gpus: 48, data_parallel: 4, context_parallel: 2, virtual_stages: 2, accumulation: 3}
constraints:
  {deadline: 1d, budget_usd: 500, providers: aws, regions: [us-east-1], gpus: ["H100:8", 24GB..80GB],
   interruptible: true, residency: us, max_gpus: 64, max_nodes: 4, hold: true, platforms: vm,
   accept_risk: budget, trust: any, exclude: [community, T4], quota: [{provider: aws, family: p5, vcpus: 192}]}
buy:
  {reserved_1y: true, on_demand: false, interruptions_per_hour: 0.1, checkpoint_interval: 30m, startup: 0s,
   discounts: {gcp: 5, aws/p5: 12.5}, committed_usd: {aws: 100}, idle: 10m, reserved_utilization: 0.5,
   schedule: {hours_per_day: 8, days_per_month: 22}, dbu_sku: All-Purpose Compute, disk_gb: 100,
   prices: {egress_usd_per_gb: 0.09}, token_models: llama-3.1-8b, tokens_per_minute: 1000, cached_input: 0.5,
   token_p95_latency: 2s, token_p95_ttft: 1s, token_load: 0.5, model_units: 2, model_storage_months: 3}
team: {size: 3, ml_expertise: some, compliance: [hipaa], hourly_usd: 90, setup_hours: 8, operation_hours: {vm: 2}}
"""
    )
    job = workload.job
    assert isinstance(job, TrainJob)
    untouched = {
        field.name
        for value in (job, dataclasses.replace(workload.constraints, interruptible=False), workload.buy)
        for field in dataclasses.fields(value)
        if field.default is not dataclasses.MISSING and getattr(value, field.name) == field.default
    }
    assert untouched == {"reserved_owned"}  # it and `reserved_utilization` exclude each other
    assert read(TRAIN + "buy: {reserved_owned: true}").buy.reserved_owned
    assert (job.samples, job.epochs, job.lora.rank) == (10_000, 2.5, 8)
    assert workload.constraints.deadline_s == 86_400
    assert [str(wanted) for wanted in workload.constraints.gpus] == ["H100:8", "24GB..80GB"]
    assert workload.buy.purchases == ("spot", "reserved_1y")
    assert (workload.buy.checkpoint_interval_s, workload.buy.startup_s) == (1800, 0)
    assert workload.buy.discount_percent == (("aws/p5", 12.5), ("gcp", 5.0))
    tokens = workload.buy.tokens
    assert (tokens.models, tokens.per_minute, tokens.model_units) == (("llama-3.1-8b",), 1000, 2)
    assert (tokens.p95_latency_s, tokens.p95_ttft_s, tokens.cached_input_fraction) == (2, 1, 0.5)
    assert workload.data == DataPlace(provider="aws", region="us-east-1", size_gb=20)
    assert dict(workload.team.setup_hours)["bedrock"] == 8
    assert (workload.team.size, workload.team.compliance) == (3, ("hipaa",))


def test_tokens_become_samples_by_the_mean_length() -> None:
    """A partial last sample counts as one."""
    data = "data: {tokens: 1001, seq_len: {mean: 100, max: 128}}"
    assert train_job(f"kind: train\nmodel: bert-base-uncased\n{data}").samples == 11


LENGTHS = [  # as written, mean, longest
    ("128", 128, 128),
    ("{mean: 48.5, max: 128}", 48.5, 128),
    ("[[32, 60], [64, 30], [128, 10]]", 51.2, 128),
    ("{histogram: [{tokens: 10, weight: 1}, {tokens: 30, weight: 1}]}", 20, 30),
    ("{p50: 40, p90: 80, max: 120}", 0.5 * 20.5 + 0.4 * 60 + 0.1 * 100, 120),
    ("{p50: 100, max: 100}", 0.5 * 50.5 + 0.5 * 100, 100),
]


@pytest.mark.parametrize(("written", "mean", "longest"), LENGTHS)
def test_each_way_to_write_lengths(written: str, mean: float, longest: int) -> None:
    """A number, mean and max, percentiles and a histogram all become a mean and a longest."""
    lengths = train_job(f"kind: train\nmodel: bert-base-uncased\ndata: {{samples: 9, seq_len: {written}}}").lengths
    assert lengths.mean == pytest.approx(mean)
    assert lengths.maximum == longest


@given(st.lists(st.integers(1, 10**7), min_size=5, max_size=5).map(sorted))
def test_the_mean_of_percentiles_lies_between_the_shortest_and_the_longest(points: list[int]) -> None:
    """No set of ordered percentiles yields a mean outside 1 and the longest length."""
    fields = LengthFields(**dict(zip([*PERCENTILES, "max"], points, strict=True)))
    lengths = freeze_lengths(fields)
    assert 1 <= lengths.mean <= lengths.maximum == points[-1]


def test_items_per_hour_are_items_and_a_deadline() -> None:
    """A rate over hours is their product, due when the hours are over unless a nearer deadline stands."""
    requests = "items_per_hour: 10000, hours: 24, input_tokens: 9, output_tokens: 9"
    batch = f"kind: batch\nmodel: gpt2\nbatch: {{{requests}}}\n"
    workload = read(batch)
    assert isinstance(workload.job, BatchJob)
    assert workload.job.items == 240_000
    assert workload.constraints.deadline_s == 86_400
    assert read(batch + "constraints: {deadline: 2h}").constraints.deadline_s == 7200


BUYING = [  # file ending, interruptible, purchases
    (TRAIN, "", True, ("on_demand", "spot")),
    (SERVE, "", False, ("on_demand",)),
    (SERVE, "buy: {spot: true}", True, ("on_demand", "spot")),
    (SERVE, "buy: {purchases: [spot]}", True, ("spot",)),
    (TRAIN, "constraints: {interruptible: no}", False, ("on_demand",)),
    (TRAIN, "buy: {spot: off}", True, ("on_demand",)),
    (TRAIN, "buy: {purchases: reserved_3y}", True, ("reserved_3y",)),
    (TRAIN, "buy: {reserved_3y: true}", True, ("on_demand", "spot", "reserved_3y")),
]


@pytest.mark.parametrize(("start", "end", "interruptible", "purchases"), BUYING)
def test_ways_to_buy(start: str, end: str, interruptible: bool, purchases: tuple[str, ...]) -> None:
    """A service is not interruptible unless the file names spot; where work is not, spot is out."""
    workload = read(start + end)
    assert workload.constraints.interruptible is interruptible
    assert workload.buy.purchases == purchases


def test_image_models_take_their_length_from_their_shape() -> None:
    """A vision transformer of 224 pixels in patches of 16 sees 196 patches and one class token."""
    data = "data: {samples: 10}\n"
    assert train_job(f"kind: train\nmodel: vit-base-patch16-224\n{data}").lengths == Lengths(mean=197, maximum=197)
    assert train_job(f"kind: train\nmodel: resnet-50\n{data}").lengths == Lengths(mean=1, maximum=1)


def test_scalars_mean_what_they_say() -> None:
    """YAML 1.1's surprises stay out: `no` is a word, 010 is ten, 12:30 and dates are text."""
    written = "{a: no, b: 010, c: 12:30, d: 2026-12-01, e: 1e6, f: 67_000, g: '5', h: ~, i: 67k, j: .5}"
    assert read_yaml(written).value == {
        "a": "no", "b": 10, "c": "12:30", "d": "2026-12-01", "e": 1e6, "f": 67000, "g": "5", "h": None,
        "i": "67k", "j": 0.5,
    }  # fmt: skip


def test_lines_are_those_of_the_keys() -> None:
    """Each key and list entry knows its line, counted from 1."""
    lines = read_yaml("a: 1\nb:\n  - x\n  - c: 2\n    d: {e: 3}\n").lines
    assert lines[("b", 1, "d", "e")] == 5
    assert (lines[("a",)], lines[("b",)], lines[("b", 0)], lines[("b", 1, "c")]) == (1, 2, 3, 4)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.tonnage.yaml")), ids=lambda path: path.stem)
def test_examples_are_workloads(path: Path) -> None:
    """Each example loads, is named after its file and opens with a comment for a newcomer."""
    assert load_workload(path, as_of=AS_OF).name == path.name.removesuffix(".tonnage.yaml")
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_examples_cover_every_kind() -> None:
    """There is an example to start from for each kind."""
    kinds = {load_workload(path, as_of=AS_OF).kind for path in (ROOT / "examples").glob("*.tonnage.yaml")}
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_examples_in_the_reference_are_workloads(kind: str) -> None:
    """The short example of each kind loads as that kind."""
    assert read(EXAMPLES[kind]).kind == kind


def test_every_public_name_loads() -> None:
    """What `tonnage.workload` lists as public is there, and nothing else is promised."""
    for name in tonnage.workload.__all__:
        assert getattr(tonnage.workload, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Worklod'"):
        _ = tonnage.workload.Worklod


def test_the_reference_is_fresh() -> None:
    """docs/workload-file.md is what the models render; `python -m tonnage.workload.reference` writes it."""
    written = (ROOT / "docs" / "workload-file.md").read_text(encoding="utf-8")
    assert written == render_workload_reference()


def test_the_reference_names_every_area() -> None:
    """The areas listed under `residency` are those of the catalog's regions."""
    row = next(line for line in render_workload_reference().splitlines() if line.startswith("| `residency`"))
    listed = re.search(r"stay in: ([a-z, ]+)\.", row)
    assert listed is not None
    assert set(listed[1].split(", ")) == {region.area for region in load_catalog().regions}


def _fields(model: type[BaseModel]) -> list[str]:
    return [f"`{name}`" for name in model.model_fields]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_reference_names_every_key(kind: str) -> None:
    """Each key of each kind stands in a table with a meaning."""
    rows = re.findall(r"^\| (`\w+`) \| .+ \| .* \| .* \| (\S.*) \| .* \|$", render_workload_reference(), re.M)
    assert set(_fields(KINDS[kind])) <= {name for name, _ in rows}
    assert all(meaning.strip() for _, meaning in rows)


TRAFFIC = "kind: serve\nmodel: gpt2\nserve: {rate_per_s: 5, input_tokens: 64, output_tokens: 16, traffic: %s}\n"


def test_traffic_is_a_course_of_the_busy_rate_and_the_mean_of_token_prices(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("arrived_at,tokens\n" + "".join(f"{second}.5,1\n" for second in range(120)))
    (tmp_path / "file.yaml").write_text(TRAFFIC % "{trace: seen.csv}")
    wave = read(TRAFFIC % "{peak_to_trough: 4}")
    stated = read(TRAFFIC % f"{{hourly: {[1] * 12 + [2] * 12}}}")
    trace = load_workload(tmp_path / "file.yaml", as_of=AS_OF)
    courses = [one.job.traffic for one in (wave, stated, trace) if isinstance(one.job, ServeJob)]
    assert [(len(one.shares), max(one.shares), one.repeats) for one in courses if one] == [
        (24, 1.0, True), (24, 1.0, True), (120, 1.0, False),
    ]  # fmt: skip
    assert stated.buy.tokens.load == 0.75
    assert read(TRAFFIC % "{peak_to_trough: 4}" + "buy: {token_load: 0.3}\n").buy.tokens.load == 0.3


@pytest.mark.parametrize(
    ("traffic", "fault"),
    [
        ("{}", "says nothing"),
        ("{peak_to_trough: 2, trace: a.csv}", "several courses"),
        (f"{{hourly: {[0] * 24}}}", "no hour has a request"),
        ("{hourly: [1, 2]}", "24"),
        ("{trace: absent.csv}", "cannot be read"),
    ],
)
def test_traffic_that_says_nothing_is_refused(traffic: str, fault: str) -> None:
    with pytest.raises(WorkloadError, match=fault):
        read(TRAFFIC % traffic)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [("3\n1\n", "not in order"), ("", "no request"), ("now\n", "expected seconds"), ("0\n9e9\n", "days")],
)
def test_a_trace_that_is_none_is_refused(rows: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("arrived_at\n" + rows)
    (tmp_path / "file.yaml").write_text(TRAFFIC % "{trace: seen.csv}")
    with pytest.raises(WorkloadError, match=fault):
        load_workload(tmp_path / "file.yaml", as_of=AS_OF)
