"""Memory of a GPU that runs out: said with what to do, and half of the micro-batch is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.states import WorkerExit

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
LIMIT_BYTES = 2 * 2**30  # of the card's memory that the worker may take


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


def of_kind(folder: RunFolder, kind: EventKind) -> list[Event]:
    return [event for event in folder.events() if event.kind is kind]


def test_half_of_the_micro_batch(
    small_card: int, work_on_tiny: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has each shortage with the next size and the card's own memory; the peak that is measured is that of
    the size which fits, and no higher than the room there was."""
    monkeypatch.setenv("TINY_WIDE", str(400_000))  # 64 sentences of 24 words: 2.3 GiB a tensor in 32 bits
    folder = RunFolder(tmp_path / "one")
    assert work_on_tiny(folder) == WorkerExit.DONE
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
    small_card: int, work_on_tiny: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The end says what would help."""
    assert small_card
    monkeypatch.setenv("TINY_WIDE", str(60_000_000))
    folder = RunFolder(tmp_path / "one")
    assert work_on_tiny(folder, global_batch=2) == WorkerExit.OUT_OF_MEMORY
    said = capsys.readouterr().err
    assert "one sample of 24 tokens at a time does not fit into memory" in said
    assert "hint: try gradient checkpointing" in said
