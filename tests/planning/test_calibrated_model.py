"""Plans stand on a calibration: its figures, and the interval of the right class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from types import MappingProxyType
from typing import get_args

import pytest

from tonnage.calibration.intervals import GroupInterval, Intervals
from tonnage.calibration.store import Calibration, SeenNames, calibrated_engines, load_calibration
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.assumed import assumptions_used
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.reasons.notes import ClosedFormNote, EngineClass, IntervalsNote, JudgedIntervalsNote
from tonnage.planning.reasons.risks import UnmeasuredRisk
from tonnage.sizing.assumptions import HOST_SPREAD
from tonnage.sizing.engines import BEHIND, engine_class
from tonnage.workload.jobs import GENERATING_ENGINES, EngineName, Workload

ENGINES = calibrated_engines()

Maker = Callable[..., Workload]


def interval(group: str, **changes: float) -> GroupInterval:
    plain = {"rows": 40, "families": 5, "low_log": -0.2, "centre_log": 0.0, "high_log": 0.3, "widening": 1.4}
    return GroupInterval(group=group, **(plain | {"far_rows": 30} | changes))  # type: ignore[arg-type]


@pytest.fixture
def packaged() -> Calibration:
    found = load_calibration()
    assert found is not None
    return found


@pytest.fixture
def own(packaged: Calibration) -> Calibration:
    """A calibration that has seen A100 alone."""
    groups = ("training time", "training memory", "decoder rate", "decoder tpot", "decoder ttft", "decoder tail")
    return replace(
        packaged,
        intervals=Intervals(groups=tuple(interval(group) for group in groups)),
        seen=tuple(SeenNames(kind=kind, key="gpu", names=("A100-80GB-SXM",)) for kind in ("training", "inference")),
    )


def test_an_unseen_gpu_has_the_wider_interval(catalog: Catalog, make_train: Maker, own: Calibration) -> None:
    """Each unknown widens it; what is unknown is named with the rows that say by how much."""
    job, calibrated = make_train(precision="bf16").job, CalibratedModel.of(own)
    seen, unseen = (calibrated.training_time(job, catalog.accelerator(name)) for name in ("A100-80GB-SXM", "A10G"))
    assert (seen.unknown, seen.rows, seen.families) == ((), 40, 5)
    assert unseen.unknown == ("A10G",)
    assert unseen.far_rows == 30
    assert unseen.spread.high_factor > seen.spread.high_factor > 1
    assert unseen.spread.low_factor < seen.spread.low_factor < 1


def test_another_vendor_is_much_less_sure_than_an_unseen_board(catalog: Catalog, make_serve: Maker) -> None:
    """No left-out row speaks of MI300X (no row of AMD at all): its interval is at least a third wider than H100's."""
    job, calibrated = make_serve().job, CalibratedModel.packaged()
    h100, mi300x = (calibrated.throughput_time(job, catalog.accelerator(name)) for name in ("H100-SXM", "MI300X"))
    assert h100.unknown == ()
    assert mi300x.unknown == ("MI300X", "CDNA3 GPUs")
    assert log(mi300x.spread.high_factor) > 1.33 * log(h100.spread.high_factor)
    assert log(mi300x.spread.low_factor) < 1.33 * log(h100.spread.low_factor)


def test_what_no_row_stands_behind_is_a_risk_of_the_option(catalog: Catalog, make_serve: Maker) -> None:
    """An option on a device without rows says so; one on a device with rows does not."""
    plan = make_plan(make_serve(), catalog)
    told = {option.gpu: any(isinstance(risk, UnmeasuredRisk) for risk in option.risks) for option in plan.options}
    assert told.get("H100-SXM", False) is False
    unseen = {option.gpu for option in plan.options if any(one.unknown for one in option.run.intervals)}
    assert unseen
    assert all(told[gpu] for gpu in unseen)


