"""What a fit of inference knows, as values: engine classes, the rows behind each, what is left over."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final

from tonnage.calibration.unseen import SEEN_STRUCTURES, UnseenFactors, structures_of, unseen
from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.engines import BEHIND, Engine, with_fronts
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

# Of the packaged calibration's rows; a fit states its own.
SEEN_GENERATIONS: Final = frozenset(
    {"encoder Volta", "encoder Turing", "encoder Ampere", "encoder Hopper", "vision Volta", "vision Turing",
     "vision Ampere", "decoder Volta", "decoder Ampere", "decoder Ada", "decoder Hopper"}
)  # fmt: skip
SEEN_FORMATS: Final = frozenset(
    {"encoder fp32", "encoder tf32", "encoder fp16", "encoder int8", "vision fp32", "vision tf32", "vision fp16",
     "vision int8", "decoder fp32", "decoder fp16", "decoder fp8"}
)  # fmt: skip
# Whole passes go through the same classes of engines, fitted together: what rows of one kind of work had of devices
# and number formats, left-out rows of the other speak of (docs/decisions/inference-accuracy.md, «A kin's formats»).
KIN: Final[Mapping[str, str]] = MappingProxyType({"encoder": "vision", "vision": "encoder"})


def generation_of(device: Accelerator) -> str:
    """The first word of the catalog's architecture: what devices of one design share."""
    return device.architecture.split(" ")[0]


def number_format(compute: str) -> str:
    """The rate that products run at; both 16-bit formats use the same units."""
    return "fp16" if compute == "bf16" else compute


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFit:
    """Fitted engine classes, the rows behind each, and what is left: quantiles of |predicted/measured - 1| and bias.

    `residuals`: group -> (n, median error, 90th percentile, 10th and 90th percentile of measured over predicted).
    """

    engines: Mapping[str, Engine]
    rows: Mapping[str, int]
    ranges: Mapping[str, tuple[float, float, str]]
    residuals: Mapping[str, tuple[int, float, float, float, float]]

    generations: frozenset[str] = SEEN_GENERATIONS  # of devices, after the kind of work: "decoder Hopper"
    formats: frozenset[str] = SEEN_FORMATS  # that products ran at: "encoder int8"
    structures: frozenset[str] = SEEN_STRUCTURES  # of models, beyond dense ones

    def unseen_factors(
        self,
        kind: str,
        device: Accelerator,
        compute: str,
        engine: str,
        *,
        shape: ModelShape | None = None,
        devices: Container[str] | None = None,
    ) -> UnseenFactors:
        """What of device, engine class, generation, number format and structure of the model (`shape`) no fitted row
        had; generation and format of rows of that `kind` of work (encoder, vision, decoder). One that only rows of its
        kin had is near. `devices`: those that rows name, where that is known; of a generation that no row of that work
        had, there was no device either. An engine behind the server of another is no other engine."""
        generation = generation_of(device)
        seen_classes = {name for name, rows in self.rows.items() if rows}
        known = devices if f"{kind} {generation}" in self.generations else ()
        own = BEHIND.get(engine, (engine,))[0]
        near = unseen((device.name, device.name, known), (f"engine {own}", own, seen_classes))
        foreign: tuple[str, ...] = ()
        for words, value, had in (
            (f"{generation} GPUs", generation, self.generations),
            (f"precision {compute}", number_format(compute), self.formats),
        ):
            found = unseen((words, f"{kind} {value}", had))
            if f"{KIN.get(kind)} {value}" in had:
                near += found
            else:
                foreign += found
        foreign += unseen(*((name, name, self.structures) for name in sorted(structures_of(shape) if shape else ())))
        return UnseenFactors(near=near, foreign=foreign)

    def apply(self) -> Mapping[str, Engine]:
        """The engines to hand to `InferenceBatch.predict` or, one by one, to the functions of `sizing`."""
        return with_fronts(self.engines)
