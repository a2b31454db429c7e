"""Measured rows of whole passes beside their predictions, laid out for a fit: equal passes are timed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.inference_predict import (
    EngineBatch,
    copied_s,
    engine_batch,
    fed_s,
    fixed_and_sending_s,
    lay_out,
)
from tonnage.calibration.inference_reading import InferenceCase
from tonnage.calibration.pass_table import PassTable, pass_table
from tonnage.calibration.search import Values
from tonnage.sizing.encoder_loads import Flags, in_step_s, request_s
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

Places = NDArray[np.int64]
ONE_PASS = ("pass", "batching-server", "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBatch:
    """Rows that are one pass each in a table; what is more than a pass (a generation) goes the long way.

    A row's logarithm is `offset` + `sign` x the logarithm of its request's seconds; `place` finds its pass.
    """

    engine: Engine
    table: PassTable
    place: Places
    fixed_s: Array
    sending_s: Array
    batching: Flags
    fed_s: Array
    instances: Array
    copied_s: Array
    sign: Array
    offset: Array
    measured: Array
    longer: EngineBatch | None
    order: Places  # of the rows given, first the passes and then the longer ones

    def log_errors(self, values: Values) -> Array:
        """log(predicted / measured) of every row under these figures of the class, in the order the rows were given."""
        engine = self.engine.with_figures(values)
        seconds = in_step_s(self.table.seconds(engine)[self.place], self.instances, self.copied_s)
        lasting = request_s(seconds, self.fixed_s, self.sending_s, self.batching, self.fed_s)
        errors = self.offset + self.sign * np.log(lasting) - self.measured
        if self.longer is not None:
            errors = np.concatenate((errors, self.longer.errors_under(engine)))
        out = np.empty(len(errors))
        out[self.order] = errors
        return out


def pass_rows(cases: Sequence[InferenceCase], engine: Engine) -> PassBatch:
    """Lay the rows out under the structure of `engine`, whose figures serve as the reference of the offsets."""
    single = [i for i, case in enumerate(cases) if case.load in ONE_PASS and case.tensor_parallel == 1]
    other = [i for i in range(len(cases)) if i not in set(single)]
    mine = [cases[i] for i in single]
    first: dict[tuple[object, ...], int] = {}
    entry = [first.setdefault(_pass_key(case), len(first)) for case in mine]
    unique = [mine[entry.index(number)] for number in range(len(first))]
    laid = lay_out(unique, {engine.name: engine})
    table = pass_table([group.works[0] for group in laid.groups])
    where = np.empty(len(unique), dtype=np.int64)
    where[[i for group in laid.groups for i in group.index]] = np.arange(len(unique))
    place = where[entry]
    waits = np.array([fixed_and_sending_s(case) for case in mine]).reshape(-1, 2)
    batching = np.array([case.load == "batching-server" and not _inside_server(case) for case in mine], dtype=bool)
    fed = np.array([0.0 if _inside_server(case) else fed_s(case) for case in mine])
    instances, copied = np.array([float(case.instances) for case in mine]), np.array([copied_s(case) for case in mine])
    lasting = request_s(
        in_step_s(table.seconds(engine)[place], instances, copied), waits[:, 0], waits[:, 1], batching, fed
    )
    sign = np.array([-1.0 if case.row.metric.endswith("_per_s") else 1.0 for case in mine])
    known = lay_out(mine, {engine.name: engine}).predict({engine.name: engine}) if mine else np.zeros(0)
    longer = [cases[i] for i in other]
    return PassBatch(
        engine=engine, table=table, place=place, fixed_s=waits[:, 0], sending_s=waits[:, 1], batching=batching,
        fed_s=fed, instances=instances, copied_s=copied, sign=sign, offset=np.log(known) - sign * np.log(lasting),
        measured=np.log([case.row.value for case in mine]),
        longer=engine_batch(longer, engine) if longer else None, order=np.array([*single, *other], dtype=np.int64),
    )  # fmt: skip


def _inside_server(case: InferenceCase) -> bool:
    return case.row.metric.startswith("server_compute")


def _pass_key(case: InferenceCase) -> tuple[object, ...]:
    """What makes two rows the same pass on the same device."""
    return (case.shape.name, case.shape.layers, case.served, case.load, case.machine.accelerator.name, case.batch,
            case.input_tokens, case.padded_tokens, case.users, case.rate_per_s > 0, case.autocast,
            case.channels_last, case.norms_apart, case.instances, case.quantised_residual)  # fmt: skip
