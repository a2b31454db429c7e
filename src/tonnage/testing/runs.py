"""A finished run's folder without training: every file that a worker and a supervisor would have left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tonnage.files import write_whole
from tonnage.runs import EventKind, RunFolder, RunReason, RunSpec
from tonnage.runs.folder import append_values
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec, TrainingSpec

NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)
H100: Final = {
    "index": 0, "name": "NVIDIA H100 80GB HBM3", "utilization_fraction": 0.9, "memory_used_bytes": 11 << 30,
    "memory_total_bytes": 80 << 30, "power_w": 600.0, "temperature_c": 61.0, "energy_j": 0.0, "throttled_by": "",
}  # fmt: skip
SHAPE: Final = {
    "params": 109_483_778, "n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 3072,
    "vocab": 30_522, "family": "bert",
}  # fmt: skip


def run_spec(name: str = "example") -> RunSpec:
    """BERT-base over texts of 128 tokens, 32 at a time, for 3.60 dollars an hour."""
    return RunSpec(
        name=name,
        task="sequence-classification",
        model="bert-base-uncased",
        data=DataSpec(
            train=DataSource(location="rows.jsonl", format="jsonl"), columns=(("text", "text"), ("label", "label"))
        ),
        training=TrainingSpec(global_batch=32, micro_batch=32, precision="bf16", max_steps=100),
        guard=GuardSpec(usd_per_hour=3.6),
    )


LINE_STEPS: Final = 10  # from one line of metrics to the next


def write_run(
    path: Path,
    spec: RunSpec | None = None,
    *,
    step_s: float = 0.1,
    tokens_per_sample: int = 128,
    on_gpu: bool = True,
    killed: bool = False,
    sample: Mapping[str, Any] | None = None,
    gpu: Mapping[str, Any] | None = None,
    line: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    prediction: Mapping[str, Any] | None = None,
    finished: bool = True,
) -> RunFolder:
    """A run of 100 steps, a line of metrics each ten and a sample each second; `killed` once at step 60.

    `sample`, `gpu`, `line`, `result`, `prediction` add to (or replace) what each line or file says.
    """
    spec = spec or run_spec(path.name)
    folder = RunFolder(path)
    folder.create(spec)
    clock = _Clock(step_s)
    _events_before(folder, spec, on_gpu=on_gpu)
    steps = [*range(10, 70, 10), *range(60, 110, 10)] if killed else list(range(10, 110, 10))
    for place, step in enumerate(steps):
        if place and step <= steps[place - 1]:
            _kill(folder, clock, step)
        clock.run(LINE_STEPS)
        _write_line(folder, spec, clock, step, tokens_per_sample, on_gpu=on_gpu, more=line or {})
        _write_sample(folder, clock, place, sample or {}, ({**H100, **(gpu or {})} if on_gpu else None))
        if step % 50 == 0:
            where = f"checkpoints/step-{step:08}"
            folder.record(
                EventKind.CHECKPOINT, who="rank0", at=clock.now, step=step, path=where, seconds=0.5, bytes=1 << 20
            )
    if prediction is not None:
        write_whole(folder.prediction_file, json.dumps({"schema": "tonnage/prediction@1", **prediction}))
    if finished:
        _finish(folder, clock, on_gpu=on_gpu, result=result or {})
    return folder


class _Clock:
    def __init__(self, step_s: float) -> None:
        self.now, self._step_s = NOON, step_s

    def run(self, steps: int) -> None:
        self.now += timedelta(seconds=steps * self._step_s)

    @property
    def step_s(self) -> float:
        return self._step_s


def _events_before(folder: RunFolder, spec: RunSpec, *, on_gpu: bool) -> None:
    device = H100["name"] if on_gpu else "cpu"
    how = {name: getattr(spec.launch, name) for name in ("runner", "processes", "device")}
    folder.record(EventKind.SUBMITTED, who="cli", at=NOON, name=folder.path.name, **how)
    folder.record(EventKind.STARTED, who="supervisor", at=NOON, attempt=1, pid=1)
    folder.record(EventKind.PREFLIGHT, who="rank0", at=NOON, micro_batch=32, tokens=4096, longest_tokens=128,
                  peak_bytes=9 << 30, device=device)  # fmt: skip
    folder.record(EventKind.TRAINING, who="rank0", at=NOON, step=0, micro_batch=32)


def _kill(folder: RunFolder, clock: _Clock, step: int) -> None:
    reason = RunReason.WORKER_KILLED.value
    folder.record(EventKind.RESTARTING, who="supervisor", at=clock.now, reason=reason, delay_s=1, attempt=2)
    folder.record(EventKind.STARTED, who="supervisor", at=clock.now, attempt=2, pid=2)
    folder.record(EventKind.RESUMED, who="rank0", at=clock.now, step=step - 10, lost_steps=10, path="step-00000050")


def _write_line(
    folder: RunFolder, spec: RunSpec, clock: _Clock, step: int, tokens: int, *, on_gpu: bool, more: Mapping[str, Any]
) -> None:
    samples = spec.training.global_batch  # the mean of the line's steps, as tokens and seconds are
    peaks = {"peak_allocated_bytes": 9 << 30, "peak_reserved_bytes": 10 << 30} if on_gpu else {}
    values = {
        "step": step, "at": clock.now.isoformat(), "epoch": step / 100, "loss": 0.7 * 0.98**step,
        "learning_rate": 2e-5 * (1 - step / 100), "steps": LINE_STEPS, "samples": samples, "tokens": samples * tokens,
        "step_s": clock.step_s, "data_wait_s": 0.002 * clock.step_s, **peaks, "host_rss_bytes": 3 << 30,
    }  # fmt: skip
    append_values(folder.metrics_file, values | dict(more))


def _write_sample(
    folder: RunFolder, clock: _Clock, place: int, more: Mapping[str, Any], gpu: Mapping[str, Any] | None
) -> None:
    gpus = {} if gpu is None else {"gpus": [{**gpu, "energy_j": 600.0 * place * 10 * clock.step_s}]}
    values = {"at": clock.now.isoformat(), "processes": 1, "host_rss_bytes": 4 << 30, "cpu_fraction": 0.5,
              "machine_cpu_fraction": 0.52, **gpus}  # fmt: skip
    append_values(folder.samples_file, values | dict(more))


def _finish(folder: RunFolder, clock: _Clock, *, on_gpu: bool, result: Mapping[str, Any]) -> None:
    values = {
        "metrics": {"accuracy": 0.91}, "baseline": {"accuracy": 0.62}, "steps": 100,
        "device": H100["name"] if on_gpu else "cpu", "versions": {"torch": "2.13.0", "transformers": "5.17.0"},
        "shape": SHAPE, "precision": "bf16",
    }  # fmt: skip
    write_whole(folder.result_file, json.dumps(values | dict(result)))
    folder.log_file.write_text("training\ndone\n", encoding="utf-8")
    folder.record(EventKind.SUCCEEDED, who="supervisor", at=clock.now, step=100)
