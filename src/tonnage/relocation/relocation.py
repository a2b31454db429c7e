"""What it takes to carry a run out at another place. Values alone."""

from __future__ import annotations

from typing import Final, Literal

from tonnage.pricing.extras import Charge
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

How = Literal["sent", "copied", "read", "fetched"]  # with the run; by hand; where it lies, by each run; from its source
MOVED: Final[frozenset[How]] = frozenset({"sent", "copied"})  # once, before the first run there
SizeBasis = Literal["measured", "stated", "computed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCost:
    """What the work costs and takes, by the plan."""

    line: str  # which option of the plan, for a person
    cost_usd: Figure
    time_s: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSide:
    """The run at one of the two places."""

    place: str
    kind: str
    usd_per_hour: float | None  # of all machines of a run; None: no price is known
    most_usd_a_job: float | None
    predicted: PredictedCost | None
    why_unpredicted: str  # empty where it is predicted
    commands: tuple[tuple[str, ...], ...]  # that send it
    script: str  # what they send
    refused: str = ""  # why the place cannot carry the run as it is; nothing is rendered then
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermChange:
    """A fact of the run that differs between the places. None: the place has no such thing."""

    name: str
    before: str | None
    after: str | None
    note: str = ""

    @property
    def dropped(self) -> bool:
        """Whether it does not carry over."""
        return self.before is not None and self.after is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Something that the run reads, or has made, and how it comes to the other place."""

    what: str
    how: How
    origin: str
    target: str
    size_gb: float | None  # GB (10⁹ bytes); None: not known
    size_basis: SizeBasis | None
    charges: tuple[Charge, ...] | None  # of the provider that it leaves; empty: nothing is charged; None: not known
    time_s: float | None  # at the rate of the relocation
    commands: tuple[str, ...] = ()
    note: str = ""

    @property
    def usd(self) -> float | None:
        return None if self.charges is None else sum(charge.usd for charge in self.charges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the move: commands of a shell, in their order."""

    title: str
    commands: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A run of one place as the other's."""

    run: str
    before: PlaceSide
    after: PlaceSide
    changes: tuple[TermChange, ...]
    copies: tuple[Copied, ...]
    steps: tuple[Step, ...]
    diff: tuple[str, ...]  # of what is sent, in the unified format
    gbit_per_s: float  # assumed of every copy

    @property
    def copy_usd(self) -> float | None:
        """Of all that is moved once; None where a part is not known."""
        moved = [one.usd for one in self.copies if one.how in MOVED]
        return None if any(usd is None for usd in moved) else sum(usd or 0.0 for usd in moved)

    @property
    def copy_s(self) -> float | None:
        """One copy after the other; None where the size of one is not known."""
        times = [one.time_s for one in self.copies if one.how in MOVED]
        return None if any(time is None for time in times) else sum(time or 0.0 for time in times)

    @property
    def saved_usd(self) -> float | None:
        """By the plan, of one run; negative: the other place is dearer. None where a side is not predicted."""
        if self.before.predicted is None or self.after.predicted is None:
            return None
        return self.before.predicted.cost_usd.value - self.after.predicted.cost_usd.value

    @property
    def paid_back_after_runs(self) -> float | None:
        """Runs until the copies are paid back; None where nothing is saved, or a figure is not known."""
        if self.saved_usd is None or self.copy_usd is None or self.saved_usd <= 0:
            return None
        return self.copy_usd / self.saved_usd
