"""What a row leaves open is settled by the device it ran on, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tonnage.calibration import training_fit, training_judge
from tonnage.calibration.calibrating import cross_validate
from tonnage.calibration.kinds import kind_named
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_case import TrainingCase, build_case
from tonnage.calibration.training_fitted import TrainingFit
from tonnage.calibration.training_memory_rows import judge_memory_row
from tonnage.calibration.training_unstated import fits, fitted_to_device
from tonnage.catalog import Catalog
from tonnage.sizing.assumptions import Assumptions, unfitted
from tonnage.sizing.layouts import RECOMPUTES

Row = Callable[..., TrainingRow]
FULL = RECOMPUTES.index("full")
TIGHT: dict[str, Any] = {
    "model": "Llama-3.1-8B", "params": 8.03e9, "n_layers": None, "d_model": None, "n_heads": None, "n_kv_heads": None,
    "d_ff": None, "vocab": None, "seq_len": 2048, "gpu": "RTX4090", "n_gpus": 1, "micro_batch_per_gpu": 2,
    "grad_accum": 1, "global_batch": 2, "precision": "bf16", "method": "full", "optimizer": "", "sharding": "none",
    "activation_checkpointing": "", "attention": "", "compile": "", "note": "", "metric": "peak_mem_gib", "value": 20.0,
    "mem_kind": "reserved",
}  # fmt: skip


def test_open_choices_are_changed_until_it_fits(row: Row, catalog: Catalog) -> None:
    """Eight billion parameters trained in full on 24 GiB: recomputation and a smaller optimizer must have been on."""
    case = build_case(row(**TIGHT), catalog)
    settled = fitted_to_device(case, Assumptions())
    assert not fits(case, Assumptions())
    assert fits(settled, Assumptions())
    assert int(settled.layouts.recompute[0]) == FULL


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_checkpointing": "none", "optimizer": "AdamW", "precision": "bf16-mixed"},  # nothing is open
        {"n_gpus": None, "global_batch": None, "micro_batch_per_gpu": None, "grad_accum": None},  # no share to fit
        {"gpu": "H200"},  # fits as it stands
    ],
)  # fmt: skip
def test_other_rows_stay_as_they_are(row: Row, catalog: Catalog, changes: dict[str, Any]) -> None:
    """A row that states all, does not say how many devices it had, or fits, is the same case."""
    case = build_case(row(**{**TIGHT, **changes}), catalog)
    assert fitted_to_device(case, Assumptions()) is case


def test_choices_follow_the_assumptions_handed_in(row: Row, catalog: Catalog) -> None:
    """Where a fit thinks that less is needed, nothing is changed: no figure fitted elsewhere decides."""
    snug = row(**{**TIGHT, "gpu": "A100-80GB-SXM", "precision": "bf16-true", "optimizer": "AdamW"})
    case = build_case(snug, catalog)
    greedy = replace(Assumptions(), loss_bytes_per_logit=200.0)
    assert fitted_to_device(case, Assumptions()) is case
    assert int(fitted_to_device(case, greedy).layouts.recompute[0]) == FULL


def test_what_was_measured_is_not_looked_at(row: Row, catalog: Catalog) -> None:
    """Any published peak gives the same prediction."""
    found = [judge_memory_row(row(**{**TIGHT, "value": value}), catalog, Assumptions()) for value in (5.0, 22.0)]
    assert all(isinstance(one, JudgedRow) for one in found)
    assert len({one.predicted for one in found if isinstance(one, JudgedRow)}) == 1


def test_a_row_that_says_whether_it_fits_is_taken_at_its_word(row: Row, catalog: Catalog) -> None:
    """Nothing is settled where the question itself is whether it fits: as stated, it does not."""
    told = judge_memory_row(replace(row(**TIGHT), metric="fits", value=0.0), catalog, Assumptions())
    assert isinstance(told, JudgedRow)
    assert told.predicted == 0.0


def test_unstated_micro_batches_are_inferred_inside_the_fold(
    row: Row, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A left-out row's micro-batch is what fits by a fit that has not seen its family. Here that fit thinks that a
    logit takes 90 bytes, any other 12."""
    blank: dict[str, Any] = {"micro_batch_per_gpu": None, "grad_accum": None, "global_batch": None}
    rows = [row(id=family, family=family, **blank) for family in ("A", "B")]
    chosen: list[tuple[str, float, float]] = []
    real = training_judge.time_case

    def watched(one: TrainingRow, catalog: Catalog, assumed: Assumptions) -> TrainingCase | SkippedRow:
        case = real(one, catalog, assumed)
        assert isinstance(case, TrainingCase)
        chosen.append((one.family, assumed.loss_bytes_per_logit, float(case.layouts.micro_batch[0])))
        return case

    def fit(seen: list[TrainingRow], *_: object) -> TrainingFit:
        logit = 12.0 if any(one.family == "A" for one in seen) else 90.0
        return TrainingFit(
            values=MappingProxyType({"loss_bytes_per_logit": logit}), ranges={}, rows=len(seen), residuals=(),
            generations=frozenset(), precisions=frozenset(), engines=frozenset(),
        )  # fmt: skip

    monkeypatch.setattr(training_judge, "time_case", watched)
    path = tmp_path / "rows.csv"
    path.write_text("id\n")
    cross_validate(replace(kind_named("training"), read=lambda *_: iter(rows), fit=fit), path, catalog)
    roomy, tight = (max(micro for *one, micro in chosen if one == ["A", logit]) for logit in (12.0, 90.0))
    assert set(chosen) == {("A", 12.0, roomy), ("B", 12.0, roomy), ("A", 90.0, tight)}
    assert tight < roomy


def test_no_fit_settles_what_the_rows_of_a_fit_leave_open(
    row: Row, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are fitted are read by judgements made before any fit, in which no left-out row has a say."""
    taken: list[Assumptions] = []

    def cases(_rows: list[TrainingRow], _catalog: Catalog, assumed: Assumptions) -> list[TrainingCase]:
        taken.append(assumed)
        return []

    monkeypatch.setattr(training_fit, "fitting_cases", cases)
    monkeypatch.setattr(training_fit, "_time_once", lambda *_: None)
    training_fit.fit_training([row()], catalog)
    assert taken == [unfitted()]
    assert taken != [Assumptions()]
