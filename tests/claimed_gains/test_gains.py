"""Promised gains: each figure is that of the plan, its interval says what it must, and what is missing is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.catalog import load_catalog
from tonnage.claimed_gains import TARGETS, Gain, PromisedGain, with_least
from tonnage.claimed_gains.devices import arm_gain, gpu_gain
from tonnage.claimed_gains.gain import Side, SpeedNeeded, saved, times
from tonnage.errors import InputError, UnknownName
from tonnage.planning.plan import MachineOption
from tonnage.sizing.estimates import Figure

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINING = EXAMPLES / "bert-finetune.tonnage.yaml"
TABLE = EXAMPLES / "gbm-5m-rows.tonnage.yaml"
DAY = "2026-11-20"
SAVING = PromisedGain(subject="spot", unit="saving", least=0.6)
WAVE: dict[str, Any] = {
    "kind": "serve",
    "model": "llama-7b",
    "serve": {
        "rate_per_s": 100, "input_tokens": 200, "output_tokens": 8, "p95_latency": "500ms",
        "traffic": {"peak_to_trough": 10},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))


def figure(value: float, low: float, high: float) -> Figure:
    return Figure(value=value, low=low, high=high)


def by_name(found: Any) -> dict[str, Gain]:
    return {one.target.subject: one for one in found.gains}


@pytest.mark.parametrize(
    ("unit", "ends", "verdict"),
    [
        ("saving", (0.6, 0.7), "holds"), ("saving", (0.5, 0.7), "open"), ("saving", (0.3, 0.59), "does not hold"),
        ("times", (0.6, 3.0), "holds"), ("spread", (0.1, 0.6), "holds"), ("spread", (0.5, 0.7), "open"),
        ("spread", (0.61, 0.7), "does not hold"),
    ],
)  # fmt: skip
def test_both_ends_decide(unit: Any, ends: tuple[float, float], verdict: str) -> None:
    """A gain holds where the whole interval reaches the promise; of a difference, where the whole lies below it."""
    target = PromisedGain(subject="spot", unit=unit, least=0.6)
    assert target.verdict(figure(ends[0], *ends)) == verdict
    assert target.verdict(None) == "unknown"


def test_one_machine_shares_its_throughput() -> None:
    """Twice as slow makes both costs twice as high: the saving stays. Of two machines that are each uncertain it does
    not."""
    dear, cheap = figure(10.0, 5.0, 20.0), figure(4.0, 2.0, 8.0)
    shared, apart = saved(dear, cheap, same_machine=True), saved(dear, cheap, same_machine=False)
    assert (shared.value, shared.low, shared.high) == pytest.approx((0.6, 0.6, 0.6))
    assert apart.value == pytest.approx(0.6)
    assert apart.low < 0.0 < 0.6 < apart.high < 1.0


def test_times_as_fast_widens_by_both_errors() -> None:
    """The half-widths of two factors of 2 give one of 2 to the power of the square root of 2."""
    found = times(figure(1.0, 0.5, 2.0), figure(12.0, 6.0, 24.0))
    assert found.value == 12.0
    assert found.high / found.value == pytest.approx(2.0 ** (2.0**0.5))
    assert found.value / found.low == pytest.approx(2.0 ** (2.0**0.5))


def test_spot_is_the_plans_own_cost() -> None:
    """Both sides are options of the plan, of one machine; nothing undated is on either side."""
    gain = by_name(tonnage.gains(TRAINING, tonnage.GainsOptions(only=("spot",)), as_of=DAY).found)["spot"]
    plan = tonnage.plan(TRAINING, as_of=DAY)
    spot = [one for one in plan.options if isinstance(one, MachineOption) and one.relied_on and one.purchase == "spot"]
    cheapest = min(one.cost_usd.value for one in spot if one.platform == "vm")
    assert gain.figure is not None
    assert gain.before is not None
    assert gain.after is not None
    assert gain.before.usd is not None
    assert gain.after.usd is not None
    assert gain.after.usd.value == cheapest
    assert gain.before.name.split(" ")[0] == gain.after.name.split(" ")[0]
    assert gain.figure.value == pytest.approx(1.0 - cheapest / gain.before.usd.value)
    assert gain.figure.low <= gain.figure.value <= gain.figure.high


def test_right_sizing_beside_the_machine_one_runs() -> None:
    """Beside the best machine itself nothing is saved; an unknown instance type is refused with its neighbours."""
    found = tonnage.gains(
        TRAINING, tonnage.GainsOptions(only=("right-sizing",), against="g4dn.xlarge"), as_of=DAY
    ).found
    gain = found.gains[0]
    assert gain.figure is not None
    assert gain.figure.value == pytest.approx(0.0)
    with pytest.raises(UnknownName, match=r"g4dn\.xlrge"):
        tonnage.gains(TRAINING, tonnage.GainsOptions(against="g4dn.xlrge"), as_of=DAY)


@pytest.mark.heavy
def test_autoscaling_is_what_the_plan_charges() -> None:
    """The saved machine-hours are those by which the plan with traffic is cheaper than the plan without."""
    wave = by_name(tonnage.gains(WAVE, as_of=DAY, gpus="A100-80GB").found)["autoscaling"]
    still = {**WAVE, "serve": {key: value for key, value in WAVE["serve"].items() if key != "traffic"}}
    follows, fixed = (tonnage.plan(one, as_of=DAY, gpus="A100-80GB").best for one in (WAVE, still))
    assert follows is not None
    assert fixed is not None
    assert wave.figure is not None
    assert wave.figure.value == pytest.approx(1.0 - follows.cost_usd.value / fixed.cost_usd.value, abs=0.01)
    assert 0.0 <= wave.figure.low <= wave.figure.value <= wave.figure.high < 1.0


def test_what_cannot_be_computed_says_what_is_missing() -> None:
    """Work that ends has no load to follow; without a measured processor no GPU is compared; a service is never on
    spot."""
    gains = by_name(tonnage.gains(TRAINING, as_of=DAY).found)
    assert gains["autoscaling"].lack == "not a service"
    assert (gains["h100"].lack, gains["h100"].figure) == ("no local profile", None)
    assert gains["h100"].after is not None
    assert gains["h100"].after.per_s is not None
    still = {**WAVE, "serve": {key: value for key, value in WAVE["serve"].items() if key != "traffic"}}
    service = by_name(tonnage.gains(still, as_of=DAY, gpus="A100-80GB").found)
    assert (service["spot"].lack, service["autoscaling"].lack) == ("never on spot", "no traffic")


def test_a_gpu_beside_a_measured_processor() -> None:
    """The figure is the ratio of both rates, and the fastest of the GPU's kinds is taken."""
    size = tonnage.size(TRAINING, as_of=DAY, gpus="H100:1").size
    processor = Side(name="cpu", per_s=figure(10.0, 8.0, 12.5))
    target = PromisedGain(subject="h100", unit="times", least=10.0)
    gain = gpu_gain(target, size, processor)
    rates = [dict(row.run.rates)["samples_per_s"].value for row in size.rows if row.gpu_count == row.nodes == 1]
    assert gain.figure is not None
    assert gain.figure.value == pytest.approx(max(rates) / 10.0)
    assert gain.verdict == "holds"


