"""What plans that follow one another over one catalog and calibration share: sizings, and what prices are expected.

Those that say what would help where nothing fits change what is bought and allowed, and seldom what is sized; so do
the sliders of a page.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.sized_machines import SizedMachines, size_job
from tonnage.workload.jobs import Constraints, Workload

MOST_SIZINGS: Final = 6  # of some MB each; where nothing fits, one plan and what would help it take up to four


class KeptWork:
    """Of one catalog and calibration; the answers are those of plans made alone. Several threads may share it."""

    def __init__(self, catalog: Catalog, calibrated: CalibratedModel) -> None:
        self._catalog, self._calibrated = catalog, calibrated
        self._instances = {one.key: one for one in catalog.instance_types}
        sold = {(one.provider, one.instance_type) for one in catalog.offers}
        self._offered = {key: one for key, one in self._instances.items() if key in sold}
        self._known: list[tuple[tuple[object, ...], SizedMachines]] = []

    def serves(self, catalog: Catalog, calibrated: CalibratedModel) -> bool:
        """Whether plans over these may share it."""
        return catalog is self._catalog and calibrated == self._calibrated

    def expected(self, catalog: Catalog) -> ExpectedPrices:
        """What prices of a catalog are expected to be; those of another (a supposed price, say) are not kept."""
        return self._expected if catalog is self._catalog else ExpectedPrices(catalog)

    @cached_property
    def _expected(self) -> ExpectedPrices:
        return ExpectedPrices(self._catalog)

    def size(self, workload: Workload, catalog: Catalog, instances: Sequence[InstanceType]) -> SizedMachines:
        """As `size_job`. The table may have further machines, which nothing in `index` leads to."""
        stated = workload.constraints
        limits = Constraints(max_gpus=stated.max_gpus, max_nodes=stated.max_nodes, hold=stated.hold,
                             accept_risk=stated.accept_risk)  # fmt: skip
        sized_alone = replace(workload, constraints=limits)  # so that a sizing can look at no other constraint
        same = catalog.accelerators is self._catalog.accelerators and all(
            self._instances.get(one.key) is one for one in instances
        )
        if not same:  # a device or a machine is supposed to be another
            return size_job(sized_alone, catalog, instances, self._calibrated)
        asked, wanted = (workload.job, workload.host, limits), {one.key for one in instances}
        known = next((sized_machines for key, sized_machines in self._known if key == asked), None)
        if known is not None and wanted <= known.index.keys() | known.unsized.keys():
            return _only(known, wanted)
        if known is not None:  # of other machines: of all at once, since more of them will be asked
            instances = [*self._offered.values()]
        made = size_job(sized_alone, catalog, instances, self._calibrated)
        self._known = [(asked, made), *(one for one in self._known if one[0] != asked)][:MOST_SIZINGS]
        return _only(made, wanted)


def _only(sized_machines: SizedMachines, wanted: Collection[tuple[str, str]]) -> SizedMachines:
    return replace(
        sized_machines, index={one: at for one, at in sized_machines.index.items() if one in wanted},
        unsized={one: miss for one, miss in sized_machines.unsized.items() if one in wanted},
    )  # fmt: skip
