"""The one registry of metric names: runs, machines and GPUs, services, the gateway, a home.

Whoever shows a metric takes its kind and meaning from here; a name that is not here is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tonnage.metric_names.groups import DEVICE_METRICS, HOME_METRICS, RUN_METRICS, SERVICE_METRICS
from tonnage.metric_names.kinds import Metric
from tonnage.metric_names.of_gateway import GATEWAY_METRICS

__all__ = ["GROUPS", "REGISTRY", "Metric", "find_metric"]

GROUPS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Runs": RUN_METRICS, "Machines and GPUs": DEVICE_METRICS, "Services": SERVICE_METRICS,
    "Gateway": GATEWAY_METRICS, "Budgets, backups, the watch": HOME_METRICS,
}  # fmt: skip
REGISTRY: Final[Mapping[str, Metric]] = {one.name: one for group in GROUPS.values() for one in group}
_PARTS: Final = ("_bucket", "_sum", "_count")


def find_metric(name: str) -> Metric | None:
    """The metric of a series, also of a part of a histogram; None: a name of somebody else's page.

    >>> found = find_metric("tonnage_encoder_request_seconds_bucket")
    >>> found is not None and found.kind
    'histogram'
    """
    if name in REGISTRY:
        return REGISTRY[name]
    for part in _PARTS:
        one = REGISTRY.get(name.removesuffix(part))
        if one is not None and one.kind == "histogram" and name.endswith(part):
            return one
    return None
