"""Switches measured on this machine: each in a process of its own, turn by turn, beside the work as it is stated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import InputError
from tonnage.optimisations.outcomes import MeasuredSwitch, Quality, paired_loss, unpaired_loss
from tonnage.optimisations.switches import ALLOCATOR_PACKAGES, Allocator, Switch, SwitchChange
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.runs.spec import RunSpec
    from tonnage.workload.jobs import BatchJob, ServeJob

Say = Callable[[str], None]
BASE: Final = "as stated"
STOPPED: Final = "stopped before it was measured"
# https://man7.org/linux/man-pages/man3/mallopt.3.html: no block is mapped apart, freed memory stays with the process
KEEPING: Final = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30)}
LIBRARIES: Final[Mapping[Allocator, str]] = {"jemalloc": "jemalloc", "tcmalloc": "tcmalloc_minimal"}
LIBRARY_FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")
ALLOCATOR_ENVIRONMENT: Final[Mapping[Allocator, Mapping[str, str]]] = {
    "glibc-keeping": KEEPING, "jemalloc": {"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}, "tcmalloc": {},
}  # fmt: skip
WARM_UP_STEPS: Final = 4
COMPILED_WARM_UP_STEPS: Final = 12  # every length that comes for the first time is compiled again
WARM_UP_CALLS: Final = 6
ACCURACY: Final = "accuracy"
CAPTURED: Final = {"ACCELERATE_DYNAMO_MODE": "reduce-overhead"}  # as accelerate hands it to torch.compile


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRows:
    """Texts and the labels they should get; None: they have none, and answers are compared alone."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringTerms:
    """How switches are measured. `steps`: of training, in each turn; `rounds`: of passes, 0.4 s each."""

    repeats: int = 3
    steps: int = 12
    rounds: int = 3
    timeout_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHere:
    """The work as it is stated, and each switch by name. `stopped`: by someone, before all turns were done."""

    base: MeasuredSwitch
    switches: Mapping[str, MeasuredSwitch]
    stopped: bool = False


def training_jobs(
    spec: RunSpec, base: SwitchChange, terms: MeasuringTerms, *, device: Literal["cpu", "cuda"]
) -> Callable[[SwitchChange], dict[str, Any]]:
    """The worker's job of a change to a run, in which steps count and not epochs."""
    from tonnage.runs.spec import dump_spec

    def job(change: SwitchChange) -> dict[str, Any]:
        full = change.over(base)
        stated = {name: value for name in ("precision", "attention", "compile")
                  if (value := getattr(full, name)) is not None}  # fmt: skip
        warm_up = COMPILED_WARM_UP_STEPS if full.compile or spec.training.compile else WARM_UP_STEPS
        training = replace(spec.training, max_steps=warm_up + terms.steps, **stated)
        launch = replace(spec.launch, threads=full.threads, processes=1, device=device)
        own = replace(spec, training=training, launch=launch)
        return {"kind": "training", "spec": json.loads(dump_spec(own)), "warm_up_steps": warm_up,
                "steps": terms.steps, "threads": full.threads, "workers": 1}  # fmt: skip

    return job


def why_not_in_runs(switch: Switch) -> str | None:
    """Why the recipe of `tonnage run` cannot be timed with a switch on a GPU; None where it can."""
    change, program = switch.change, switch.change.program
    if switch.group == "input":
        return "`tonnage run` pins memory and puts batches together beside the device in any case"
    if program.optimizer_fused:
        return "`tonnage run` takes the fused optimizer in any case"
    if program.kernels or program.channels_last:
        return "the recipe of `tonnage run` has no such step"
    if change.precision == "fp8":
        return "fp8 is planned for, not carried out, by `tonnage run`"
    return None


def pass_jobs(
    work: ServeJob | BatchJob, model: Path, exports: Path, base: SwitchChange, terms: MeasuringTerms,
    rows: LabelledRows | None, *, vocabulary: int,
) -> Callable[[SwitchChange], dict[str, Any]]:  # fmt: skip
    """The worker's job of a change to an encoder's passes: one text of the mean length at a time."""

    def job(change: SwitchChange) -> dict[str, Any]:
        full = change.over(base)
        return {
            "kind": "passes", "model": str(model), "exports": str(exports), "runtime": full.runtime,
            "weights": full.weights, "compile": bool(full.compile), "threads": full.threads, "workers": full.workers,
            "texts": 1, "tokens": max(round(work.requests.input_tokens.mean), 1), "vocab": vocabulary,
            "first_token": min(5, vocabulary - 1), "warm_up_calls": WARM_UP_CALLS, "rounds": terms.rounds,
            "most_tokens": work.requests.input_tokens.maximum, "given": list(rows.texts) if rows else None,
        }  # fmt: skip

    return job


