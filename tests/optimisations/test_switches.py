"""Switches: what each changes, that a predicted gain is the ratio of the predictor's own rates, and quality's limit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api.optimised_here import LabelledRows, _quality, preloaded, why_not_in_runs
from tonnage.calibration.local_file import devices_folder, save_profile
from tonnage.calibration.local_inference import PASS
from tonnage.catalog import load_catalog
from tonnage.catalog.slices import as_device, slices_of
from tonnage.claimed_gains.devices import rate_of_one
from tonnage.errors import InputError, UnknownName
from tonnage.optimisations.outcomes import MeasuredSwitch, Quality, SwitchOutcome, Unpredicted, paired_loss
from tonnage.optimisations.predicting import TRAINING_SPREAD, predict_switches, predict_together, processor_rate
from tonnage.optimisations.slices import pack_card
from tonnage.optimisations.switches import Switch, SwitchChange, changed, gpu_switches, processor_switches
from tonnage.overrides import parse_override_gpus
from tonnage.planning import make_size_report
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.local import predict_local
from tonnage.planning.reasons.misses import UnpublishedMiss
from tonnage.reports.rendering import render_report
from tonnage.runs.preflight import Gpu, LocalMachine
from tonnage.sizing.estimates import Figure, Spread
from tonnage.testing.devices import fake_profile
from tonnage.workload.programs import Program

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINING, SERVICE = EXAMPLES / "bert-finetune.tonnage.yaml", EXAMPLES / "serve-bert.tonnage.yaml"
DAY = "2026-11-20"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))


def by_name(found: Any) -> dict[str, SwitchOutcome]:
    return {one.switch.name: one for one in found.outcomes}


def figure(value: float) -> Figure:
    return Figure(value=value, low=value, high=value)


def test_a_change_says_only_what_it_says() -> None:
    """Of a training job a change sets its terms and features of its program; tables have none."""
    job = tonnage.load_workload(TRAINING, as_of=DAY).job
    made = changed(job, SwitchChange(precision="fp8", program=Program(optimizer_fused=True), threads=3))
    assert made == replace(job, precision="fp8", program=replace(job.program, optimizer_fused=True))  # type: ignore[type-var]
    table = tonnage.load_workload(EXAMPLES / "gbm-5m-rows.tonnage.yaml", as_of=DAY).job
    with pytest.raises(InputError, match="tables have no switches"):
        changed(table, SwitchChange(precision="fp8"))


def test_what_is_on_is_no_switch() -> None:
    """A job that is compiled and in tf32 is not offered either; channels-last belongs to convolutions alone."""
    job = tonnage.load_workload(TRAINING, as_of=DAY).job
    asked = replace(job, precision="tf32", compile=True)  # type: ignore[type-var]
    names = {one.name for one in gpu_switches(job)} - {one.name for one in gpu_switches(asked)}
    assert names == {"tf32", "torch.compile"}
    images = tonnage.load_workload(
        {"kind": "train", "model": "resnet-50", "data": {"samples": 1000, "epochs": 1}}, as_of=DAY
    ).job
    assert "channels-last" in {one.name for one in gpu_switches(images)}
    assert "channels-last" not in {one.name for one in gpu_switches(job)}


def test_an_engine_that_does_not_run_the_model_is_no_switch() -> None:
    """T5 under TensorRT-LLM is offered neither vLLM nor SGLang; GPT-2 both."""
    terms: dict[str, Any] = {"rate_per_s": 1, "input_tokens": 20, "output_tokens": 20, "engine": "tensorrt-llm"}
    offered = {
        model: {one.change.engine for one in gpu_switches(
            tonnage.load_workload({"kind": "serve", "model": model, "serve": terms}, as_of=DAY).job)}
        for model in ("t5-base", "gpt2")
    }  # fmt: skip
    assert offered == {"t5-base": {None}, "gpt2": {None, "vllm", "sglang"}}


def test_a_predicted_gain_is_the_ratio_of_the_predictors_rates() -> None:
    """The gain of a switch on a GPU is what `tonnage size` says with it over what it says without; nothing else."""
    catalog, work = load_catalog(), tonnage.load_workload(TRAINING, as_of=DAY)
    found = tonnage.optimise(work, tonnage.OptimiseOptions(gpu="A100-80GB-SXM"), catalog=catalog).found

    def rate(**changes: Any) -> float:
        job = replace(work.job, **changes)  # type: ignore[type-var]
        size = make_size_report(
            replace(work, job=job), catalog, gpus=parse_override_gpus("A100-80GB-SXM:1", catalog),
            calibrated=CalibratedModel.packaged(),
        )  # fmt: skip
        return max(one.value for row in size.rows if (one := rate_of_one(row)) is not None)

    base, outcomes = rate(), by_name(found)
    for name, changes in {"tf32": {"precision": "tf32"}, "torch.compile": {"compile": True}}.items():
        gain = outcomes[name].gain
        assert gain is not None
        assert gain.value == pytest.approx(rate(**changes) / base)
        assert gain.low <= gain.value * TRAINING_SPREAD.low_factor * (1 + 1e-9)


def test_a_gain_that_hangs_on_the_host_is_as_uncertain_as_hosts_are() -> None:
    """Six layers on an H100, 64 texts of 128 tokens: in fp32 the device binds, in tf32 and bf16 the host that launches
    does, and how fast it is nobody knows beforehand. One H100's host gave 2.38 and 1.91 (docs/optimise.md), at the end
    of the interval. With 32 times the work a step the host binds nowhere, and the interval is that of the number format
    alone."""
    shape = {"architecture": "encoder", "layers": 6, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 30522,
             "positions": "learned", "max_positions": 512, "token_types": 2}  # fmt: skip

    def gains(batch: int, seq_len: int) -> dict[str, Figure]:
        file = {
            "kind": "train", "model": shape, "data": {"samples": 100 * batch, "seq_len": seq_len, "epochs": 1},
            "train": {"global_batch": batch, "precision": "fp32"},
        }  # fmt: skip
        found = tonnage.optimise(
            tonnage.load_workload(file, as_of=DAY), tonnage.OptimiseOptions(gpu="H100-SXM"), catalog=load_catalog()
        ).found
        return {name: one.gain for name, one in by_name(found).items() if one.gain is not None}

    small, large = gains(64, 128), gains(512, 512)
    for name, measured in (("tf32", 2.38), ("bf16", 1.91)):
        assert small[name].low < measured < small[name].high
        assert small[name].low < small[name].value * TRAINING_SPREAD.low_factor * 0.95
        assert large[name].low == pytest.approx(large[name].value * TRAINING_SPREAD.low_factor, rel=0.02)


def test_hosts_widen_what_depends_on_them_alone() -> None:
    """A rate that is the slower of device and host: gains on slower and faster hosts span the interval; one that no
    host changes adds nothing."""
    job = tonnage.load_workload(TRAINING, as_of=DAY).job

    def on(host_s: float) -> Any:
        def rate(_: Any, change: SwitchChange) -> Figure:
            device_s = 1.0 if change.precision is None else 0.2
            return figure(1.0 / max(device_s, host_s))

        return rate

    switch = Switch(name="bf16", group="number format", how="", change=SwitchChange(precision="bf16"))
    none = Spread(low_factor=1.0, high_factor=1.0)
    (bound,) = predict_switches(job, [switch], on(0.25), figure(1.0), lambda *_: none, other_hosts=(on(0.5), on(0.125)))
    assert bound.gain is not None
    assert (bound.gain.value, bound.gain.low, bound.gain.high) == pytest.approx((4.0, 2.0, 5.0))
    (free,) = predict_switches(job, [switch], on(0.01), figure(1.0), lambda *_: none, other_hosts=(on(0.02), on(0.005)))
    assert free.gain is not None
    assert free.gain.low == free.gain.high == pytest.approx(5.0)


def test_what_a_device_lacks_and_what_is_not_modelled_is_unknown() -> None:
    """A T4 has no tf32; captured steps are not modelled: no gain, a reason each, and no advice."""
    outcomes = by_name(tonnage.optimise(TRAINING, tonnage.OptimiseOptions(gpu="T4"), as_of=DAY).found)
    lacking = outcomes["tf32"]
    assert lacking.gain is None
    assert lacking.why_none is not None
    assert isinstance(lacking.why_none.miss, UnpublishedMiss)
    graphs = outcomes["CUDA graphs"]
    assert graphs.why_none is not None
    assert "captured" in graphs.why_none.said
    assert lacking.advice(0.01) == graphs.advice(0.01) == "unknown"


def test_together_keeps_what_helps_on_top() -> None:
    """One switch of a group, the best first; one that does not help on top of another is left out."""
    job = tonnage.load_workload(TRAINING, as_of=DAY).job
    gains = {"tf32": 2.0, "fp16": 1.5, "bf16": 1.2}

    def rate(_: Any, change: SwitchChange) -> Figure | Unpredicted:
        alone = gains.get(change.precision or "", 1.0)
        return figure(100.0 * alone * (1.3 if change.compile else 1.0) * (0.9 if change.attention else 1.0))

    def outcome(name: str, group: Any, change: SwitchChange) -> SwitchOutcome:
        found = rate(job, change)
        assert isinstance(found, Figure)
        return SwitchOutcome(switch=Switch(name=name, group=group, how="", change=change),
                             gain=figure(found.value / 100 * (1.2 if change.attention else 1.0)))  # fmt: skip

    outcomes = [
        *(outcome(name, "number format", SwitchChange(precision=name)) for name in gains),  # type: ignore[arg-type]
        outcome("compile", "fusion", SwitchChange(compile=True)),
        outcome("flash", "attention", SwitchChange(attention="flash")),
    ]  # fmt: skip
    found = predict_together(job, outcomes, rate, figure(100.0), lambda _job, _group: TRAINING_SPREAD)
    assert found is not None
    assert found.names == ("tf32", "compile")
    assert found.gain.value == pytest.approx(2.6)
    assert found.gain.high / found.gain.value > TRAINING_SPREAD.high_factor  # two uncertain factors


def test_slices_carry_what_their_share_allows() -> None:
    """A larger slice carries no less than a smaller one, and none more than the card; a card holds as many services
    as slices that each carry one."""
    found = tonnage.optimise(SERVICE, tonnage.OptimiseOptions(gpu="A100-80GB-SXM"), as_of=DAY).found
    packing = found.packing
    assert packing is not None
    assert isinstance(packing.whole, Figure)
    rates = [one.rate_per_s.value for one in packing.slices if isinstance(one.rate_per_s, Figure)]
    assert rates == sorted(rates)
    assert rates[-1] <= packing.whole.value
    for one in packing.slices:
        assert isinstance(one.rate_per_s, Figure)
        assert one.services == (one.slice.instances if one.rate_per_s.value >= 1000 else 0)
    assert packing.best is not None
    assert packing.best.saved_fraction == pytest.approx(1 - 1 / packing.best.services)


def test_all_slices_of_a_card_fit_on_it() -> None:
    """So many instances of a kind take no more of a card than there is; a card without slices is not packed."""
    catalog = load_catalog()
    cut = [card for card in catalog.accelerators if slices_of(card.name)]
    assert len(cut) == 8
    for card in cut:
        for one in slices_of(card.name):
            assert one.instances * one.memory_fraction <= 1.0
            assert one.instances * one.multiprocessor_fraction <= 1.0
            assert one.instances * one.memory_gib <= (card.memory_gib or 0)
            assert as_device(card, one).dense_bf16_tflops == pytest.approx(
                (card.dense_bf16_tflops or 0) * one.multiprocessor_fraction
            )
    assert pack_card(catalog.accelerator("T4"), 1.0, catalog, lambda *_: figure(1.0)) is None


def test_a_processors_gains_come_from_its_profile() -> None:
    """bf16 and threads: the ratio of two predictions of the profile; keeping freed memory: what first touches take."""
    profile = fake_profile(services=True)
    job: Any = tonnage.load_workload(TRAINING, as_of=DAY).job
    slow = replace(job, precision="fp32")
    base = predict_local(slow, profile, threads=1)
    for change, other in (
        (SwitchChange(threads=2), predict_local(slow, profile, threads=2)),
        (SwitchChange(threads=1), base),
    ):
        found = processor_rate(slow, change, profile)
        assert isinstance(found, Figure)
        assert found.value == pytest.approx(other.samples_per_s.value)
    kept = processor_rate(slow, SwitchChange(threads=1, allocator="glibc-keeping"), profile)
    operations = [(one.operation, profile.seconds(one, 1)) for one in base.work.operations()]
    fresh = sum(taken for name, taken in operations if name == "first touch")
    whole = sum(taken for _, taken in operations)
    assert isinstance(kept, Figure)
    assert fresh > 0
    assert kept.value / base.samples_per_s.value == pytest.approx(whole / (whole - fresh))
    assert isinstance(processor_rate(slow, SwitchChange(allocator="jemalloc"), profile), Unpredicted)


def test_a_profile_without_int8_says_how_to_time_it() -> None:
    """int8 of encoders needs its own curves; with them the gain is the ratio of the rates of both."""
    profile = fake_profile(services=True)
    job = tonnage.load_workload(SERVICE, as_of=DAY).job
    missing = processor_rate(job, SwitchChange(runtime="onnx", weights="int8"), profile)
    assert isinstance(missing, Unpredicted)
    assert "int8 was not timed" in missing.said
    thrice = tuple(
        replace(one, precision="int8") for one in fake_profile(services=True, flop_per_s=3e11).curves
        if one.operation.startswith(PASS)
    )  # fmt: skip
    timed = replace(profile, curves=(*profile.curves, *thrice))
    plain = processor_rate(job, SwitchChange(weights="fp32"), timed)
    quick = processor_rate(job, SwitchChange(weights="int8", workers=2), timed)
    assert isinstance(plain, Figure)
    assert isinstance(quick, Figure)
    assert quick.value / plain.value == pytest.approx(6.0)


def test_without_a_profile_nothing_is_predicted() -> None:
    """Without a profile of this machine nothing is predicted, and the page says how to get one; a named profile that is
    not there is an error, and so is an unknown switch."""
    found = tonnage.optimise(TRAINING, as_of=DAY).found
    assert isinstance(found.base, Unpredicted)
    assert "calibrate --local" in found.base.said
    assert {one.advice(0.01) for one in found.outcomes} == {"unknown"}
    with pytest.raises(UnknownName, match="no device profile 'other'"):
        tonnage.optimise(TRAINING, tonnage.OptimiseOptions(device="other"), as_of=DAY)
    with pytest.raises(UnknownName, match="no switch 'bf61'"):
        tonnage.optimise(TRAINING, tonnage.OptimiseOptions(gpu="H100", only=("bf61",)), as_of=DAY)


def test_the_page_says_what_auto_is_and_which_gpu_of_a_name() -> None:
    """`auto` is bf16 on an H100 and fp16 on a T4, and no switch is what the work does anyhow; of three GPUs called H100
    the one that most prices are of, said before the table; an interval has one unit; what is gained together beyond the
    product is explained."""
    for gpu, auto, other in (("H100", "bf16", "fp16"), ("T4", "fp16", "bf16")):
        answer = tonnage.optimise(TRAINING, tonnage.OptimiseOptions(gpu=gpu), as_of=DAY)
        assert answer.found.auto_precision == auto
        assert auto not in by_name(answer.found)
        assert other in by_name(answer.found)
    answer = tonnage.optimise(TRAINING, tonnage.OptimiseOptions(gpu="H100"), as_of=DAY)
    said = " ".join(render_report(answer.report(), "table").split())
    assert said.index("beside H100-NVL, H100-PCIe") < said.index("predicted gain")
    assert answer.found.device == "1 x H100-SXM"
    assert "`train.precision: auto` is bf16 here" in said
    assert isinstance(answer.found.base, Figure)
    assert answer.found.base.low < 1000 < answer.found.base.high  # one unit, though its ends lie on both sides
    assert len(re.findall(r"\b(?:k|M)?samples/s", said.partition("predicted.")[0])) == 1
    assert "more than their product" in said
    assert json.loads(answer.to_json())["auto_precision"] == "bf16"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_loss": 1.0}, "--max-loss"), ({"max_loss": float("nan")}, "--max-loss"), ({"repeats": 0}, "--repeats"),
        ({"steps": 0}, "--steps"), ({"rows": "rows.csv"}, "--measure alone"),
        ({"gpu": "H100-SXM", "measure": True}, "this machine has no GPU"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options: Mapping[str, Any], said: str) -> None:
    """Each with the option's name."""
    with pytest.raises(InputError, match=said):
        tonnage.optimise(TRAINING, tonnage.OptimiseOptions(**options), as_of=DAY)


