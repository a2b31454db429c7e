"""What a run measured, as rows in the columns of the training facts: `tonnage validate training` reads them back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import log
from typing import TYPE_CHECKING, Any, Final

from tonnage.calibration.columns import TRAINING_COLUMNS
from tonnage.runs.diagnosis import doubts
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec
from tonnage.units import to_gib

if TYPE_CHECKING:
    from tonnage.runs.measured import MeasuredRun, Records

_SHAPE: Final = ("params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab")
_OPTIMIZERS: Final = {"adamw": "AdamW", "adamw-8bit": "AdamW8bit", "sgd": "SGD", "adafactor": "Adafactor"}
_SHARDINGS: Final = {"ddp": "none/ddp", "zero3": "zero3/fsdp"}
_NOT_FACTS: Final = frozenset(
    {"boosted-trees", "mlp", "text-generation", "own"}
)  # the tables hold training of networks
WHOLE_DEVICE: Final = "nvidia-smi style, whole device (NVML)"
OWN_MEMORY: Final = "nvidia-smi style, the run's own processes (NVML)"
_MEMORY: Final = (  # figure, what the column `mem_kind` says of it
    ("peak_allocated_bytes", "allocated (max_memory_allocated)"),
    ("peak_reserved_bytes", "reserved (max_memory_reserved)"),
    ("peak_device_bytes", WHOLE_DEVICE),
)
RUN_SOURCE: Final = "tonnage run "  # before the run's name, in the column `source`
_RATES: Final = frozenset({"sequences_per_s", "images_per_s", "tokens_per_s_per_gpu"})
NINETIETH: Final = 1.2816  # of the normal law, in standard deviations
HOST: Final = "host RSS of one process"


def rows_of(
    records: Records, measured: MeasuredRun, as_of: datetime, *, began: datetime | None = None
) -> list[dict[str, str]]:
    """The rows of a run; `as_of` is their day where it has no end yet. What was not measured has no row.

    `records` are of one configuration; `began`: when the run itself did.
    """
    if records.spec.task in _NOT_FACTS:
        return []
    base, doubtful = _base(records, measured, began), doubts(records, measured)
    rows = []
    for own in _figures(records, measured):
        why = doubtful if own["metric"] in _RATES else ()  # a busy machine takes no memory from a run
        judged = {"note": _note(records, measured, as_of, why), "quality": "suspect" if why else "ok"}
        rows.append(_finished(base | own | judged))
    return rows


def _figures(records: Records, measured: MeasuredRun) -> Iterator[dict[str, Any]]:
    """The columns in which the rows of one run differ."""
    mean = round(measured.tokens_per_sample) if measured.tokens_per_sample else None
    if records.spec.task == "causal-lm" and measured.tokens_per_s:
        rate = measured.tokens_per_s / measured.processes
        yield {"metric": "tokens_per_s_per_gpu", "value": rate, "seq_len": mean}
    elif records.spec.task == "image-classification" and measured.samples_per_s:
        yield {"metric": "images_per_s", "value": measured.samples_per_s}
    elif measured.samples_per_s:
        yield {"metric": "sequences_per_s", "value": measured.samples_per_s, "seq_len": mean}
    longest = measured.longest_tokens or mean
    memory = [(getattr(measured, name), kind) for name, kind in _MEMORY]
    if not any(size for size, _ in memory):  # on a processor the host's memory is the device's
        memory = [(measured.peak_process_rss_bytes, HOST)]
    for size, kind in memory:
        if size:
            kind = OWN_MEMORY if kind == WHOLE_DEVICE and measured.device_memory_is_own else kind
            yield {"metric": "peak_mem_gib", "value": to_gib(size), "mem_kind": kind, "seq_len": longest}
    yield from _fits(records, measured)


def _fits(records: Records, measured: MeasuredRun) -> Iterator[dict[str, Any]]:
    """Each micro-batch that did not fit, and the one that then did: what the memory model is corrected by."""
    short = [event.fields for event in records.events if event.kind is EventKind.OUT_OF_MEMORY]
    for fields in short:
        yield {"metric": "fits", "value": 0, "seq_len": fields.get("longest_tokens"),
               **_batches(records.spec, fields.get("micro_batch"), measured.processes)}  # fmt: skip
    if short and measured.timed_steps:
        yield {"metric": "fits", "value": 1, "seq_len": measured.longest_tokens or short[-1].get("longest_tokens")}


def _base(records: Records, measured: MeasuredRun, began: datetime | None) -> dict[str, Any]:
    """The columns that all rows of a run share."""
    spec, result = records.spec, records.result
    training, shape = spec.training, result.get("shape") or {}
    asked = "" if training.precision == "auto" else training.precision
    began = began or records.state.submitted_at or records.state.started_at
    sharded = "none" if measured.processes == 1 else _SHARDINGS.get(training.sharding, training.sharding)
    return {
        "config_id": f"{spec.name}@{began.astimezone(UTC):%Y%m%dT%H%M%SZ}" if began else spec.name,
        "source": RUN_SOURCE + spec.name,
        "model": spec.model or str(spec.weights or ""),
        **{name: shape.get(name) for name in _SHAPE},
        "gpu": _device(records, measured),
        "n_gpus": measured.processes,
        "gpus_per_node": measured.processes if spec.launch.runner != "ray" else None,
        **_batches(spec, measured.micro_batch, measured.processes),
        "precision": result.get("precision") or asked,
        "method": "full" if training.method == "full" else f"{training.method} r={training.lora.rank}",
        "optimizer": _OPTIMIZERS[training.optimizer],
        "sharding": sharded,
        "activation_checkpointing": training.recompute,
        "attention": training.attention,
        "compile": "y" if training.compile else "n",
        "derived": "n",
        "family": shape.get("family") or spec.model or str(spec.weights or ""),
        "source_group": "tonnage-run",
        "shape_source": "the run's own model" if shape else "",
    }


def _batches(spec: RunSpec, micro: int | None, processes: int) -> dict[str, Any]:
    whole = spec.training.global_batch
    return {
        "micro_batch_per_gpu": micro,
        "grad_accum": None if not micro else max(1, -(-whole // (micro * processes))),
        "global_batch": whole,
    }


def _device(records: Records, measured: MeasuredRun) -> str:
    """As its driver names it; a processor as its device profile does, where it was predicted by one."""
    planned = str(records.prediction.get("device") or "")
    return planned if planned.startswith("local-") else measured.device


def _note(records: Records, measured: MeasuredRun, as_of: datetime, doubtful: tuple[str, ...]) -> str:
    """Date, versions, how it was timed, and why the row is doubtful where it is.

    `threads=`, `objective=`, `log_sd=`, `steps=` and `saves=` are what device profiles read: threads of a process, what
    is learned, the spread of steps, over how many of them the rate is a mean, and whether a checkpoint was written
    while training went on.
    """
    day = records.state.ended_at or as_of  # the same row whenever it is made
    writes = records.spec.task in ("causal-lm", "sequence-to-sequence")
    objective = "language-model" if writes else "classification"
    parts = [f"fine-tuning, measured {day.astimezone(UTC):%Y-%m-%d}", f"objective={objective}"]
    threads = records.result.get("threads") or records.spec.launch.threads
    parts += [f"threads={threads}"] if threads else []
    parts += ["saves=beside"] if _saved_beside(records) else []
    if measured.median_step_s and measured.p90_step_s and measured.p90_step_s > measured.median_step_s:
        parts.append(f"log_sd={log(measured.p90_step_s / measured.median_step_s) / NINETIETH:.4f}")
        parts.append(f"steps={measured.timed_steps}")
    parts += [f"{name} {version}" for name, version in measured.versions]
    parts.append(f"{measured.timed_steps} steps, {measured.timing}")
    if measured.tokens_per_sample and measured.longest_tokens:
        mean = f"{measured.tokens_per_sample:.1f} on average without padding"
        parts.append(f"tokens of a text: {mean}, longest {measured.longest_tokens}")
    if measured.data_wait_fraction is not None:
        parts.append(f"data wait {100 * measured.data_wait_fraction:.1f} %")
    parts += [f"suspect: {doubt}" for doubt in doubtful]
    return "; ".join(parts)


def _saved_beside(records: Records) -> bool:
    """Whether a checkpoint was begun while steps were still to come."""
    steps = [event.fields.get("step", 0) for event in records.events if event.kind is EventKind.CHECKPOINT]
    return records.spec.checkpoint.asynchronous and any(step < records.state.step for step in steps)


def _finished(values: Mapping[str, Any]) -> dict[str, str]:
    """All columns as text; the id is of the content, so that the same row is the same row anywhere."""
    row = {column: _cell(values.get(column)) for column in TRAINING_COLUMNS}
    row["published_value"], row["published_unit"] = row["value"], row["metric"]
    text = json.dumps(list(row.values()), ensure_ascii=False)
    return row | {"id": "r" + hashlib.sha256(text.encode()).hexdigest()[:12]}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
