"""What is watched: figures by metric name and labels, at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tonnage.values import dataclass

Labels = tuple[tuple[str, str], ...]  # sorted by name
STALE_S: Final = 60.0  # a series without a figure for so long, or for three rounds, is gone


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """One series: the name of its metric, and its labels."""

    metric: str
    labels: Labels = ()

    @property
    def text(self) -> str:
        """As Prometheus writes it.

        >>> SeriesKey("tonnage_run_loss", (("run", "a"),)).text
        'tonnage_run_loss{run="a"}'
        """
        inside = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.metric}{{{inside}}}" if inside else self.metric

    def label(self, name: str) -> str | None:
        """The value of a label; None where the series lacks it."""
        return dict(self.labels).get(name)


Figures = Mapping[SeriesKey, float]


def series(metric: str, labels: Mapping[str, str]) -> SeriesKey:
    """The key of a metric and its labels."""
    return SeriesKey(metric, tuple(sorted(labels.items())))
