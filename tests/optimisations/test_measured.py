"""Switches are measured in processes of their own, on tiny models; their answers before and after are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api import optimised_here
from tonnage.api.optimisation_worker import measure
from tonnage.api.optimised_here import STOPPED, MeasuredHere, MeasuringTerms, measure_switches, preloaded
from tonnage.errors import InputError, MeasuringStopped
from tonnage.optimisations.outcomes import MeasuredSwitch
from tonnage.optimisations.switches import Switch, SwitchChange
from tonnage.sizing.estimates import Figure

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

SERVICE = """
kind: serve
model: ./model
serve: {rate_per_s: 5, input_tokens: {mean: 6, max: 12}, p95_latency: 1s}
"""
TRAINING = """
kind: train
model: ./model
data: {samples: 40, seq_len: {mean: 5, max: 8}, epochs: 1}
train: {objective: classification, global_batch: 4, precision: fp32}
run:
  task: sequence-classification
  weights: ./model
  data:
    train: rows.jsonl
    columns: {text: text, label: label}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny classifier and rows of its words, labelled by it."""
    from tonnage.testing.tiny_encoders import write_tiny_encoder

    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_tiny_encoder(tmp_path / "model", "classification", seed=3)
    words = ("good film", "bad film", "the good film was bad", "who wrote it", "anna wrote the film", "it was good")
    rows = [{"text": words[at % len(words)], "label": ("neg", "pos", "none")[at % 3]} for at in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "service.tonnage.yaml").write_text(SERVICE, encoding="utf-8")
    (tmp_path / "training.tonnage.yaml").write_text(TRAINING, encoding="utf-8")
    return tmp_path


def by_name(found: Any) -> dict[str, Any]:
    return {one.switch.name: one for one in found.outcomes}


@pytest.mark.slow
def test_a_services_switches_are_measured_with_their_answers(folder: Path) -> None:
    """Each in every turn, beside the work as it is stated; PyTorch in fp32 answers as ONNX Runtime in fp32 does."""
    said: list[str] = []
    asked = tonnage.OptimiseOptions(
        measure=True, repeats=2, model="model", rows="rows.jsonl", only=("ONNX Runtime int8", "PyTorch fp32"),
    )  # fmt: skip
    found = tonnage.optimise(folder / "service.tonnage.yaml", asked, say=said.append).found
    assert [line.partition(":")[0] for line in said] == [
        f"turn {turn}/2, {name}" for turn in (1, 2) for name in ("as stated", "ONNX Runtime int8", "PyTorch fp32")
    ]
    assert found.base_measured is not None
    assert found.base_measured.gain is not None
    assert found.base_measured.gain.value == pytest.approx(1.0)
    eager = by_name(found)["PyTorch fp32"].measured
    assert eager.turns == 2
    assert eager.agreement == 1.0
    assert eager.quality.loss.value == 0.0
    assert eager.quality.rows == 40
    assert eager.gain.low <= eager.gain.value <= eager.gain.high
    assert by_name(found)["ONNX Runtime int8"].measured.quality is not None


@pytest.mark.slow
def test_a_trainings_switches_are_measured_in_its_own_steps(folder: Path) -> None:
    """The run's recipe, so many steps; the rate is that of global batches, quality that of the validation rows."""
    asked = tonnage.OptimiseOptions(measure=True, repeats=1, steps=3, only=("bf16",))
    answer = tonnage.optimise(folder / "training.tonnage.yaml", asked)
    found = by_name(answer.found)["bf16"].measured
    assert found.reason is None
    assert 0 < found.quality.rows < 40
    assert not found.quality.paired
    document = json.loads(answer.to_json())
    assert document["switches"][0]["measured_gain"] > 0
    assert document["switches"][0]["turns"] == 1


def test_a_library_that_was_not_loaded_first_is_an_error() -> None:
    """The loader only warns; the figures would be those of another allocator."""
    with pytest.raises(InputError, match=r"libnone\.so\.9 was not loaded"):
        measure({"kind": "passes", "preloaded": "/usr/lib/libnone.so.9"})


@pytest.mark.skipif(preloaded("jemalloc") is None, reason="jemalloc is not installed")
@pytest.mark.slow
def test_an_allocator_is_really_loaded(folder: Path) -> None:
    """The worker looks for it among what is mapped into it; the figures come with its memory."""
    asked = tonnage.OptimiseOptions(measure=True, repeats=1, model="model", only=("jemalloc",))
    found = by_name(tonnage.optimise(folder / "service.tonnage.yaml", asked).found)["jemalloc"].measured
    assert found.reason is None
    assert found.peak_rss_bytes.value > 2**20


