"""What a metric is: its name with the unit in it, its kind, its labels, and the metric that carries its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tonnage.values import dataclass

MetricKind = Literal["gauge", "counter", "histogram", "info"]
UNITS: Final[Mapping[str, str]] = {  # the ending of a name -> its unit in UCUM, as OTLP carries it
    "ratio": "1", "seconds": "s", "bytes": "By", "joules": "J", "watts": "W", "celsius": "Cel", "hertz": "Hz",
    "usd": "{USD}", "usd_per_hour": "{USD}/h", "usd_per_1000_requests": "{USD}/{1000 requests}",
    "usd_per_million_tokens": "{USD}/{1000000 tokens}", "usd_per_epoch": "{USD}/{epoch}",
    "samples_per_second": "{sample}/s", "tokens_per_second": "{token}/s", "requests_per_second": "{request}/s",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric as it is on a page for Prometheus. `predicted`: the metric that carries what was predicted of it,
    with the label `end` (low, value, high: an 80 % interval)."""

    name: str  # a counter's ends in `_total`, an info's in `_info`
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    predicted: str | None = None

    @property
    def family(self) -> str:
        """The name without what its kind adds, as libraries of Prometheus take it.

        >>> Metric(name="tonnage_run_spend_usd_total", kind="counter", help="Dollars").family
        'tonnage_run_spend_usd'
        """
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def unit(self) -> str:
        """In UCUM; empty: a plain number or a count.

        >>> Metric(name="tonnage_gpu_power_watts", kind="gauge", help="Power").unit
        'W'
        """
        return next((unit for ending, unit in _LONGEST_FIRST if self.family.endswith(f"_{ending}")), "")


_LONGEST_FIRST: Final = tuple(sorted(UNITS.items(), key=lambda pair: -len(pair[0])))
