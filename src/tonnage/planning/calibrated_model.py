"""What the predictions of a plan rest on: judgements and fitted figures, engine classes, intervals of left-out rows.

One calibration serves plans and `validate` alike: the packaged one, or a file of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from tonnage.calibration.intervals import FARTHEST, Intervals
from tonnage.calibration.store import Calibration, calibrated_engines, load_calibration
from tonnage.calibration.tabular_fit import TabularFit
from tonnage.calibration.unseen import UnseenFactors
from tonnage.catalog.hardware import Accelerator
from tonnage.planning.intervals import Interval
from tonnage.sizing.assumptions import INFERENCE_MEMORY_SPREAD, Assumptions
from tonnage.sizing.engines import Engine, engine_class, server_class
from tonnage.sizing.inference_time import default_engine_class
from tonnage.sizing.precision import SERVING_COMPUTE
from tonnage.sizing.program_profiles import memory_group, program_class
from tonnage.sizing.served_weights import served_weights
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, ServeJob, TrainJob

IMAGES = ("convolution", "vision-transformer")
PROMISED = "decoder tail"  # plans promise 95th percentiles of what a service of tokens does


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """Figures and intervals that sizing works with. `training` and `inference` are the calibration's fits, if any."""

    assumed: Assumptions
    engines: Mapping[str, Engine]
    intervals: Intervals
    training: Any = None
    inference: Any = None
    seen: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=lambda: MappingProxyType({}))
    made_on: str | None = None  # of the calibration; None: there is none
    tabular: TabularFit | None = None  # what rows of benches say; None: there are none

    @classmethod
    def of(cls, calibration: Calibration | None, assumed: Assumptions | None = None) -> CalibratedModel:
        """What a calibration says. `assumed`, where given, is used as it is, in place of the fitted figures.

        Without a calibration: the library's own judgements, judged intervals, and engines as the packaged one has them,
        since no class of engine has figures before a fit.
        """
        if calibration is None:
            return cls(assumed=assumed or Assumptions(), engines=calibrated_engines(), intervals=Intervals())
        training, inference = calibration.training, calibration.inference
        return cls(
            assumed=assumed or (training.assumptions() if training else Assumptions()),
            engines={**calibrated_engines(), **(inference.apply() if inference else {})},
            intervals=calibration.intervals,
            training=training,
            inference=inference,
            seen={kind: calibration.names_seen(kind) for kind in ("training", "inference")},
            made_on=calibration.made_on,
        )

    @classmethod
    def packaged(cls) -> CalibratedModel:
        """The calibration that comes with this build."""
        return cls.of(load_calibration())

    def training_time(self, job: TrainJob, device: Accelerator) -> Interval:
        """Of a step's seconds."""
        group = "image training time" if job.model.architecture in IMAGES else "training time"
        return self._interval("time", group, self._unseen_in_training(job, device))

    def training_memory(self, job: TrainJob, device: Accelerator) -> Interval:
        """Of the bytes needed, by what is known of the program. They do not depend on which device they are in."""
        del device
        return self._interval("memory", memory_group(job), UnseenFactors())

    def pass_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the latency of one pass: encoders and vision; of the slowest answers and tokens of a service of tokens.
        `layout`: a way to spread the model that no row has."""
        group = PROMISED if generates(job) else self._pass_group(job)
        return self._interval("latency", group, self._unseen_in_inference(job, device, layout))

    def first_token_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the time to the first token that the slowest requests see."""
        return self._interval("ttft", PROMISED, self._unseen_in_inference(job, device, layout))

    def throughput_time(self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None) -> Interval:
        """Of the seconds a given load takes: requests or tokens a second, turned round."""
        unknown = self._unseen_in_inference(job, device, layout)
        if not generates(job):
            return self._interval("rate", self._pass_group(job), unknown)
        return self._interval("rate", "decoder rate", unknown).inverse()

    def served_memory(self) -> Interval:
        """Of what an engine holds. Its pool is set, not measured: no row tells, so this is a judgement."""
        return Interval(of="memory", group="served memory", spread=INFERENCE_MEMORY_SPREAD)

    def engine(self, job: ServeJob | BatchJob) -> Engine:
        """The figures of the engine a job names, or of the usual one for its model."""
        if job.engine is None:
            return self.engines[default_engine_class(generates=generates(job))]
        if isinstance(job, ServeJob) and generates(job):
            return self.engines[server_class(job.engine)]
        return self.engines[engine_class(job.engine, generates=generates(job))]

    def _pass_group(self, job: ServeJob | BatchJob) -> str:
        return "vision time" if job.model.architecture in IMAGES else "encoder time"

    def _unseen_in_training(self, job: TrainJob, device: Accelerator) -> UnseenFactors:
        """What of device, precision, program and structure of the model no fitted row had."""
        if self.training is None:
            return UnseenFactors()
        found: UnseenFactors = self.training.unseen_factors(
            device,
            job.precision,
            program_class(job) or "pytorch",
            shape=job.model,
            devices=self._devices("training"),
        )
        return found

    def _unseen_in_inference(
        self, job: ServeJob | BatchJob, device: Accelerator, layout: str | None = None
    ) -> UnseenFactors:
        """What of device, engine, number format and layout no fitted row had."""
        apart = () if layout is None else (layout,)
        if self.inference is None:
            return UnseenFactors(foreign=apart)
        kind = "decoder" if generates(job) else "vision" if job.model.architecture in IMAGES else "encoder"
        weights = served_weights(job.weights, job.engine, device) if kind == "decoder" else job.weights
        found: UnseenFactors = self.inference.unseen_factors(
            kind,
            device,
            SERVING_COMPUTE[weights],
            self.engine(job).name,
            shape=job.model,
            devices=self._devices("inference"),
        )
        return replace(found, foreign=(*found.foreign, *apart))

    def _devices(self, kind: str) -> frozenset[str] | None:
        return self.seen.get(kind, {}).get("gpu")

    def _interval(self, of: str, group: str, unseen: UnseenFactors) -> Interval:
        unseen_factors = min(len(unseen.names), FARTHEST)
        known = self.intervals.of_group(group)
        return Interval(
            of=of,
            group=group,
            spread=self.intervals.spread(group, unseen_factors, len(unseen.foreign)),
            rows=0 if known is None else known.rows,
            families=0 if known is None else known.families,
            far_rows=0 if known is None or not unseen.near else known.far_rows,
            unknown=unseen.names,
        )


def generates(job: ServeJob | BatchJob) -> bool:
    """Whether a job writes tokens one by one."""
    return job.requests.output_tokens is not None and job.model.causal
