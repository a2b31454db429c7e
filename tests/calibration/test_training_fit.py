"""Fitting: what is planted is found, and a family left out is judged by a fit that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from tests.sizing.whole_steps import estimate_training_step

from tonnage.calibration.leave_out import leave_one_out
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_fit import apply, fit_training, memory_key
from tonnage.calibration.training_fitted import TrainingFit
from tonnage.calibration.training_judge import in_convention, judge_training, predicted_step, time_case
from tonnage.calibration.training_memory_rows import memory_batch
from tonnage.calibration.training_table import training_batch
from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.sizing.assumptions import Assumptions, fitted_parameters
from tonnage.sizing.training_parts import part_seconds
from tonnage.workload.known import find_model

Row = Callable[..., TrainingRow]


def measured_by(assumed: Assumptions, rows: list[TrainingRow], catalog: Catalog) -> list[TrainingRow]:
    """The rows with the values that `assumed` would measure."""
    cases = [time_case(row, catalog, Assumptions()) for row in rows]
    kept = [case for case in cases if not isinstance(case, SkippedRow)]
    assert len(kept) == len(rows)
    found = [in_convention(case, float(predicted_step(case, assumed).total_s[0])) for case in kept]
    return [replace(row, value=value) for row, value in zip(rows, found, strict=True)]


def grid(row: Row) -> list[TrainingRow]:
    """Two families over lengths, on A100."""
    lengths = (512, 2048, 8192, 32768)
    return [
        row(id=f"{family}-{length}", family=family, seq_len=length, micro_batch_per_gpu=max(1, 32768 // length))
        for family in ("one", "two")
        for length in lengths
    ]


def errors(results: Sequence[JudgedRow | SkippedRow]) -> list[float]:
    """|predicted/measured - 1| of what is judged."""
    return [abs(one.predicted / one.measured - 1) for one in results if isinstance(one, JudgedRow)]


def test_planted_parameters_are_found(row: Row, catalog: Catalog) -> None:
    """Rows made with slower attention and hungrier products are predicted within 2 % after the fit, not before."""
    truth = replace(Assumptions(), training_attention_fraction=0.25, joules_per_tflop_7nm=1.4)
    rows = measured_by(truth, grid(row), catalog)
    before = errors(judge_training(rows, catalog))
    fit = fit_training(rows, catalog)
    after = errors(judge_training(rows, catalog, fit))
    assert median(before) > 0.1
    assert max(after) < 0.02
    assert fit.rows == len(rows)
    assert apply(fit).training_attention_fraction == pytest.approx(0.25, rel=0.1)


def test_fit_is_deterministic_and_within_ranges(row: Row, catalog: Catalog) -> None:
    """The same rows give the same values, each within the range it may take."""
    rows = measured_by(replace(Assumptions(), joules_per_tflop_7nm=1.4), grid(row), catalog)
    first, second = fit_training(rows, catalog), fit_training(rows, catalog)
    assert dict(first.values) == dict(second.values)
    assert all(low <= first.values[name] <= high for name, (low, high) in first.ranges.items())


def test_families_are_left_out(row: Row, catalog: Catalog) -> None:
    """A family whose values are absurd does not change the fit that judges it."""
    rows = measured_by(Assumptions(), grid(row), catalog)
    absurd = [replace(r, value=r.value / 3) if r.family == "two" else r for r in rows]
    results = leave_one_out(
        absurd,
        lambda row: row.family,
        lambda kept: fit_training(kept, catalog),
        lambda held, fit: judge_training(held, catalog, fit),
    )
    two = [one for one in results if isinstance(one, JudgedRow) and one.family == "two"]
    assert median(errors(two)) == pytest.approx(2.0, rel=0.15)  # predicted right, so three times what the rows say


def test_distance_counts_what_was_not_seen(row: Row, catalog: Catalog) -> None:
    """A new generation is two steps away (its device is new too), a new precision one more; a program that nobody
    names is one."""
    rows = [replace(one, program="llm-foundry") for one in measured_by(Assumptions(), grid(row), catalog)]
    fit = fit_training(rows, catalog)
    other = [replace(rows[0], gpu="H100-80GB-SXM", precision="fp8"), replace(rows[0], program="")]
    judged = [one for one in judge_training([rows[0], *other], catalog, fit) if isinstance(one, JudgedRow)]
    assert [(one.unseen_factors, one.foreign) for one in judged] == [(0, 0), (3, 2), (1, 0)]
    planned = fit.unseen_factors(catalog.accelerator("H100-80GB-SXM"), "fp8", "pytorch", devices={"A100-80GB-SXM"})
    assert planned.foreign == ("Hopper GPUs", "precision fp8")
    assert planned.near[0] == catalog.accelerator("H100-80GB-SXM").name


def test_values_of_other_formulas_are_refused(row: Row, catalog: Catalog) -> None:
    """A calibration of another version is an input error that says what to do, never half applied."""
    fit = fit_training(measured_by(Assumptions(), grid(row)[:4], catalog), catalog)
    with pytest.raises(InputError, match="gone_fraction"):
        replace(fit, values={**fit.values, "gone_fraction": 0.5}).assumptions()


def test_table_equals_cases_one_by_one(row: Row, catalog: Catalog) -> None:
    """The table of all rows gives what the formulas give case by case."""
    cases = [c for c in (time_case(r, catalog, Assumptions()) for r in grid(row)) if not isinstance(c, SkippedRow)]
    table = training_batch(cases)
    together = table.steps(Assumptions()).total_s
    apart = [
        float(
            estimate_training_step(
                case.jobs[0], case.layouts, table.devices.take(np.array([index])), trainer=case.trainer
            ).total_s[0]
        )
        for index, case in enumerate(cases)
    ]
    assert together.tolist() == pytest.approx(apart)


def test_a_remembered_part_is_worked_out_anew_where_a_value_that_it_reads_moves(row: Row, catalog: Catalog) -> None:
    """A table that remembers its parts says the same seconds, to the bit, as one that does not: each fitted parameter
    up and back, in turn."""
    devices = [row(id=gpu, gpu=gpu, program="transformers") for gpu in ("V100-32GB", "RTX4090", "H100-80GB-SXM")]
    cases = [time_case(one, catalog, Assumptions()) for one in (*grid(row)[:2], *devices)]
    table = training_batch([case for case in cases if not isinstance(case, SkippedRow)])
    forgetful = replace(table, memo=part_seconds)
    begin = {one.name: one.value for one in fitted_parameters("training time")}
    moved = [{**begin, name: 1.3 * value} for name, value in begin.items()]
    for values in (begin, *(trial for pair in zip(moved, [begin] * len(moved), strict=True) for trial in pair)):
        assert table.log_errors(values).tolist() == forgetful.log_errors(values).tolist()
    assert any(table.log_errors(trial).tolist() != table.log_errors(begin).tolist() for trial in moved)


def test_another_catalog_is_another_time_fit(row: Row, catalog: Catalog) -> None:
    """The same rows on a device with half of the products a second say other parameters: nothing that is remembered of
    one catalog answers for the other."""
    rows = measured_by(Assumptions(), grid(row), catalog)
    halved = tuple(
        replace(one, dense_bf16_tflops=one.dense_bf16_tflops and one.dense_bf16_tflops / 2)
        for one in catalog.accelerators
    )
    first = fit_training(rows, catalog)
    second = fit_training(rows, replace(catalog, accelerators=halved))
    assert dict(second.values) != dict(first.values)
    assert dict(fit_training(rows, catalog).values) == dict(first.values)


def test_a_remembered_memory_fit_is_of_its_values_and_devices(row: Row, catalog: Catalog) -> None:
    """The same rows with other values, or on a device that the catalog has otherwise, are another fit."""
    rows = [row(metric="peak_mem_gib", value=30.0, mem_kind="reserved")]
    larger = tuple(
        replace(one, memory_gib=None if one.memory_gib is None else 2 * one.memory_gib) for one in catalog.accelerators
    )
    other = replace(catalog, accelerators=larger)
    keys = [
        memory_key(memory_batch(these, market, Assumptions()), None)
        for these, market in ((rows, catalog), ([replace(rows[0], value=60.0)], catalog), (rows, other))
    ]
    assert len(set(keys)) == 3
    assert keys[0] == memory_key(memory_batch(rows, catalog, Assumptions()), None)


def test_blocks_that_an_allocator_kept_pull_no_parameter_up(row: Row, catalog: Catalog) -> None:
    """A device read under a caching allocator is a bound: what lies below it costs a fit nothing, what lies above does;
    the same figure of an allocator that keeps nothing counts either way."""
    kinds = ("nvidia-smi (PyTorch caching allocator)", "nvidia-smi (static allocation)")
    values = (1.0, 300.0)
    rows = [
        row(id=f"{kind} {value}", metric="peak_mem_gib", value=value, mem_kind=kind)
        for kind in kinds
        for value in values
    ]
    batch = memory_batch(rows, catalog, Assumptions())
    begin = {one.name: one.value for one in fitted_parameters("training memory")}
    over, kept, static_over, static_under = batch.log_errors(begin).tolist()
    assert kept == 0.0
    assert over == static_over > 0.0 > static_under
    assert batch.log_ratios(begin).tolist() == [over, static_under, static_over, static_under]


def test_a_mixture_of_experts_is_unknown_to_dense_rows(row: Row, catalog: Catalog) -> None:
    """No row of the grid has experts: a plan of one names them, and its interval is wider by judgement."""
    fit = fit_training(measured_by(Assumptions(), grid(row), catalog), catalog)
    device = catalog.accelerator("A100-80GB-SXM")

    def foreign(model: str, rows: TrainingFit) -> tuple[str, ...]:
        return tuple(rows.unseen_factors(device, "bf16", "pytorch", shape=find_model(model)).foreign)

    assert foreign("llama-2-7b", fit) == ()
    assert foreign("mixtral-8x7b-v0.1", fit) == ("mixture of experts",)
    assert foreign("mixtral-8x7b-v0.1", replace(fit, structures=frozenset({"mixture of experts"}))) == ()