def test_a_setting_that_fails_is_a_failed_row(tmp_path: Path) -> None:
    """It has its reason, and the others go on; where the stated work fails there is nothing to compare with."""
    switch = Switch(name="odd", group="memory", how="", change=SwitchChange(threads=2))

    def job(change: SwitchChange) -> dict[str, Any]:
        return {"kind": "passes", "model": str(tmp_path / "none"), "threads": change.threads or 1, "workers": 1,
                "runtime": "onnx", "weights": "fp32"}  # fmt: skip

    with pytest.raises(InputError, match="as it is stated cannot be measured here: ended with exit code 1"):
        measure_switches([switch], job, MeasuringTerms(repeats=1), None, say=lambda _: None)


def test_what_was_measured_before_a_stop_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the first turn: the stated work and the first switch are measured, the second is not and says why.
    Before anything was measured the interruption passes."""
    answers: list[Any] = [{"rate_per_s": rate, "peak_rss_bytes": 1e9, "warm_up_s": 1.0} for rate in (10.0, 20.0)]

    def one(*_: Any) -> Any:
        if not answers:
            raise KeyboardInterrupt
        return answers.pop(0)

    monkeypatch.setattr("tonnage.api.optimised_here._one", one)
    switches = [Switch(name=name, group="memory", how="", change=SwitchChange(threads=2)) for name in ("a", "b")]

    def measured() -> MeasuredHere:
        return measure_switches(switches, lambda _: {}, MeasuringTerms(repeats=3), None, say=lambda _: None)

    found = measured()
    assert (found.stopped, found.base.turns, found.switches["a"].turns) == (True, 1, 1)
    assert found.switches["a"].reason is None
    assert found.switches["a"].gain is not None
    assert found.switches["a"].gain.value == pytest.approx(2.0)
    assert found.switches["b"] == MeasuredSwitch(reason="stopped before it was measured", left_out=True)
    with pytest.raises(KeyboardInterrupt):
        measured()


def test_a_stopped_measurement_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command shows what there is and ends with the exit code of an interruption."""
    base = MeasuredSwitch(rate_per_s=Figure(value=10.0, low=9.0, high=11.0), turns=1)
    stopped = MeasuredHere(base=base, switches={"tcmalloc": MeasuredSwitch(reason=STOPPED)}, stopped=True)
    monkeypatch.setattr("tonnage.api.optimised_here.measure_switches", lambda *_, **__: stopped)
    asked = tonnage.OptimiseOptions(measure=True, model="model", only=("tcmalloc",))
    answer = tonnage.optimise(folder / "service.tonnage.yaml", asked)
    assert isinstance(answer.fault, MeasuringStopped)
    assert answer.fault.exit_code == 130
    assert "stopped before it was measured" in str(answer)


def test_without_an_allocators_library_its_switch_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed row with the package's name; no process is started for it, the work as it is stated is measured."""
    really = optimised_here._one

    def one(job: dict[str, Any], change: SwitchChange, *others: Any) -> dict[str, Any] | str:
        if change.allocator is None:
            return {"rate_per_s": 10.0, "peak_rss_bytes": 1e9, "warm_up_s": 1.0}
        return really(job, change, *others)

    monkeypatch.setattr(optimised_here, "_one", one)
    monkeypatch.setattr(optimised_here, "preloaded", lambda _: None)
    monkeypatch.setattr(optimised_here.subprocess, "Popen", None)
    asked = tonnage.OptimiseOptions(measure=True, repeats=1, model="model", only=("tcmalloc",))
    found = by_name(tonnage.optimise(folder / "service.tonnage.yaml", asked).found)["tcmalloc"].measured
    assert found.reason == "tcmalloc is not installed: apt-get install libtcmalloc-minimal4"
    assert found.gain is None


def test_a_model_of_random_weights_has_no_quality(folder: Path) -> None:
    """Rows need a trained model; a shape that no random model is made of is refused."""
    asked = tonnage.OptimiseOptions(measure=True, rows="rows.jsonl")
    with pytest.raises(InputError, match="labelled rows need a trained model"):
        tonnage.optimise(folder / "service.tonnage.yaml", asked)
    work = tonnage.load_workload(folder / "service.tonnage.yaml")
    odd = replace(work, job=replace(work.job, model=replace(work.job.model, gated_mlp=True)))  # type: ignore[type-var,union-attr]
    with pytest.raises(InputError, match="no model of random weights"):
        tonnage.optimise(odd, tonnage.OptimiseOptions(measure=True))
