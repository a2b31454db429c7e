"""`tonnage run` of starters on a GPU, from file to finished model: every task, number format and kind of adapter."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Home

pytestmark = [pytest.mark.gpu, pytest.mark.heavy]
SHORT: dict[str, Any] = {"max_steps": 12, "log_every": 1, "checkpoint": {"every_steps": 6}}
TASKS = (
    "sequence-classification", "token-classification", "question-answering", "sequence-to-sequence",
    "image-classification", "mlp",
)  # fmt: skip


def check(home: Home, name: str, device: str, precision: str) -> dict[str, Any]:
    """The run ended well, on the device and in the numbers asked for, with losses that are numbers."""
    result, losses = home.result(name), home.losses(name)
    assert result["precision"] == precision
    assert all(math.isfinite(loss) for loss in losses.values())
    if device == "cuda":
        assert "NVIDIA" in result["device"]
        assert 0 < result["peak_allocated_bytes"] <= result["peak_reserved_bytes"]
    return result


@pytest.mark.parametrize("task", TASKS)
def test_each_task(home: Home, device: str, task: str) -> None:
    """In what `auto` comes to (bf16 on a GPU that has it); its finished model is judged on the held-out rows."""
    own = {} if task == "mlp" else {"train": {"precision": "auto"}}
    home.run(home.starter(task, run={"device": device, **SHORT}, **own), "one")
    result = check(home, "one", device, home.result("one")["precision"])
    assert result["steps"] == 12
    if device == "cuda":
        assert result["precision"] == ("fp32" if task == "mlp" else "bf16")
    assert all(math.isfinite(value) for value in result["metrics"].values())


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "bf16-true"])
def test_each_number_format(home: Home, device: str, precision: str) -> None:
    """A language model learns in each; fp16 has its gradients scaled, clipped and summed over two micro-batches."""
    if device == "cpu" and precision in ("fp16", "tf32"):
        pytest.skip("needs a GPU")
    file = home.starter(
        "causal-lm", train={"precision": precision, "micro_batch": 8},
        run={"device": device, **SHORT, "max_steps": 30},
    )  # fmt: skip
    home.run(file, "one")
    check(home, "one", device, precision)
    losses = home.losses("one")
    assert losses[30] < losses[1]


def test_compiled(home: Home, device: str) -> None:
    """torch.compile gives the losses of eager steps within rounding."""
    changes = {"train": {"precision": "fp32"}, "run": {"device": device, **SHORT}}
    home.run(home.starter("causal-lm", **changes), "eager")
    home.run(home.starter("causal-lm", **{**changes, "train": {"precision": "fp32", "compile": True}}), "compiled")
    eager, compiled = home.losses("eager"), home.losses("compiled")
    assert eager.keys() == compiled.keys()
    assert all(compiled[step] == pytest.approx(loss, rel=2e-3) for step, loss in eager.items())


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_adapters(home: Home, device: str, method: str) -> None:
    """Trained on a base with weights, saved as adapters alone, put back on it to be judged again."""
    if method == "qlora" and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    file = home.starter(
        "causal-lm", train={"method": method, "precision": "bf16", "lora": {"rank": 8, "targets": "all-linear"}},
        run={"device": device, **SHORT, "weights": "./model"},
    )  # fmt: skip
    home.write_weights()
    home.run(file, "one")
    check(home, "one", device, "bf16")
    assert (home.folder("one").model / "adapter_config.json").is_file()
    said = home.tonnage("evaluate", "one", "-o", "json").stdout
    assert "perplexity" in said


def test_recomputed(home: Home, cuda: str) -> None:
    """With `recompute: full` the losses are those without, and the peak of memory is no higher."""
    changes = {"train": {"precision": "fp32"}, "run": {"device": cuda, **SHORT}}
    home.run(home.starter("causal-lm", **changes), "kept")
    home.run(home.starter("causal-lm", **{**changes, "train": {"precision": "fp32", "recompute": "full"}}), "again")
    kept, again = home.losses("kept"), home.losses("again")
    assert all(again[step] == pytest.approx(loss, rel=1e-4) for step, loss in kept.items())
    assert home.result("again")["peak_allocated_bytes"] <= home.result("kept")["peak_allocated_bytes"]


def test_texts_written(home: Home, device: str) -> None:
    """`text-generation` writes what was asked for."""
    home.run(home.starter("text-generation", run={"device": device}, batch={"items": 20}), "one")
    assert (home.folder("one").path / "generated.jsonl").read_text().count("\n") > 0


def test_a_network_without_its_gpu_is_refused(home: Home, cuda: str) -> None:
    """With no visible device a run that asks for one does not slide onto the processor."""
    done = home.run(home.starter("mlp", run={"device": cuda}), "one", good=False, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 4
    assert "this machine has 0" in done.stderr
