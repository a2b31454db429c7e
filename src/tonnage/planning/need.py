"""What a job needs wherever it runs: figures that depend on no machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.planning.layouts.decoder_table import job_scheduler
from tonnage.planning.plan import Need
from tonnage.planning.reasons.origins import (
    AllLayers,
    AtLongest,
    FromMethod,
    FromShape,
    KeptForBackward,
    OneForward,
    Origin,
    StoredAs,
    TableCells,
    WholeJob,
    WholeState,
)
from tonnage.sizing.estimates import Figure
from tonnage.sizing.inference_memory import held_tokens, kv_bytes_per_token, weights_bytes
from tonnage.sizing.kv_pool import with_cache
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.operators import Pass
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.rates import total_flop
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.stages import Stage, forward_stages
from tonnage.sizing.training_job import longest_tokens, parameter_share, training_stages
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.units import TERA, to_gib
from tonnage.workload.file.job_checks import IMAGES
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TabularJob, TrainJob
from tonnage.workload.parameters import count_parameters


def exact(value: float) -> Figure:
    """A figure that follows from definitions: its interval is a point."""
    return Figure(value=value, low=value, high=value, basis="computed")


def needs_of(job: Job) -> Need:
    """Parameters, FLOP and memory parts of `job`, before any machine is chosen."""
    if isinstance(job, TrainJob):
        return _training(job)
    if isinstance(job, TabularJob):
        return _tabular(job)
    return _inference(job)


def _training(job: TrainJob) -> Need:
    job = replace(job, precision="bf16") if job.precision == "auto" else job
    # Two micro-batches: gradients then are beside the activations, and the whole state is counted.
    layout = one_layout(micro_batch=1, accumulation=2)
    recomputed = one_layout(micro_batch=1, accumulation=2, recompute="full")
    memory, lean = estimate_training_memory(job, layout), estimate_training_memory(job, recomputed)
    share = parameter_share(job, layout)
    stages = training_stages(job, layout, length=job.lengths.mean, numbers=TRAINING[job.precision])
    passes = 3.0 if job.method == "full" else 2.0
    flop = _flop(stages) * passes * job.samples * job.epochs
    state = sum(
        float(part[0])
        for part in (
            memory.weights_bytes,
            memory.gradients_bytes,
            memory.optimizer_bytes,
            memory.adapters_bytes,
        )
    )
    longest = float(longest_tokens(job))
    return Need(
        figures=(
            ("parameters", exact(float(count_parameters(job.model).total)), FromShape()),
            ("trained_parameters", exact(float(share.trained[0])), FromMethod(method=job.method)),
            ("model_flop", exact(flop), WholeJob()),
            ("state_gib", exact(to_gib(state)), WholeState()),
            (
                "activations_per_sequence_gib",
                exact(to_gib(float(memory.activations_bytes[0]))),
                KeptForBackward(tokens=longest, recompute="none"),
            ),
            (
                "activations_per_sequence_recomputed_gib",
                exact(to_gib(float(lean.activations_bytes[0]))),
                KeptForBackward(tokens=longest, recompute="full"),
            ),
        )
    )


def _inference(job: ServeJob | BatchJob) -> Need:
    count = count_parameters(job.model)
    requests = job.requests
    length = requests.input_tokens.mean
    over = None if job.model.architecture in IMAGES else length
    span = Pass(batch=1.0, query=length, keys=length, training=False)
    flop = _flop(forward_stages(job.model, span, logit_tokens=1.0))
    figures: list[tuple[str, Figure, Origin]] = [
        ("parameters", exact(float(count.total)), FromShape()),
        ("weights_gib", exact(to_gib(weights_bytes(job.model, FORMATS[job.weights]))), StoredAs(format=job.weights)),
        (
            "input_tflop_per_request",
            exact(flop / TERA),
            OneForward(tokens=over),
        ),
    ]
    if requests.output_tokens is not None and job.model.causal:
        tokens = float(requests.input_tokens.maximum + requests.output_tokens.maximum)
        served = with_cache(FORMATS[job.weights], job.kv_cache, job_scheduler(job))
        per_token = float(kv_bytes_per_token(job.model, element_bytes=served.kv_bytes))
        figures += [
            ("kv_cache_bytes_per_token", exact(per_token), AllLayers()),
            (
                "kv_cache_per_request_gib",
                exact(to_gib(per_token * float(held_tokens(job.model, tokens)))),
                AtLongest(tokens=tokens),
            ),
        ]
    return Need(figures=tuple(figures))


def _flop(stages: Sequence[Stage]) -> float:
    """FLOP of one forward pass over all stages (of one layout)."""
    return sum(stage.repeats * float(np.sum(total_flop(stage.operators))) for stage in stages)


def _tabular(job: TabularJob) -> Need:
    cells = float(job.rows) * job.features
    return Need(
        figures=(
            ("cells", exact(cells), TableCells()),
            ("raw_matrix_gib", exact(to_gib(cells * 4)), StoredAs(format="float32")),
        )
    )
