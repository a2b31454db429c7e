"""What sizing hands to ranking, whatever the kind of work: columns of (machine, nodes, seconds) and the misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.misses import Miss
from tonnage.scaling.planned import ScaledFleet
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

IntArray = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The best layout of each machine type x node count that fits, and one miss per machine type that does not.

    `work_s` is the pure run time, without start-up or interruptions (for a service the seconds of a month that each
    machine is on, on average). `breakdown(row)`
    builds what `detail` gives of one row; only rows that are shown pay for it. None: there are no rows.
    """

    machine: IntArray  # index into the machine list
    nodes: Array
    work_s: Array
    low_factor: Array  # 80 % interval of the run time, as factors on `work_s`
    high_factor: Array
    nodes_low: Array  # machines if the prediction's better end holds; equals `nodes` where the count is chosen
    nodes_high: Array
    breakdown: Callable[[int], RunDetail] | None = None
    in_flight_s: Array | None = None  # of a batch: seconds of one machine's work that an interruption may lose
    state_parts: Array | None = None  # machines that each save a part of a training's state; None: one saves all
    host_in_doubt: NDArray[np.bool_] | None = None  # the vCPUs are not stated, and many are needed; None: of no row
    scaled: Mapping[int, ScaledFleet] = field(default_factory=dict)  # rows of services whose machines come and go
    misses: Mapping[int, Miss] = field(default_factory=dict)
    held_back: frozenset[int] = frozenset()  # machines with layouts that fit on the expected figure alone
    unverified: Sized | None = None  # the best with hosts whose memory is not stated; None: there are none
    risky: Sized | None = None  # the best with those among them; None: nothing is held back

    def detail(self, row: int) -> RunDetail:
        """The full breakdown of one row. Raises InputError where there is no such row."""
        if self.breakdown is None or not 0 <= row < len(self.machine):
            raise InputError(
                f"row {row} of {len(self.machine)} layouts: "
                + ("there is no such layout" if len(self.machine) else "none fits these machines"),
                hint="`misses` says of each machine what it lacks",
            )
        return self.breakdown(row)


def group_numbers(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """One number for each distinct row of the columns, ordered as the rows are.

    >>> group_numbers(np.array([0, 0, 1]), np.array([4097, 1, 4097])).tolist()
    [1, 0, 2]
    """
    order = np.lexsort(columns[::-1])
    changed = np.zeros(len(order), dtype=bool)
    for column in columns:
        ordered = column[order]
        changed[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(changed)
    return numbers


def best_per_group(group: NDArray[np.int64], score: Array) -> IntArray:
    """Row of the lowest score in each group, ordered by group; ties go to the earlier row.

    >>> best_per_group(np.array([0, 0, 1]), np.array([2.0, 1.0, 5.0])).tolist()
    [1, 2]
    """
    order = np.lexsort((np.arange(len(group)), score, group))
    _, first = np.unique(group[order], return_index=True)
    return order[first].astype(np.intp)