@pytest.mark.parametrize(
    ("promise", "said"),
    [({"sopt": 0.5}, "no gain is named 'sopt'"), ({"spot": 60}, "a part between 0 and 1"), ({"h100": -1}, "multiple"),
     ({"a100": float("nan")}, "multiple")],
)  # fmt: skip
def test_a_promise_that_cannot_be_is_refused(promise: dict[str, float], said: str) -> None:
    """Unknown names with the nearest one, percents, negative multiples, NaN."""
    with pytest.raises(InputError, match=said):
        with_least(promise)


def test_promises_replace_the_usual_ones() -> None:
    """Those not named keep theirs, and their order."""
    changed = with_least({"spot": 0.4})
    assert [one.subject for one in changed] == [one.subject for one in TARGETS]
    assert (changed[0].least, changed[0].most, changed[1]) == (0.4, None, TARGETS[1])


def test_the_function_answers_as_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; --only and --promise are heard."""
    from tonnage.cli import run

    asked = tonnage.GainsOptions(only=("spot",), promises=(("spot", 0.3),))
    answer = tonnage.gains(TRAINING, asked, as_of=DAY)
    run(["gains", str(TRAINING), "--only", "spot", "--promise", "spot=0.3", "--as-of", DAY, "-o", "json"])
    said = capsys.readouterr().out
    assert answer.to_json() == said
    assert [one["promised"] for one in json.loads(said)["gains"]] == [0.3]


def test_an_arm_machine_says_which_speed_it_must_reach() -> None:
    """As many vCPUs and as much memory in one region: at 70 % of the price a fifth is saved from 87.5 % of the speed.
    Other sizes, regions and purchases are no pair."""
    known = load_catalog()
    arm = next(one for one in known.instance_types if one.name == "c7g.xlarge")
    cheap = next(one for one in known.offers if one.instance_type == "c7g.xlarge" and one.purchase == "on_demand")
    x86 = replace(arm, name="c7x.xlarge", cpu_arch="x86_64")
    dear = replace(cheap, instance_type="c7x.xlarge", usd_per_instance_hour=cheap.usd_per_instance_hour * 10 / 7)
    elsewhere = replace(dear, region="nowhere", usd_per_instance_hour=dear.usd_per_instance_hour * 9)
    target = PromisedGain(subject="arm", unit="saving", least=0.2)
    gain = arm_gain(target, replace(known, instance_types=(arm, x86), offers=(cheap, dear, elsewhere)))
    assert isinstance(gain.evidence, SpeedNeeded)
    assert (gain.verdict, gain.evidence.pairs) == ("unknown", 1)
    assert (gain.evidence.price, gain.evidence.speed) == pytest.approx((0.7, 0.875))
    assert arm_gain(target, replace(known, instance_types=(arm,), offers=(cheap,))).evidence is None


def test_a_table_is_compared_with_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a profile: its threads as a bench predicts them. Twice the threads, about half the gain."""
    from tonnage.benchmarks.engines import session
    from tonnage.side_by_side.host import Host

    gains = {}
    for cores in (4, 8):
        host = Host(processor="test", physical_cores=cores, logical_cores=cores, memory_bytes=2.0**37, arm=False)
        monkeypatch.setattr(session, "read_host", lambda host=host: host)
        gain = by_name(tonnage.gains(TABLE, tonnage.GainsOptions(only=("h100",)), as_of=DAY).found)["h100"]
        assert gain.figure is not None
        assert gain.before is not None
        assert gain.before.name == f"test, {cores} threads (predicted)"
        assert gain.figure.low < gain.figure.value < gain.figure.high
        gains[cores] = gain.figure.value
    assert 1.5 < gains[4] / gains[8] < 2.5
    assert 1.0 < gains[8] < 1000.0


