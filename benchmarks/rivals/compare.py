"""Start each rival in its environment and put its errors beside Tonnage's own on exactly the rows it answered."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType

from rivals.cells import Declined

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
TIMEOUT_S = 170
MAIN_METRICS = frozenset(
    {"tokens_per_s_per_gpu", "sequences_per_s", "images_per_s", "iteration_time_s", "peak_mem_gib",
     "peak_mem_gb_unspecified", "latency_ms_mean", "latency_ms_p50", "samples_per_s", "output_tokens_per_s",
     "requests_per_s", "total_tokens_per_s", "ttft_ms", "ttft_ms_p50", "tpot_ms", "tpot_ms_p50"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A rival: the module that asks it, the environment it needs ("" for none), rows asked (None: all)."""

    name: str
    module: str
    table: str
    environment: str = ""
    sample: int | None = None


RIVALS = (
    Rival(name="constant 40 % MFU", module="constant_mfu", table="training"),
    Rival(name="llm-analysis 0.2.2, efficiency 0.5", module="llm_analysis_package", table="training",
          environment="llm_analysis"),
    Rival(name="accelerate 1.15 estimate-memory", module="accelerate_estimate", table="training",
          environment="accelerate"),
    Rival(name="DeepSpeed's model-state formulas", module="deepspeed_formulas", table="training"),
    Rival(name="roofline at 40 % and 80 %", module="roofline", table="inference"),
    Rival(name="aiconfigurator 0.12", module="aiconfigurator_package", table="inference",
          environment="aiconfigurator", sample=24),
    Rival(name="vidur 0.0.26", module="vidur_package", table="inference", environment="vidur", sample=20),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """One rival and one metric: both errors on the rows that both answered, in %."""

    rival: str
    table: str
    metric: str
    rows: int
    rival_median_pct: float
    rival_p90_pct: float
    our_median_pct: float
    our_p90_pct: float

    @property
    def winner(self) -> str:
        return "Tonnage" if self.our_median_pct <= self.rival_median_pct else "the rival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What came of one rival: duels, reasons it declined rows, and why it did not run at all ("" if it did)."""

    rival: Rival
    asked: int
    duels: tuple[Duel, ...] = ()
    declined: tuple[tuple[str, int], ...] = ()
    absent: str = ""


def meet(rival: Rival, path: Path, ours: Mapping[str, float]) -> Meeting:
    """Ask `rival` about the good rows of a table that Tonnage predicts too (`ours`: id to prediction)."""
    with path.open(newline="", encoding="utf-8-sig") as stream:
        rows = [row for row in csv.DictReader(stream) if _asked(row, ours)]
    rows = rows if rival.sample is None else _sampled(rival, rows)
    python = _interpreter(rival)
    if python is None:
        return Meeting(rival=rival, asked=0, absent="no environment for it: see benchmarks/rivals/README.md")
    answers, failure = _ask(rival, python, rows)
    if failure:
        return Meeting(rival=rival, asked=len(rows), absent=failure)
    reasons = Counter(str(answer["reason"]) for answer in answers.values() if answer["value"] is None)
    if sum(reasons.values()) == len(rows) and len(reasons) == 1:
        return Meeting(rival=rival, asked=len(rows), absent=next(iter(reasons)))
    return Meeting(
        rival=rival,
        asked=len(rows),
        duels=_duels(rival, rows, answers, ours),
        declined=tuple(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def _asked(row: Mapping[str, str], ours: Mapping[str, float]) -> bool:
    return row["id"] in ours and row["metric"] in MAIN_METRICS and row.get("quality", "ok") != "suspect"


def _sampled(rival: Rival, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same rows on every machine: those in its support matrix, ordered by a digest of their id."""
    module = import_module(f"rivals.{rival.module}")
    known = [row for row in rows if _supported(module, row)]
    return sorted(known, key=lambda row: sha256(row["id"].encode()).hexdigest())[: rival.sample]


def _supported(module: ModuleType, row: Mapping[str, str]) -> bool:
    try:
        module.check(row)
    except Declined:
        return False
    return True


def _interpreter(rival: Rival) -> str | None:
    if not rival.environment:
        return sys.executable
    folder = os.environ.get("TONNAGE_RIVALS")
    python = Path(folder or "/nowhere") / rival.environment / "bin" / "python"
    return str(python) if python.exists() else None


def _ask(rival: Rival, python: str, rows: Sequence[Mapping[str, str]]) -> tuple[dict[str, dict[str, object]], str]:
    question = io.StringIO()
    if not rows:
        return {}, "no rows to ask about"
    writer = csv.DictWriter(question, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    paths = [str(HERE.parent), *([str(SOURCE)] if not rival.environment else [])]
    try:
        done = subprocess.run(
            [python, "-m", "rivals.run", rival.module], input=question.getvalue(), capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {TIMEOUT_S} s"
    if done.returncode:
        return {}, f"did not run: {(done.stderr.strip().splitlines() or ['no message'])[-1][:200]}"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer for answer in answers}, ""


def _duels(
    rival: Rival,
    rows: Sequence[Mapping[str, str]],
    answers: Mapping[str, dict[str, object]],
    ours: Mapping[str, float],
) -> tuple[Duel, ...]:
    found = []
    for metric in sorted({row["metric"] for row in rows}):
        theirs, own = [], []
        for row in rows:
            value = answers[row["id"]]["value"]
            if row["metric"] != metric or not isinstance(value, int | float):
                continue
            theirs.append(100 * abs(value / float(row["value"]) - 1))
            own.append(100 * abs(ours[row["id"]] / float(row["value"]) - 1))
        if theirs:
            found.append(
                Duel(
                    rival=rival.name, table=rival.table, metric=metric, rows=len(theirs),
                    rival_median_pct=median(theirs), rival_p90_pct=percentile(theirs, 0.9),
                    our_median_pct=median(own), our_p90_pct=percentile(own, 0.9),
                )
            )  # fmt: skip
    return tuple(found)


def percentile(values: Sequence[float], level: float) -> float:
    """The quantile, linear between values."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