def test_each_kind_of_work_has_its_own_interval(
    catalog: Catalog, make_train: Maker, make_serve: Maker, own: Calibration
) -> None:
    """Training of images and of text, encoders, and the 95th percentiles that a service of tokens promises, which no
    mean speaks for; a calibration made before those had a group lends that of the means, one unknown further away."""
    calibrated, device = CalibratedModel.packaged(), catalog.accelerator("A100-80GB-SXM")
    image = make_train("resnet-50").job
    assert calibrated.training_time(image, device).group == "image training time"
    service = make_serve().job
    promised, older = CalibratedModel.of(own), replace(own, intervals=Intervals(groups=own.intervals.groups[:-1]))
    for found in (promised.pass_time(service, device), promised.first_token_time(service, device)):
        assert found.group == "decoder tail"
    assert CalibratedModel.of(older).pass_time(service, device).spread == own.intervals.spread("decoder tpot", 1, 1)
    encoder = replace(service, model=make_train().job.model, requests=replace(service.requests, output_tokens=None))
    assert calibrated.pass_time(encoder, device).group == "encoder time"


def test_seconds_of_a_load_are_the_rate_turned_round(catalog: Catalog, make_serve: Maker, own: Calibration) -> None:
    found = CalibratedModel.of(own).throughput_time(make_serve().job, catalog.accelerator("A100-80GB-SXM"))
    rate = own.intervals.spread("decoder rate")
    assert found.spread.low_factor == pytest.approx(1 / rate.high_factor)
    assert found.spread.high_factor == pytest.approx(1 / rate.low_factor)


def test_an_own_calibration_drives_the_plan(catalog: Catalog, make_train: Maker, own: Calibration) -> None:
    """Its fitted figures move the prediction, its intervals the ends; notes and runs say so."""
    slower = replace(own.training, values=MappingProxyType({**own.training.values, "joules_per_tflop_7nm": 2.0}))
    work = make_train(precision="bf16", global_batch=256, micro_batch=32)
    plain, moved = (
        make_plan(work, catalog, calibrated=CalibratedModel.of(one)) for one in (own, replace(own, training=slower))
    )

    def a100(plan: object) -> float:
        return next(o.run.time_s.value for o in plan.options if o.gpu == "A100-80GB-SXM")  # type: ignore[attr-defined]

    assert a100(moved) > a100(plain)
    run = next(option.run for option in plain.options if option.gpu == "A100-80GB-SXM")
    assert run.time_s is not None
    known = own.intervals.spread("training time")  # the rest is the host, whose speed the job does not state
    assert known.high_factor <= run.time_s.high / run.time_s.value < known.beside(HOST_SPREAD, 1.0).high_factor
    assert [one.of for one in run.intervals] == ["time", "memory"]
    [behind] = [note for note in plain.notes if isinstance(note, IntervalsNote)]
    assert {(one.rows, one.families) for one in behind.intervals} == {(40, 5)}


def test_without_a_calibration_intervals_are_judgements(catalog: Catalog, make_train: Maker) -> None:
    plan = make_plan(make_train(), catalog, calibrated=CalibratedModel.of(None))
    assert plan.best is not None
    assert {one.rows for one in plan.best.run.intervals} == {0}
    assert JudgedIntervalsNote() in plan.notes


def test_every_engine_name_has_a_class() -> None:
    """A name that only generates is of a class that does."""
    for name in get_args(EngineName):
        for generates in (True, False) if name not in GENERATING_ENGINES else (True,):
            assert engine_class(name, generates=generates) in ENGINES
    assert set(get_args(EngineClass)) == set(ENGINES) - set(BEHIND), "what a note may name"


def test_the_engine_changes_the_figures(catalog: Catalog, make_serve: Maker) -> None:
    """A compiled scheduler answers sooner than a Python one, and explain lists its figures with their ranges."""
    plans = {name: make_plan(make_serve(engine=name), catalog) for name in ("vllm", "tensorrt-llm")}
    best = {name: plan.best.run.time_parts for name, plan in plans.items() if plan.best is not None}
    assert best["vllm"] != best["tensorrt-llm"]
    listed = {one.name: one for one in assumptions_used(make_serve(engine="tensorrt-llm"), CalibratedModel.packaged())}
    front = listed["llm.request_us"]
    assert front.low <= front.value <= front.high
    assert "tensorrt-llm" in front.source
    assert "rows" in front.source
    assert "llm.memory_fraction" in listed


def test_a_service_says_how_its_percentiles_were_found(catalog: Catalog, make_serve: Maker) -> None:
    notes = make_plan(make_serve(), catalog).notes
    assert ClosedFormNote() in notes
