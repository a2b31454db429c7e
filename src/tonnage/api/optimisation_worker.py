"""One setting measured in a process of its own: `python -m tonnage.api.optimisation_worker JOB RESULT` (JSON files).

Kinds: `training` (steps of a run's own recipe), `passes` (forward passes of an encoder). Starting and warming up are
timed apart; where the job names rows, the model is judged on them afterwards.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.files import write_whole
from tonnage.serving.encoder.folders import read_folder

MAPS: Final = Path("/proc/self/maps")


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the job's setting comes to. InputError where it cannot be measured as asked."""
    _check_preloaded(job.get("preloaded"))
    if job.get("cores") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job["cores"])
    found = _training(job) if job["kind"] == "training" else _passes(job)
    unit = 1024 if sys.platform != "darwin" else 1  # ru_maxrss is in KiB on Linux
    return found | {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def _check_preloaded(library: str | None) -> None:
    """The loader leaves out a library that it cannot load, with a warning alone."""
    if library is not None and Path(library).name not in MAPS.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{library} was not loaded before the program")


def _training(job: Mapping[str, Any]) -> dict[str, Any]:
    from tonnage.benchmarks.timing import CallTimer
    from tonnage.recipes.batches import Feeder
    from tonnage.recipes.engine import build_engine, open_machine
    from tonnage.recipes.loop import data_order
    from tonnage.recipes.randomness import seed_all
    from tonnage.recipes.stepping import StepOutcome, take_step
    from tonnage.recipes.tasks import program_of
    from tonnage.runs.spec import load_spec

    began = time.perf_counter()
    spec = load_spec(json.dumps(job["spec"]), where="the job")
    machine = open_machine(spec)
    seed_all(spec.training.seed)
    prepared = program_of(spec)(spec)
    order, steps = data_order(prepared, spec), job["warm_up_steps"] + job["steps"]
    engine = build_engine(machine, prepared, spec, steps=steps)
    micro = min(spec.training.micro_batch or order.global_batch, order.global_batch)
    feeder = Feeder(prepared, order, rank=0, world=1, shifted=spec.task == "causal-lm", pin=engine.on_gpu)
    clock = CallTimer(_waiting(on_gpu=engine.on_gpu), 0 if engine.on_gpu else spec.launch.threads or 1)
    loaded, taken = time.perf_counter(), []
    try:
        for step in range(steps):
            batches = feeder.at(step, micro, last=step + 1 == steps)
            ended: list[StepOutcome] = []

            def one_step(batches: Any = batches, ended: list[StepOutcome] = ended) -> None:
                found = take_step(engine, batches, weight=batches.weight, clip_norm=spec.training.clip_norm,
                                  leave=lambda: False)  # fmt: skip
                ended.append(found.outcome)

            taken.append(clock.time(one_step)[0])
            if ended[0] is not StepOutcome.DONE:
                raise InputError("the memory does not hold a step", hint="train.micro_batch: a smaller one")
    finally:
        feeder.close()
    warm, timed = taken[: job["warm_up_steps"]], taken[job["warm_up_steps"] :]
    answer = _figures(timed, samples=order.global_batch, started_s=loaded - began, warm_up_s=sum(warm))
    return answer | _judged(engine.raw, prepared, micro)


def _judged(model: Any, prepared: Any, micro: int) -> dict[str, Any]:
    """How good the model is after these steps, on the validation rows."""
    import torch

    model.eval()
    with torch.no_grad():
        found = prepared.evaluate(model, prepared.validation, micro)
    return {"metrics": dict(found.metrics), "rows": found.samples}


def _waiting(*, on_gpu: bool) -> Callable[[], object]:
    if not on_gpu:
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _figures(seconds: Sequence[float], *, samples: int, started_s: float, warm_up_s: float) -> dict[str, Any]:
    return {
        "rate_per_s": samples / median(seconds), "seconds": list(seconds), "started_s": started_s,
        "warm_up_s": warm_up_s,
    }  # fmt: skip


def _passes(job: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from tonnage.benchmarks.encoder_passes import time_passes
    from tonnage.benchmarks.timing import CallTimer, Samples, take_samples
    from tonnage.serving.encoder.runtimes import open_model
    from tonnage.serving.encoder.service import EncoderService

    began = time.perf_counter()
    folder = read_folder(Path(job["model"]))
    service = EncoderService(model=job["model"], name="measured", runtime=job["runtime"], weights=job["weights"])
    model: Any = open_model(folder, service, Path(job["exports"]), threads=job["threads"])
    if job["compile"]:
        model.compile()
    loaded, tokens, texts = time.perf_counter(), job["tokens"], job["texts"]
    generator = np.random.default_rng(0)

    def make(count: int, length: int) -> Callable[[], object]:
        ids = generator.integers(job["first_token"], job["vocab"], (count, length), dtype=np.int64)
        return lambda: model.outputs(ids, np.ones_like(ids), np.zeros_like(ids))

    call, warm = make(texts, tokens), []
    for _ in range(job["warm_up_calls"]):
        start = time.perf_counter()
        call()
        warm.append(time.perf_counter() - start)
    if job["threads"] == 1 and model.device == "cpu":
        turns = range(job["rounds"])
        found = [next(iter(time_passes(make, [texts], tokens=tokens, workers=job["workers"])))[1] for _ in turns]
        seconds = [one.median_s / job["workers"] for one in found]
    else:
        samples = Samples()
        on_gpu = model.device != "cpu"
        clock = CallTimer(_waiting(on_gpu=on_gpu), 0 if on_gpu else job["threads"])
        take_samples(call, clock, samples, budget_s=0.4 * job["rounds"], fewest=5)
        seconds = [samples.timing(threads=job["threads"]).median_s]
    answer = _figures(seconds, samples=texts, started_s=loaded - began, warm_up_s=sum(warm))
    return answer | ({"answers": _answers(folder, model, job)} if job.get("given") else {})


def _answers(folder: Any, model: Any, job: Mapping[str, Any]) -> list[str]:
    """The most probable label of each given text, computed alone."""
    from tonnage.serving.encoder.tasks import computing
    from tonnage.serving.encoder.tokens import TextTokenizer

    if folder.task != "classification":
        raise InputError(f"labelled rows are for classification; this model was saved for {folder.task}")
    reader = TextTokenizer(folder, most_tokens=job["most_tokens"])
    compute = computing(folder, model, padding=reader.padding)
    return [str(compute([reader.read(text, truncate=True)])[0][0]["label"]) for text in job["given"]]


def main(job_file: str, result_file: str) -> None:
    """Measure the job of one file and write the result to the other, whole."""
    found = measure(json.loads(Path(job_file).read_text(encoding="utf-8")))
    write_whole(Path(result_file), json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:3])
