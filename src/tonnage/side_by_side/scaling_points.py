"""`scaling` at an engine of a bench file -> the engine once for each number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tonnage.side_by_side.entries import EngineEntry, ScalingEntry
from tonnage.side_by_side.spec import DISTRIBUTED, EngineSpec, ScalingKind, ScalingPlace
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.yaml_lines import KeyPath


def scaled(engine: EngineSpec, asked: ScalingEntry | None) -> tuple[EngineSpec, ...]:
    """The points of both curves. With the greatest number of workers they are one: all rows, the whole batch.

    A point of weak scaling has rows and batch in proportion to its workers, so that each worker does the same work.
    """
    if asked is None:
        return (engine,)
    most, found = max(asked.workers), []
    for workers in asked.workers:
        ends = workers == most
        of_point: list[tuple[ScalingKind, ...]] = [asked.kinds] if ends else [(one,) for one in asked.kinds]
        for kinds in of_point:
            weak = kinds == ("weak",)
            batch = max(engine.batch * workers // most, workers) if weak else engine.batch
            name = f"{engine.name}-{workers}w" + ("-weak" if weak and not ends else "")
            place = ScalingPlace(group=engine.name, kinds=kinds, most=most)
            found.append(replace(engine, name=name, workers=workers, threads=workers * asked.threads_per_worker,
                                 devices=engine.devices[:workers], batch=batch, scaling=place))  # fmt: skip
    return tuple(found)


def scaling_problems(here: KeyPath, engine: EngineEntry, asked: ScalingEntry) -> Iterator[Problem]:
    """What contradicts itself."""
    at = (*here, "scaling")
    if engine.engine not in DISTRIBUTED:
        yield Problem(at, f"{engine.engine} runs in one process", f"one of {', '.join(DISTRIBUTED)}")
    for key in ("workers", "threads"):
        if key in engine.model_fields_set:
            yield Problem((*here, key), "is stated by `scaling` too", "leave it out: `scaling` has both")
    rising = all(one < other for one, other in pairwise(asked.workers))
    if len(asked.workers) < 2 or asked.workers[0] != 1 or not rising:
        yield Problem((*at, "workers"), "does not rise from 1, or has one number alone", "workers: [1, 2, 4]")
    if not asked.kinds or len(set(asked.kinds)) != len(asked.kinds):
        yield Problem((*at, "kinds"), "is empty or names one twice", "kinds: [strong, weak]")
    if engine.devices and asked.workers and len(engine.devices) != max(asked.workers):
        yield Problem((*here, "devices"), "one for each of the most workers is needed", f"{max(asked.workers)} of them")