@pytest.mark.parametrize(
    ("here", "said", "hint"),
    [
        ("NVIDIA H200", "needs the H100-SXM at hand; the GPU here is NVIDIA H200, H200 in the catalog", "--gpu H200"),
        ("NVIDIA Nothing", "the GPU here is NVIDIA Nothing, which the catalog does not know", "leave --measure out"),
    ],
)
def test_a_gpu_is_measured_where_it_is(here: str, said: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first GPU of this machine has to be the one that is predicted."""
    machine = LocalMachine(cores=8, memory_gib=64.0, gpus=(Gpu(name=here, memory_gib=80.0),))
    monkeypatch.setattr("tonnage.runners.machine.look_at_machine", lambda: machine)
    with pytest.raises(InputError) as refused:
        tonnage.optimise(TRAINING, tonnage.OptimiseOptions(gpu="H100-SXM", measure=True), as_of=DAY)
    assert said in refused.value.message
    assert refused.value.hint == hint


def test_services_are_not_measured_on_gpus() -> None:
    """Their engines there are none that is started here."""
    with pytest.raises(InputError, match="of services, switches are measured on this machine's processor only"):
        tonnage.optimise(SERVICE, tonnage.OptimiseOptions(gpu="H100-SXM", measure=True), as_of=DAY)


def test_switches_that_a_run_has_anyway_are_not_timed() -> None:
    """Each with the reason; the others are."""
    training = tonnage.load_workload(TRAINING, as_of=DAY).job
    said = {one.name: why_not_in_runs(one) for one in gpu_switches(training)}
    timed = {name for name, why in said.items() if why is None}
    assert timed == {"tf32", "fp16", "bf16", "torch.compile", "CUDA graphs"}
    assert said["fused optimizer"] == "`tonnage run` takes the fused optimizer in any case"
    graphs = next(one for one in gpu_switches(replace(training, compile=True)) if one.name == "CUDA graphs")
    assert graphs.change.compile
    assert graphs.change.cuda_graphs


def test_tables_and_decoders_on_processors_have_no_switches() -> None:
    """They are refused with what to do instead."""
    with pytest.raises(InputError, match="tables have no switches"):
        tonnage.optimise(EXAMPLES / "gbm-5m-rows.tonnage.yaml", as_of=DAY)
    with pytest.raises(InputError, match="no switches for this work on a processor"):
        tonnage.optimise(EXAMPLES / "serve-gpt2-realtime.tonnage.yaml", as_of=DAY)


def test_a_loss_beyond_the_limit_refuses_a_switch() -> None:
    """However fast: paired answers decide; without labels only their agreement is known; one turn leaves it open."""
    rows = LabelledRows(texts=("a", "b", "c", "d"), labels=("x", "x", "y", "y"))
    before, after = {"answers": ["x", "x", "y", "y"]}, {"answers": ["x", "x", "y", "x"]}
    quality, agreement = _quality(after, before, rows)
    assert quality == Quality(metric="accuracy", before=1.0, after=0.75, rows=4, paired=True,
                              loss=paired_loss([True] * 4, [True, True, True, False]))  # fmt: skip
    assert agreement == 0.75
    assert _quality(after, before, replace(rows, labels=None)) == (None, 0.75)
    switch = Switch(name="int8", group="number format", how="")
    fast = MeasuredSwitch(gain=Figure(value=4.0, low=3.5, high=4.5), turns=3, quality=quality)
    assert SwitchOutcome(switch=switch, measured=fast).advice(0.2) == "refused"
    assert SwitchOutcome(switch=switch, measured=fast).advice(0.25) == "switch on"
    assert SwitchOutcome(switch=switch, measured=replace(fast, turns=1)).advice(0.25) == "open"
    trained, _ = _quality({"metrics": {"accuracy": 0.8}, "rows": 100}, {"metrics": {"accuracy": 0.9}}, None)
    assert trained is not None
    assert trained.loss.value == pytest.approx(0.1)
    assert not trained.paired


def test_the_document_has_every_switch_with_its_reason() -> None:
    """`-o json`: schema, the rate as stated, and for each switch a gain or why it has none; the page agrees."""
    answer = tonnage.optimise(SERVICE, tonnage.OptimiseOptions(gpu="H100-SXM"), as_of=DAY)
    document = json.loads(answer.to_json())
    assert document["schema"] == "tonnage/optimise@1"
    for one in document["switches"]:
        assert (one["predicted_gain"] is None) != (one["why_not_predicted"] is None)
        assert one["measured_gain"] is None
    assert {one["slice"] for one in document["slices"]["kinds"]} == {one.name for one in slices_of("H100-SXM")}
    page = str(answer)
    assert "Switches for serve-bert on 1 x H100-SXM" in page
    assert "1g.10gb" in page


def test_arm_processors_get_the_settings_of_graviton() -> None:
    """They are unknown until measured: no row is of such a processor."""
    job = tonnage.load_workload(TRAINING, as_of=DAY).job
    arm = {one.name for one in processor_switches(job, cores=2, arm=True)}
    other = processor_switches(job, cores=2, arm=False)
    assert arm - {one.name for one in other} == {
        "bf16 kernels of oneDNN", "huge pages", "larger cache of primitives",
    }  # fmt: skip


def test_a_profile_at_home_is_used(tmp_path: Path) -> None:
    """The newest of this machine, and its name heads the page."""
    from tonnage.benchmarks.machine import host_identity

    home = tmp_path / "home"
    here = host_identity()
    save_profile(replace(fake_profile(), identity=here), devices_folder(home) / "local-fake-2c.json")
    found = tonnage.optimise(TRAINING, as_of=DAY).found
    assert found.device == "local-fake-2c"
    assert isinstance(found.base, Figure)
    assert by_name(found)["fp32"].gain is not None


def test_an_allocator_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader would leave it out in silence."""
    monkeypatch.setattr("tonnage.api.optimised_here.find_library", lambda _: None)
    assert preloaded("jemalloc") is None
    assert preloaded("glibc-keeping") is None
