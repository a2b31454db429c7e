"""What the predictions of a plan stand on: judgements and fitted figures, engine classes, intervals of left-out rows.

One calibration serves plans and `validate` alike: the packaged one, or a file of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tonnage.calibration.intervals import FARTHEST, Intervals
from tonnage.calibration.store import Calibration, load_calibration
from tonnage.catalog.hardware import Accelerator
from tonnage.planning.intervals import Interval
from tonnage.sizing.assumptions import INFERENCE_MEMORY_SPREAD, Assumptions
from tonnage.sizing.devices import GENERATIONS
from tonnage.sizing.engines import ENGINES, Engine, engine_class
from tonnage.sizing.inference_time import default_engine
from tonnage.sizing.precision import SERVING_COMPUTE
from tonnage.sizing.program_practice import memory_group, program_class
from tonnage.sizing.served_weights import served_weights
from tonnage.workload.jobs import BatchJob, ServeJob, TrainJob

IMAGES = ("convolution", "vision-transformer")
PROMISED = "decoder tail"  # plans promise 95th percentiles of what a service of tokens does


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What no fitted row had: `near` what left-out rows speak of (a device, an engine), `foreign` what none does."""

    near: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()  # generation or vendor, number format


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Figures and intervals that sizing works with. `training` and `inference` are the calibration's fits, if any."""

    assumed: Assumptions
    engines: Mapping[str, Engine]
    intervals: Intervals
    training: Any = None
    inference: Any = None
    seen: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=lambda: MappingProxyType({}))
    made_on: str | None = None  # of the calibration; None: the library's own judgements

    @classmethod
    def of(cls, calibration: Calibration | None, assumed: Assumptions | None = None) -> Grounds:
        """What a calibration says. `assumed`, where given, is used as it is, in place of the fitted figures."""
        if calibration is None:
            return cls(assumed=assumed or Assumptions(), engines=ENGINES, intervals=Intervals())
        training, inference = calibration.training, calibration.inference
        return cls(
            assumed=assumed or (training.assumptions() if training else Assumptions()),
            engines={**ENGINES, **(inference.apply() if inference else {})},
            intervals=calibration.intervals,
            training=training,
            inference=inference,
            seen={kind: calibration.names_seen(kind) for kind in ("training", "inference")},
            made_on=calibration.made_on,
        )

    @classmethod
    def packaged(cls) -> Grounds:
        """The calibration that comes with this build."""
        return cls.of(load_calibration())

    def training_time(self, job: TrainJob, device: Accelerator) -> Interval:
        """Of a step's seconds."""
        group = "image training time" if job.model.architecture in IMAGES else "training time"
        return self._interval("time", group, self._unknown_in_training(job, device))

    def training_memory(self, job: TrainJob, device: Accelerator) -> Interval:
        """Of the bytes needed, by what is known of the program. They do not depend on which device they are in."""
        del device
        return self._interval("memory", memory_group(job), Unknown())

    def pass_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the latency of one pass: encoders and vision; of the slowest answers and tokens of a service of tokens.
        `layout`: a way to spread the model that no row has."""
        group = PROMISED if generates(job) else self._pass_group(job)
        return self._interval("latency", group, self._unknown_in_inference(job, device, layout))

    def first_token_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the time to the first token that the slowest requests see."""
        return self._interval("ttft", PROMISED, self._unknown_in_inference(job, device, layout))

    def throughput_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the seconds a given load takes: requests or tokens a second, turned round."""
        unknown = self._unknown_in_inference(job, device, layout)
        if not generates(job):
            return self._interval("rate", self._pass_group(job), unknown)
        return self._interval("rate", "decoder rate", unknown).inverse()

    def served_memory(self) -> Interval:
        """Of what an engine holds. Its pool is set, not measured: no row tells, so this is a judgement."""
        return Interval(of="memory", group="served memory", spread=INFERENCE_MEMORY_SPREAD)

    def engine(self, job: ServeJob | BatchJob) -> Engine:
        """The figures of the engine a job names, or of the usual one for its model."""
        if job.engine is None:
            return self.engines[default_engine(job.model, generates=generates(job)).name]
        return self.engines[engine_class(job.engine, generates=generates(job))]

    def _pass_group(self, job: ServeJob | BatchJob) -> str:
        return "vision time" if job.model.architecture in IMAGES else "encoder time"

    def _unknown_in_training(self, job: TrainJob, device: Accelerator) -> Unknown:
        """What of device, precision and program no fitted row had."""
        if self.training is None:
            return Unknown()
        found = self._unknown_device("training", device, self.training.generations)
        near = [name for name in found if not name.endswith(" GPUs")]
        foreign = [name for name in found if name.endswith(" GPUs")]
        if job.precision not in self.training.precisions:
            foreign.append(f"precision {job.precision}")
        engine = program_class(job) or "pytorch"
        if engine not in self.training.engines:
            near.append(f"engine {engine}")
        return Unknown(near=tuple(near), foreign=tuple(foreign))

    def _unknown_in_inference(
        self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None
    ) -> Unknown:
        apart = () if layout is None else (layout,)
        if self.inference is None:
            return Unknown(foreign=apart)
        near = self._unknown_device("inference", device, frozenset())
        if not self.inference.rows.get(self.engine(job).name):
            near.append(f"engine {self.engine(job).name}")
        kind = "decoder" if generates(job) else "vision" if job.model.architecture in IMAGES else "encoder"
        first = device.architecture.split(" ")[0]
        weights = served_weights(job.weights, job.engine, device) if kind == "decoder" else job.weights
        foreign = self.inference.not_seen(kind, first, SERVING_COMPUTE[weights])
        return Unknown(near=tuple(near), foreign=(*foreign, *apart))

    def _unknown_device(self, kind: str, device: Accelerator, generations: frozenset[str]) -> list[str]:
        first = device.architecture.split(" ")[0]
        generation = first if first in GENERATIONS else device.architecture
        if generations and generation not in generations:
            return [device.name, f"{generation} GPUs"]
        seen = self.seen.get(kind, {}).get("gpu")
        return [device.name] if seen is not None and device.name not in seen else []

    def _interval(self, of: str, group: str, unknown: Unknown) -> Interval:
        names = (*unknown.near, *unknown.foreign)
        far = min(len(names), FARTHEST)
        known = self.intervals.of_group(group)
        return Interval(
            of=of,
            group=group,
            spread=self.intervals.spread(group, far, len(unknown.foreign)),
            rows=0 if known is None else known.rows,
            families=0 if known is None else known.families,
            far_rows=0 if known is None or not unknown.near else known.far_rows,
            unknown=names,
        )


def generates(job: ServeJob | BatchJob) -> bool:
    """Whether a job writes tokens one by one."""
    return job.requests.output_tokens is not None and job.model.causal
