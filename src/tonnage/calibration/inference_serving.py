"""Decoder rows -> what `sizing` is asked: replicas with their forced layout, and the load of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from tonnage.calibration.inference_reading import InferenceCase
from tonnage.sizing.decoder_curves import DecoderPasses, joined_curves, joined_passes, lay_out_decoder
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_replicas import decoder_rows
from tonnage.sizing.decoder_seen import DecoderLoad, SeenLoad
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.inference_pass import PassWork, pass_s
from tonnage.sizing.schedulers import SCHEDULERS, Scheduler, scheduler_of
from tonnage.values import dataclass

Figures = dict[str, Array]
Timed = Callable[[PassWork, Engine], Array]  # seconds of a pass under an engine


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderService:
    """Decoder cases of one shape, format and scheduler, laid out together."""

    places: tuple[int, ...]
    passes: DecoderPasses
    load: DecoderLoad
    replicas: Array
    share: Array

    @property
    def alike(self) -> tuple[object, ...]:
        """What services share that can be asked together: how they schedule, and how wide their columns are. Those with
        experts dealt to ranks or a model that guesses are asked alone."""
        passes, rows = self.passes, self.passes.rows
        apart = passes.dealt is not None or passes.draft is not None or rows.speculation is not None
        alone = id(self) if apart or rows.cached or np.ndim(rows.data_ranks) else 0
        widths = (one.shape[1] for one in (rows.prompts, rows.outputs, passes.batches, passes.tokens))
        return rows.scheduler, alone, np.ndim(rows.beams), *widths


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTogether:
    """Services of one engine class, of any models, that are asked in one call."""

    services: tuple[DecoderService, ...]
    whole: DecoderService

    def figures(self, engine: Engine, timed: Timed = pass_s) -> list[Figures]:
        """What the requests of each service's cases see, a column a figure."""
        curves = [service.passes.under(engine, timed) for service in self.services]
        seen = serve_load(curves[0] if len(curves) == 1 else joined_curves(curves, self.whole.passes), self.whole.load)
        figures = seen_figures(seen, self.whole)
        ends = np.cumsum([len(service.places) for service in self.services]).tolist()
        return [
            {name: values[end - len(service.places) : end] for name, values in figures.items()}
            for service, end in zip(self.services, ends, strict=True)
        ]


def served_together(services: Iterable[DecoderService]) -> tuple[ServedTogether, ...]:
    """All services of one engine class in as few calls as they can be asked in."""
    alike: dict[tuple[object, ...], list[DecoderService]] = {}
    for service in services:
        alike.setdefault(service.alike, []).append(service)
    return tuple(ServedTogether(services=tuple(mine), whole=_whole(mine)) for mine in alike.values())


def _whole(services: Sequence[DecoderService]) -> DecoderService:
    """One service of the rows of all, in their order."""
    if len(services) == 1:
        return services[0]
    loads = {
        name: np.concatenate([getattr(one.load, name) for one in services]) for name in DecoderLoad.__dataclass_fields__
    }
    return DecoderService(
        places=tuple(place for one in services for place in one.places),
        passes=joined_passes([one.passes for one in services]),
        load=DecoderLoad(**loads),
        replicas=np.concatenate([one.replicas for one in services]),
        share=np.concatenate([one.share for one in services]),
    )


def services(cases: Sequence[InferenceCase], engine: Engine) -> tuple[DecoderService, ...]:
    """The cases (of one shape, class and format) by scheduler, by how their lengths are stated, and by attention."""
    alike: dict[tuple[Scheduler, bool, bool | None], list[int]] = {}
    for place, case in enumerate(cases):
        varied = case.varied_lengths and case.load == "served"
        alike.setdefault((case_scheduler(case), varied, case.fused_attention), []).append(place)
    return tuple(_service(scheduler, [cases[place] for place in places], places, engine)
                 for (scheduler, *_), places in alike.items())  # fmt: skip


def case_scheduler(case: InferenceCase) -> Scheduler:
    """A row of a fixed batch runs it from start to end, whatever the engine."""
    if case.load == "static":
        return SCHEDULERS["static"]
    scheduler = scheduler_of(case.row.engine)
    return replace(scheduler, chunked=True) if case.limits.chunked else scheduler


def _service(
    scheduler: Scheduler, cases: Sequence[InferenceCase], places: Sequence[int], engine: Engine
) -> DecoderService:
    first = cases[0]
    replicas = np.array([float(case.replicas) for case in cases])
    rows = decoder_rows(
        first.shape, first.served, scheduler,
        serving_devices([case.machine for case in cases], first.served.compute),
        [case.machine.accelerator for case in cases], [case.requests for case in cases],
        tensor_parallel=np.array([float(case.tensor_parallel) for case in cases]),
        concurrency=np.array([case.batch or np.nan for case in cases]),
        beams=np.array([float(case.beams) for case in cases]),
        engine=engine, limits=[case.limits for case in cases], fused_attention=first.fused_attention,
    )  # fmt: skip
    load = DecoderLoad(
        requests=np.array([case.prompts or np.inf for case in cases]) / replicas,
        rate_per_s=np.array([case.rate_per_s or np.inf for case in cases]) / replicas,
        users=np.array([case.users or np.inf for case in cases]) / replicas,
    )
    return DecoderService(
        places=tuple(places), passes=lay_out_decoder(rows, engine), load=load, replicas=replicas,
        share=np.array([case.rate_share for case in cases]),
    )  # fmt: skip


def seen_figures(seen: SeenLoad, service: DecoderService) -> Figures:
    """The names that rows' metrics go by."""
    rows = service.passes.rows
    requests = seen.requests_per_s * service.replicas * service.share
    out = {"requests": requests, "tokens": requests * rows.output, "total": requests * (rows.prompt + rows.output)}
    for name, spread in (("ttft", seen.ttft), ("tpot", seen.tpot), ("latency", seen.latency)):
        out[name] = spread.mean
        out.update({f"{name}_{key}": values for key, values in spread.at.items()})
    out["itl"], out["itl_p50"] = seen.between_tokens_s, seen.median_between_tokens_s
    return out
