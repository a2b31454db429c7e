"""Memory of a GPU that runs out: said with what to do, and half of the micro-batch is taken."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, LaunchSpec, RunSpec, TrainingSpec
from tonnage.runs.states import WorkerExit

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
TINY = Path(__file__).parents[1] / "recipes" / "loop" / "tiny.py"
LIMIT_BYTES = 2 * 2**30  # of the card's memory that the worker may take


@pytest.fixture
def tiny() -> ModuleType:
    """The tiny task of the loop's tests."""
    said = importlib.util.spec_from_file_location("tonnage_tests_tiny_gpu", TINY)
    assert said is not None
    assert said.loader is not None
    module = importlib.util.module_from_spec(said)
    said.loader.exec_module(module)
    return module


@pytest.fixture
def small_card(cuda: str) -> Iterator[int]:
    """The card as if it had little memory, for this process."""
    torch = pytest.importorskip("torch")
    assert cuda == "cuda"
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / total)
    torch.cuda.reset_peak_memory_stats()
    yield LIMIT_BYTES
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def worked(folder: RunFolder, tiny: ModuleType, **training: Any) -> int:
    """The exit code of the tiny run in this process."""
    from tonnage.recipes.worker import run_worker

    said = {"global_batch": 64, "max_steps": 5, "epochs": 100.0, "log_every_steps": 1, "precision": "fp32", **training}
    folder.create(
        RunSpec(
            name="one", task="sequence-classification", model="0.0",
            data=DataSpec(train=DataSource(location="200", format="jsonl")), training=TrainingSpec(**said),
            launch=LaunchSpec(device="cuda", threads=1), checkpoint=CheckpointSpec(every_steps=5),
        )
    )  # fmt: skip
    return run_worker(folder, program=tiny.prepare)


def of_kind(folder: RunFolder, kind: EventKind) -> list[Event]:
    return [event for event in folder.events() if event.kind is kind]


def test_half_of_the_micro_batch(
    small_card: int, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has each shortage with the next size and the card's own memory; the peak that is measured is that of
    the size which fits, and no higher than the room there was."""
    monkeypatch.setenv("TINY_WIDE", str(400_000))  # 64 sentences of 24 words: 2.3 GiB a tensor in 32 bits
    folder = RunFolder(tmp_path / "one")
    assert worked(folder, tiny) == WorkerExit.DONE
    short = of_kind(folder, EventKind.OUT_OF_MEMORY)
    assert short
    assert short[0].fields["micro_batch"] == 64
    assert all(event.fields["next_micro_batch"] * 2 == event.fields["micro_batch"] for event in short)
    assert all(event.fields["device"] == "cuda" for event in short)
    assert all(event.fields["capacity_bytes"] > 4 * 2**30 for event in short)
    (fits,) = of_kind(folder, EventKind.PREFLIGHT)
    assert fits.fields["micro_batch"] == short[-1].fields["next_micro_batch"]
    assert 0 < fits.fields["peak_bytes"] <= small_card


def test_one_sample_too_much(
    small_card: int, tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The end says what would help."""
    assert small_card
    monkeypatch.setenv("TINY_WIDE", str(60_000_000))
    folder = RunFolder(tmp_path / "one")
    assert worked(folder, tiny, global_batch=2) == WorkerExit.OUT_OF_MEMORY
    said = capsys.readouterr().err
    assert "one sample of 24 tokens at a time does not fit into memory" in said
    assert "hint: try gradient checkpointing" in said
