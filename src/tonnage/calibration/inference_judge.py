"""Measured inference rows beside their predictions, in each row's own metric and unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnage.calibration.inference_fit import residual_group
from tonnage.calibration.inference_fitted import InferenceFit
from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow, publication
from tonnage.calibration.store import calibrated_engines
from tonnage.calibration.unseen import UnseenFactors
from tonnage.catalog.catalog import Catalog


def judge_inference(
    rows: Sequence[InferenceRow], catalog: Catalog, fitted: InferenceFit | None = None
) -> list[JudgedRow | SkippedRow]:
    """Predict every row that states what was run; the others come back with the reason. Order is kept.

    `fitted`: engine figures to predict with; those of the packaged calibration by default.
    """
    engines = {**calibrated_engines(), **(fitted.apply() if fitted else {})}
    read = [read_case(row, catalog) for row in rows]
    cases = [case for case in read if not isinstance(case, SkippedRow)]
    predicted = iter(lay_out(cases, engines).predict(engines) if cases else ())
    out: list[JudgedRow | SkippedRow] = []
    for case in read:
        out.append(case if isinstance(case, SkippedRow) else _judged(case, float(next(predicted)), fitted))
    return out


def _judged(case: InferenceCase, predicted: float, fitted: InferenceFit | None) -> JudgedRow | SkippedRow:
    row = case.row
    if not np.isfinite(predicted) or predicted <= 0:
        link = case.machine.intra
        unknown = case.tensor_parallel > 1 and (link is None or link.bus_bandwidth_gb_per_s is None)
        reason = f"{row.metric} does not follow from this kind of run"
        if unknown:
            reason = f"the link between {case.machine.accelerator.name} devices is not known"
        return SkippedRow(row_id=row.id, metric=row.metric, reason=reason)
    unseen_factors = UnseenFactors()
    if fitted is not None:
        unseen_factors = fitted.unseen_factors(
            row.kind, case.machine.accelerator, case.served.compute, case.engine, shape=case.shape
        )
    return JudgedRow(
        row_id=row.id, metric=row.metric, family=case.family, gpu=row.gpu, measured=row.value, predicted=predicted,
        suspect=case.suspect, group=residual_group(case), unseen_factors=len(unseen_factors.names),
        foreign=len(unseen_factors.foreign), source=publication(row.source),
    )  # fmt: skip
