"""The nearest true equivalent of work that a platform cannot do with the model asked for. Data, not code."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Annotated

from pydantic import Field

from tonnage.comparison.profile_file import WorkloadKind
from tonnage.comparison.user_files import Name, Text, parse_entries
from tonnage.workload.file.fields import StrictModel, Words
from tonnage.workload.jobs import ServeJob, Workload


class Equivalent(StrictModel):
    """Models of a platform that stand in for one it does not have, and what is done with them."""

    platform: Name
    kinds: Annotated[tuple[WorkloadKind, ...], Field(strict=False)]
    models: Words
    say: Text


class EquivalentsFile(StrictModel):
    source: Text
    equivalents: list[Equivalent]


@lru_cache(maxsize=1)
def load_equivalents() -> tuple[Equivalent, ...]:
    """The packaged equivalents."""
    text = files("tonnage.comparison").joinpath("data/equivalents.yaml").read_text("utf-8")
    entries, _ = parse_entries(text, EquivalentsFile, file="equivalents.yaml", page="docs/compare.md")
    return tuple(entries.equivalents)


def equivalent_of(workload: Workload) -> tuple[Workload, Equivalent] | None:
    """The workload as its platform's nearest equivalent does it; None where there is none, or the file names models.

    Its speed is not published, so deadlines and promises are left out: what it would cost is known, how long it takes
    is not.
    """
    if workload.buy.tokens.models:
        return None
    platforms = workload.constraints.platforms
    for one in load_equivalents():
        if one.platform in platforms and workload.kind in one.kinds:
            buy = replace(workload.buy, tokens=replace(workload.buy.tokens, models=one.models))
            limits = replace(workload.constraints, deadline_s=None)
            job = workload.job
            if isinstance(job, ServeJob):
                job = replace(job, p95_latency_s=None, p95_ttft_s=None)
            return replace(workload, buy=buy, constraints=limits, job=job), one
    return None
