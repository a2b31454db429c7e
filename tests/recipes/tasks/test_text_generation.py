"""Synthetic text: the same for the same seed, each text once, and going on after a kill gives the same file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import GenerationSpec, RunSpec
from tonnage.runs.states import WorkerExit

pytest.importorskip("transformers", reason="the extra `train`")

import torch
from transformers import LlamaForCausalLM

from tonnage.recipes.alone import SingleProcess
from tonnage.recipes.out_of_memory import DoesNotFit
from tonnage.recipes.tasks import standalone, text_generation
from tonnage.recipes.tasks.text_generation import FILE, SEEN

TEXTS = [f"the {animal} sat on the {thing}" for animal in ("cat", "dog", "cow") for thing in ("mat", "hat", "box")]


@pytest.fixture
def folder_for(tmp_path: Path, write_rows: Any, run_spec: Callable[..., RunSpec], tiny_model: Any) -> Any:
    """Makes run folders over one tiny model with random weights."""
    transformers = pytest.importorskip("transformers")
    weights = tiny_model("llama", TEXTS)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(weights))
    model.save_pretrained(weights)
    prompts = write_rows("prompts.jsonl", [{"prompt": "the cat"}, {"prompt": "the cow sat"}])

    def make(name: str, **generation: Any) -> RunFolder:
        given = GenerationSpec(**{"prompts": 20, "max_new_tokens": 3, "batch": 4, "temperature": 1.0, **generation})
        spec = run_spec(
            "text-generation",
            prompts,
            weights=weights,
            roles=("prompt",),
            generation=given,
            training={"max_tokens": 16},
        )
        folder = RunFolder(tmp_path / "runs" / name)
        folder.create(replace(spec, name=name))
        return folder

    return make


def write(folder: RunFolder) -> int:
    run = standalone("text-generation")
    assert run is not None
    return run(folder)


def rows_of(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder.path / FILE).read_text().splitlines()]


def test_texts_follow_from_the_seed_and_are_kept_once(folder_for: Any) -> None:
    """Two runs of one seed write the same bytes; no two texts are alike but for case and spaces; figures add up."""
    one, other = folder_for("one"), folder_for("other")
    assert write(one) == write(other) == WorkerExit.DONE
    assert (one.path / FILE).read_bytes() == (other.path / FILE).read_bytes()
    rows, result = rows_of(one), json.loads(one.result_file.read_text())
    assert len({row["text"].casefold() for row in rows}) == len(rows) == result["metrics"]["kept_texts"] > 5
    assert result["samples"] == 20
    assert result["steps"] == 5
    assert all(row["prompt"] == ("the cat", "the cow sat")[row["number"] % 2] for row in rows)


def test_another_seed_writes_others(folder_for: Any) -> None:
    """The seed of the run chooses the texts."""
    one, other = folder_for("one"), folder_for("other")
    spec = other.spec()
    other.spec_file.write_text(one.spec_file.read_text().replace('"seed": 0', '"seed": 9'))
    assert spec.training.seed != other.spec().training.seed
    write(one)
    write(other)
    assert (one.path / FILE).read_bytes() != (other.path / FILE).read_bytes()


def test_the_likeliest_text_is_kept_once(folder_for: Any) -> None:
    """At temperature 0 each prompt has one text: twenty are written, two kept."""
    folder = folder_for("greedy", temperature=0.0)
    write(folder)
    assert len(rows_of(folder)) <= 2
    assert json.loads(folder.result_file.read_text())["metrics"]["kept_fraction"] <= 0.1


def test_memory_that_runs_out_halves_what_is_written_at_a_time(
    folder_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text is written all the same; the journal says how many fit, and one that is too much is the end."""
    generated, limit = LlamaForCausalLM.generate, 2

    def short(self: Any, input_ids: Any, **options: Any) -> Any:
        if len(input_ids) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory (injected by a test)")
        return generated(self, input_ids=input_ids, **options)

    monkeypatch.setattr(LlamaForCausalLM, "generate", short)
    folder = folder_for("short", prompts=8)
    assert write(folder) == WorkerExit.DONE
    assert json.loads(folder.result_file.read_text())["samples"] == 8
    shortages = [event for event in folder.events() if event.kind is EventKind.OUT_OF_MEMORY]
    assert [event.fields["next_micro_batch"] for event in shortages] == [2]
    limit = 0
    with pytest.raises(DoesNotFit):
        write(folder_for("none"))


@pytest.mark.parametrize(("precision", "kind"), [("fp16", "float16"), ("bf16", "bfloat16"), ("fp32", "float32")])
def test_the_model_writes_in_the_precision_of_its_device(
    folder_for: Any, monkeypatch: pytest.MonkeyPatch, precision: str, kind: str
) -> None:
    """A T4 or V100 has no bf16: 16 bits stay 16 bits there, and no weight is held in 32."""
    monkeypatch.setattr(text_generation, "choose_precision", lambda *_: precision)
    writer = text_generation._TextWriter(folder_for("kind").spec())
    assert {one.dtype for one in writer._model.parameters()} == {getattr(torch, kind)}


def test_a_killed_run_goes_on_to_the_same_file(folder_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold in the middle of a batch's lines, then resumed: byte for byte what an unbroken run writes."""
    whole, cut = folder_for("whole"), folder_for("cut")
    write(whole)
    stepped = SingleProcess.stepped

    def stop(self: SingleProcess, step: int, **figures: Any) -> None:
        stepped(self, step, **figures)
        if step == 2:
            self.folder.stop_request.touch()

    monkeypatch.setattr(SingleProcess, "stepped", stop)
    assert write(cut) == WorkerExit.STOPPED
    for name in (FILE, SEEN):  # what a kill while writing leaves behind
        with (cut.path / name).open("a") as file:
            file.write('{"number": 8, "pro')
    cut.stop_request.unlink()
    assert write(cut) == WorkerExit.DONE
    assert (cut.path / FILE).read_bytes() == (whole.path / FILE).read_bytes()
    results = [json.loads(folder.result_file.read_text())["metrics"] for folder in (whole, cut)]
    assert results[0] == results[1]