@pytest.mark.parametrize(
    ("engine", "lack"),
    [("h2o-gbm", "engine of processors"), ("ray-xgboost", "engine of processors"),
     ("scikit-learn", "engine of processors"), ("xgboost", None)],
)  # fmt: skip
def test_an_engine_of_processors_has_no_gain_by_a_gpu(tmp_path: Path, engine: str, lack: str | None) -> None:
    """A bench refuses `devices` for it: the time of another engine on a GPU is not its gain."""
    file = tmp_path / "table.yaml"
    file.write_text(TABLE.read_text(encoding="utf-8").replace("  depth: 6", f"  depth: 6\n  engine: {engine}"))
    answer = tonnage.gains(file, tonnage.GainsOptions(only=("h100",)), as_of=DAY)
    gain = by_name(answer.found)["h100"]
    assert (gain.lack, gain.figure is None) == (lack, lack is not None)
    if lack is not None:
        assert f"unknown ({engine}): this engine trains on processors alone" in " ".join(str(answer).split())


def test_an_engine_that_no_bench_predicts_has_no_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `tonnage bench` before any row of it."""
    from tonnage.calibration import engine_costs

    monkeypatch.setattr(engine_costs, "UNMODELLED", ("catboost",))
    file = tmp_path / "table.yaml"
    file.write_text(TABLE.read_text(encoding="utf-8").replace("  depth: 6", "  depth: 6\n  engine: catboost"))
    gain = by_name(tonnage.gains(file, tonnage.GainsOptions(only=("h100",)), as_of=DAY).found)["h100"]
    assert (gain.lack, gain.said, gain.figure) == ("engine not modelled", "catboost", None)


def test_a_broken_profile_is_no_missing_one(tmp_path: Path) -> None:
    """A profile that cannot be read is an error, not a processor that was never measured."""
    folder = tmp_path / "home" / "devices"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="device profile"):
        tonnage.gains(TRAINING, tonnage.GainsOptions(only=("h100",)), as_of=DAY)
