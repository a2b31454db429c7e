"""A real training row, and stand-ins for the physics whose only fitted number is a rate per GPU."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

import pytest

from tonnage.calibration.kinds import FactKind, family_of
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.reading import read_training_rows
from tonnage.calibration.rows import TrainingRow
from tonnage.catalog import Catalog, load_catalog

TRAINING_COLUMNS = tuple(field.name for field in fields(TrainingRow))
GOOD = {
    "id": "t1", "model": "BERT-base", "params": "110000000", "n_layers": "12", "seq_len": "128", "gpu": "T4",
    "n_gpus": "1", "precision": "fp16", "method": "full", "metric": "sequences_per_s", "value": "100",
    "family": "BERT", "quality": "ok",
}  # fmt: skip
Write = Callable[..., Path]
MakeJudged = Callable[..., JudgedRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The stand-in's fit: sequences a second on each GPU it saw."""

    of_gpu: tuple[tuple[str, float], ...] = ()
    usual: float | None = None


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write([{"value": "3"}, ...])`: a training table whose rows are a good row with these cells changed."""

    def make(
        changes: Iterable[Mapping[str, str]], *, name: str = "rows.csv", columns: Sequence[str] = TRAINING_COLUMNS
    ) -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, columns, extrasaction="ignore", restval="")
            writer.writeheader()
            for number, change in enumerate(changes, start=1):
                writer.writerow(GOOD | {"id": f"t{number}"} | dict(change))
        return path

    return make


@pytest.fixture
def judged() -> MakeJudged:
    """`judged(measured=100, predicted=110)`: one result with everything else filled in."""

    def make(**changes: object) -> JudgedRow:
        plain = {
            "row_id": "t1", "metric": "sequences_per_s", "family": "BERT", "gpu": "T4", "measured": 100.0,
            "predicted": 100.0, "suspect": False, "group": "training time",
        }  # fmt: skip
        return JudgedRow(**(plain | changes))  # type: ignore[arg-type]

    return make


def judge(rows: list[TrainingRow], catalog: object, fitted: Rates | None) -> list[JudgedRow | SkippedRow]:
    """Predict the fitted rate of the GPU, else the usual rate (far by one); without either the row is skipped."""
    del catalog
    rates = dict(fitted.of_gpu) if fitted else {}
    usual = fitted.usual if fitted else None
    found: list[JudgedRow | SkippedRow] = []
    for row in rows:
        predicted = rates.get(row.gpu, usual)
        if predicted is None:
            found.append(SkippedRow(row_id=row.id, metric=row.metric, reason="no rate"))
            continue
        found.append(
            JudgedRow(
                row_id=row.id, metric=row.metric, family=family_of(row), gpu=row.gpu, measured=row.value,
                predicted=predicted, suspect=False, group="training time", unseen_factors=int(row.gpu not in rates),
            )
        )  # fmt: skip
    return found


def fit(rows: list[TrainingRow], catalog: object, start: object) -> Rates:
    """The median rate of each GPU."""
    del catalog, start
    gpus = sorted({row.gpu for row in rows})
    rates = tuple((gpu, float(median(row.value for row in rows if row.gpu == gpu))) for gpu in gpus)
    return Rates(of_gpu=rates, usual=float(median(row.value for row in rows)))


@pytest.fixture
def kind() -> FactKind:
    """Training rows judged by the stand-in."""
    return FactKind(
        name="training", read=lambda path, _: read_training_rows(path), judge=judge, fit=fit,
        keys={"family": family_of, "gpu": lambda row: row.gpu},
    )  # fmt: skip


@pytest.fixture
def fit_type() -> type:
    """The stand-in's fit."""
    return Rates


# 64 x A100 40 GB, MPT-1b shape at 2,048 tokens: mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md,
# whose neighbours (16 and 128 GPUs) print 54 to 56 % MFU.
BASE = TrainingRow(
    id="r1", config_id="c1", source="a table", model="MPT-1b", params=1_315_950_592.0, n_layers=24, d_model=2048,
    n_heads=16, n_kv_heads=16, d_ff=8192, vocab=50368, seq_len=2048, gpu="A100-80GB-SXM", n_gpus=8, gpus_per_node=8,
    micro_batch_per_gpu=14, grad_accum=4, global_batch=448, precision="bf16", method="full",
    optimizer="decoupled_adamw", sharding="zero3/fsdp", activation_checkpointing="none", attention="flash", compile="",
    metric="tokens_per_s_per_gpu", value=20_000.0, mfu_reported=None, note="", mem_kind="", family="MPT-1b",
    source_group="x", quality="ok",
)  # fmt: skip


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def row() -> Callable[..., TrainingRow]:
    """`row(gpu="T4", ...)`: the base row with changes."""
    return lambda **changes: replace(BASE, **changes)