def measure_switches(
    switches: Sequence[Switch], job: Callable[[SwitchChange], dict[str, Any]], terms: MeasuringTerms,
    rows: LabelledRows | None, *, say: Say,
) -> MeasuredHere:  # fmt: skip
    """Every setting in every turn, the stated one first, so that a slow hour of the machine meets all alike.

    A setting that fails has a reason, and the rest goes on; where the stated one fails no further turn can be compared,
    and in the first turn InputError says why. Answers and quality are those of the first turn. After Ctrl-C what was
    measured is kept; KeyboardInterrupt passes where that is not even the work as it is stated.
    """
    asked: list[tuple[str, SwitchChange]] = [(BASE, SwitchChange()), *((one.name, one.change) for one in switches)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in asked}
    failed: dict[str, str] = {}
    stopped = False
    try:
        with TemporaryDirectory(prefix="tonnage-optimise-") as scratch:
            for turn, (name, change) in product(range(terms.repeats), asked):
                if name in failed or BASE in failed:
                    continue
                answer = _one(job(change), change, Path(scratch), terms.timeout_s)
                if isinstance(answer, str):
                    failed[name] = answer
                else:
                    found[name].append(answer)
                said = answer if isinstance(answer, str) else f"{answer['rate_per_s']:.4g}/s"
                say(f"turn {turn + 1}/{terms.repeats}, {name}: {said}")
                if BASE in failed and not found[BASE]:
                    raise InputError(f"the work as it is stated cannot be measured here: {failed[BASE]}")
    except KeyboardInterrupt:
        if not found[BASE]:
            raise
        stopped = True
    base, otherwise = found[BASE], STOPPED if stopped else None
    return MeasuredHere(
        base=_summed(base, base, failed.get(BASE), rows), stopped=stopped,
        switches={name: _summed(found[name], base, failed.get(name, None if found[name] else otherwise), rows)
                  for name, _ in asked[1:]},
    )  # fmt: skip


def _one(job: dict[str, Any], change: SwitchChange, scratch: Path, timeout_s: float) -> dict[str, Any] | str:
    """The result of one process, or why it has none."""
    from tonnage.benchmarks.engines.worker_process import end_group, failure_of

    library = None if change.allocator is None else preloaded(change.allocator)
    if change.allocator is not None and change.allocator in LIBRARIES and library is None:
        return f"{change.allocator} is not installed: apt-get install {ALLOCATOR_PACKAGES[change.allocator]}"
    file, result = scratch / "job.json", scratch / "result.json"
    result.unlink(missing_ok=True)
    cores = _cores(job["threads"] * job["workers"])
    file.write_text(json.dumps(job | {"preloaded": library, "cores": cores}), encoding="utf-8")
    line = [sys.executable, "-m", "tonnage.api.optimisation_worker", str(file), str(result)]
    with open(scratch / "log", "wb") as log:
        worker = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=scratch,
                                  env=_environment(job, change, library), start_new_session=True)  # fmt: skip
        try:
            worker.wait(timeout_s)
            in_time = True
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            end_group(worker)
    reason = failure_of(worker.returncode, in_time, timeout_s, scratch, result)
    return reason if reason is not None else dict(json.loads(result.read_text(encoding="utf-8")))


def preloaded(allocator: Allocator) -> str | None:
    """The file of an allocator's library, as the loader finds it; None where it is not installed."""
    if allocator not in LIBRARIES:
        return None
    name = find_library(LIBRARIES[allocator])
    if name is None:
        return None
    if os.sep in name:
        return name
    places = (path for folder in LIBRARY_FOLDERS for path in (Path(folder) / name, *Path(folder).glob(f"*/{name}")))
    return next((str(path) for path in places if path.is_file()), None)


def _cores(wanted: int) -> list[int] | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    mine = sorted(os.sched_getaffinity(0))
    return mine[: max(wanted, 1)]


def _environment(job: Mapping[str, Any], change: SwitchChange, library: str | None) -> dict[str, str]:
    from tonnage.runs.devices import BUS_ORDER
    from tonnage.runs.job import WAITING_THREADS

    threads = {f"{name}_NUM_THREADS": str(job["threads"]) for name in ("OMP", "MKL", "OPENBLAS")}
    memory = ALLOCATOR_ENVIRONMENT[change.allocator] if change.allocator is not None else {}
    first = {"LD_PRELOAD": library} if library is not None else {}
    captured = CAPTURED if change.cuda_graphs else {}
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **threads, **dict([WAITING_THREADS, BUS_ORDER]), **memory, **first, **captured, **offline}


def _summed(
    mine: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]], reason: str | None,
    rows: LabelledRows | None,
) -> MeasuredSwitch:  # fmt: skip
    from tonnage.side_by_side.result import interval

    if not mine:
        return MeasuredSwitch(reason=reason or "not measured", left_out=reason == STOPPED)
    pairs = zip(mine, base, strict=False)  # of the same turn; one that failed later has fewer
    quality, agreement = _quality(mine[0], base[0], rows)
    return MeasuredSwitch(
        rate_per_s=interval(one["rate_per_s"] for one in mine),
        gain=interval(one["rate_per_s"] / other["rate_per_s"] for one, other in pairs),
        turns=len(mine), reason=reason, quality=quality, agreement=agreement,
        peak_rss_bytes=interval(one["peak_rss_bytes"] for one in mine),
        warm_up_s=interval(one["warm_up_s"] for one in mine),
    )  # fmt: skip


def _quality(
    after: Mapping[str, Any], before: Mapping[str, Any], rows: LabelledRows | None
) -> tuple[Quality | None, float | None]:
    """Of answers to labelled rows, or of two trained models; and the share of equal answers."""
    if rows is not None and "answers" in after:
        first, second = before["answers"], after["answers"]
        same = sum(one == other for one, other in zip(first, second, strict=True)) / len(first)
        if rows.labels is None:
            return None, same
        right = [[one == label for one, label in zip(answers, rows.labels, strict=True)] for answers in (first, second)]
        accuracy = [sum(one) / len(one) for one in right]
        return Quality(metric=ACCURACY, before=accuracy[0], after=accuracy[1], rows=len(first), paired=True,
                       loss=paired_loss(*right)), same  # fmt: skip
    if ACCURACY in after.get("metrics", {}):
        first_value, second_value = before["metrics"][ACCURACY], after["metrics"][ACCURACY]
        count = int(after["rows"])
        return Quality(metric=ACCURACY, before=first_value, after=second_value, rows=count, paired=False,
                       loss=unpaired_loss(first_value, second_value, count)), None  # fmt: skip
    return None, None
