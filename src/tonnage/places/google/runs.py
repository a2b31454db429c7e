"""Runs on Compute Engine, and the disks that are filled for them."""

from __future__ import annotations

from collections.abc import Callable
from getpass import getuser
from pathlib import Path

from tonnage.errors import InputError
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.bucket.filled import request_key, state_key
from tonnage.places.contract import Orphan, home_mark
from tonnage.places.google.compute import Compute
from tonnage.places.google.disks import Fill
from tonnage.places.google.filling import PAUSE_S, Filling, left_behind
from tonnage.places.google.place import GCEPlace
from tonnage.values import dataclass


@dataclass(frozen=True, kw_only=True)
class ComputeRuns(BucketRuns):
    """One place of the kind `gce`, with its disks."""

    pause_s: float = PAUSE_S

    def fills(self, runs: Path, say: Callable[[str], None]) -> tuple[Filling, ...]:
        """What fills each disk that places.toml names. InputError where it names none."""
        if not self._gce.fill:
            raise InputError(
                f"places.{self.name} has no disk to fill", hint=f"[places.{self.name}.fill.NAME]: docs/places.md"
            )
        return tuple(self._filling(one, say) for one in fills_of(self.name, self._gce, runs))

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        """Jobs, and what is left of filled disks."""
        fills = tuple(self._filling(one, lambda _: None) for one in fills_of(self.name, self._gce, runs))
        left = left_behind(fills, self._compute, home_mark(runs), end=end, forget=self._forget)
        return (*super().orphans(runs, end=end), *left)

    def _forget(self, disk_id: str) -> None:
        self.objects.remove([request_key(disk_id), state_key(disk_id)])

    def _filling(self, fill: Fill, say: Callable[[str], None]) -> Filling:
        return Filling(compute=self._compute, objects=self.objects, fill=fill, say=say, pause_s=self.pause_s)

    @property
    def _compute(self) -> Compute:
        assert isinstance(self.cloud, Compute)
        return self.cloud

    @property
    def _gce(self) -> GCEPlace:
        return self._compute.place


def fills_of(name: str, place: GCEPlace, runs: Path) -> tuple[Fill, ...]:
    """The disks of a place, as this home asks for them."""
    owner = place.owner or getuser()
    return tuple(
        Fill(name=one, terms=terms, place=place, place_name=name, home=home_mark(runs), owner=owner)
        for one, terms in place.fill.items()
    )  # fmt: skip
