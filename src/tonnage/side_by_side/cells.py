"""One cell of a bench: an engine on a data set, once; as the journal holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.side_by_side.power import CellPower
from tonnage.side_by_side.spec import MetricName, is_better
from tonnage.values import dataclass

PHASES: Final = ("startup_s", "load_s", "warmup_s", "prepare_s", "train_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCell:
    """What one engine did with one data set. `reason` says why it failed; the figures are None then.

    `prepare_s` is the way of the rows into the engine's own form, `curve` (passes, training seconds, quality on the
    validation rows). `busy_before_cores` is what other programs took of the processor just before, in cores;
    `busy_during_cores` what they took of the cell's own cores while it prepared and trained (None: not known).
    """

    data: str
    engine: str
    turn: int
    reason: str | None = None
    startup_s: float | None = None
    load_s: float | None = None
    warmup_s: float | None = None
    prepare_s: float | None = None
    train_s: float | None = None
    cpu_s: float | None = None
    quality: float | None = None
    peak_rss_bytes: int | None = None
    busy_before_cores: float | None = None
    busy_during_cores: float | None = None
    train_rows: int | None = None
    curve: tuple[tuple[int, float, float], ...] = ()
    versions: Mapping[str, str] | None = None
    workers: tuple[Mapping[str, Any], ...] = ()
    cores: tuple[int, ...] = ()
    power: CellPower | None = None  # None: nothing was read
    settings: Mapping[str, Any] | None = None  # what a search chose; None: nothing was searched
    steps: tuple[Mapping[str, float | None], ...] = ()  # by rank: what a step is made of (`scaling.StepParts`)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.data, self.engine, self.turn

    @property
    def work_s(self) -> float | None:
        """Preparing and training: what the engine needs once it runs."""
        return None if self.train_s is None or self.prepare_s is None else self.prepare_s + self.train_s

    @property
    def alone_s(self) -> float | None:
        """Seconds of the work if it had also had what other programs took of its cores: work·u/(u + o), u its own cores
        in training, o theirs. An estimate: threads that wait for one another at full speed count as its own work, and a
        barrier waits for the thread that others hold up, so that alone it may take less; work that cannot use more
        cores takes longer.

        >>> BenchCell(data="d", engine="e", turn=0, prepare_s=1., train_s=9., cpu_s=4.5, busy_during_cores=1.5).alone_s
        2.5
        """
        if self.work_s is None or not self.cpu_s or not self.train_s or self.busy_during_cores is None:
            return None
        own = self.cpu_s / self.train_s
        return self.work_s * own / (own + self.busy_during_cores)

    def to_target_s(self, metric: MetricName, target: float) -> float | None:
        """Seconds of preparing and training until the validation rows are predicted as well as the target; else None.

        >>> cell = BenchCell(data="d", engine="e", turn=0, prepare_s=1.0, curve=((1, 2.0, 0.7), (2, 4.0, 0.9)))
        >>> cell.to_target_s("auc", 0.8), cell.to_target_s("auc", 0.95)
        (5.0, None)
        """
        reached = [seconds for _, seconds, value in self.curve if is_better(metric, value, target)]
        return None if not reached or self.prepare_s is None else self.prepare_s + reached[0]


def read_cell(record: Mapping[str, Any]) -> BenchCell:
    """A cell from its record in the journal."""
    known = dict(record)
    known["curve"] = tuple((int(passes), float(s), float(value)) for passes, s, value in known.get("curve", ()))
    known["workers"] = tuple(known.get("workers", ()))
    known["cores"] = tuple(known.get("cores", ()))
    known["power"] = CellPower(**known["power"]) if known.get("power") else None
    known["steps"] = tuple(known.get("steps", ()))
    return BenchCell(**known)
