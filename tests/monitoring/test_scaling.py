"""What an alert does to a late service: made once, said, taken back, and not repeated where it does not help."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.watch_figures import home_figures
from tonnage.api.watch_scaling import scale_service
from tonnage.errors import InputError, TonnageError
from tonnage.metric_names import REGISTRY
from tonnage.serving.replicas.raised import Raised, read_raised
from tonnage.serving.running.record import PlannedCost, RunningService, this_process, write_costs, write_record
from tonnage.settings import Settings, current_settings

EXAMPLES = Path(__file__).parents[2] / "examples"


class Late:
    """A home with a service that says of itself what a test writes."""

    def __init__(self, home: Path, example: str = "serve-gpt2-realtime", machine: str = "g4dn.xlarge") -> None:
        self.settings: Settings = replace(current_settings(), home=home)
        self.folder = home / "services" / "chat"
        pid, began = this_process()
        self.service = RunningService(
            name="chat", engine="vllm", url="http://127.0.0.1:8000", pid=pid, process_started_at=began,
            started_at=datetime.now(UTC), replicas=(1, 3), usd_per_machine_hour=0.5,
            workload_file=str(EXAMPLES / f"{example}.tonnage.yaml"),
            planned=PlannedCost(
                rank=1, provider="aws", instance_type=machine, machines=1, usd_per_month=1.0, low_usd_per_month=1.0,
                high_usd_per_month=1.0, requests_per_month=1.0, p95_latency_s=0.5, concurrency=256,
            ),
        )  # fmt: skip
        write_record(self.folder, self.service)

    def says(self, *, p95_s: float | None, rate: float, ready: int = 1) -> None:
        now = {"requests_per_s": rate}
        write_costs(self.folder, {"now": now, "replicas_ready": ready, "replicas_most": 3, "slots": 256,
                                  "p95_s": p95_s})  # fmt: skip

    def scale(self, do: Any = "act") -> str:
        return scale_service(self.settings, "chat", do)


def test_the_change_is_made_with_its_figures_and_taken_back(tmp_path: Path) -> None:
    """One more replica: p95 and machines' cost before and after are in the words, and the service is asked for it."""
    late = Late(tmp_path)
    late.says(p95_s=0.9, rate=55.0)
    said = late.scale("say")
    assert "2 replicas in place of 1" in said
    assert "machines 365 -> 730 USD a month" in said
    assert read_raised(late.folder) is None
    assert late.scale() == f"{said}; done"
    assert read_raised(late.folder) == Raised(least=2, p95_before_s=0.9)
    assert "hold again" in late.scale("undo")
    assert read_raised(late.folder) is None
    assert "nothing to undo" in late.scale("undo")


def test_a_change_that_does_not_help_is_taken_back_and_not_repeated(tmp_path: Path) -> None:
    """While the replica starts nothing more is asked; ready and as late as before, it goes, and none is tried."""
    late = Late(tmp_path)
    late.says(p95_s=0.9, rate=55.0)
    late.scale()
    with pytest.raises(TonnageError, match="not all ready yet"):
        late.scale()
    late.says(p95_s=0.88, rate=55.0, ready=2)
    with pytest.raises(TonnageError, match="did not help"):
        late.scale()
    assert read_raised(late.folder) == Raised(gave_up=True)
    late.says(p95_s=0.9, rate=55.0)
    with pytest.raises(TonnageError, match="until the alert ends"):
        late.scale()
    late.scale("undo")
    assert "done" in late.scale()


def test_a_change_that_helps_a_little_is_followed_by_the_next(tmp_path: Path) -> None:
    """More load has come: p95 fell, is still over the promise, and a third replica is asked for."""
    late = Late(tmp_path)
    late.says(p95_s=2.0, rate=55.0)
    late.scale()
    late.says(p95_s=0.8, rate=115.0, ready=2)
    assert "3 replicas in place of 2" in late.scale()
    assert read_raised(late.folder) == Raised(least=3, p95_before_s=0.8)


def test_fewer_requests_at_a_time_are_asked_of_the_balancer(tmp_path: Path) -> None:
    """The cheapest change costs nothing."""
    late = Late(tmp_path, "serve-llama-7b-realtime", "g5.12xlarge")
    late.says(p95_s=0.9, rate=1.0)
    assert "requests at a time for each replica in place of 256" in late.scale()
    found = read_raised(late.folder)
    assert found is not None
    assert found.least == 1
    assert found.slots is not None
    assert found.slots < 256


@pytest.mark.parametrize(
    ("said", "metric", "planned"),
    [
        ("p95_s", "p95_seconds", "predicted_p95_s"),
        ("ttft_p95_s", "ttft_p95_seconds", "predicted_ttft_p95_s"),
        ("tpot_p95_s", "tpot_p95_seconds", "predicted_tpot_p95_s"),
    ],
)
def test_what_was_predicted_is_beside_what_was_measured(tmp_path: Path, said: str, metric: str, planned: str) -> None:
    """A service whose plan predicted a time has both as figures of the home; one without has the measured alone."""
    late = Late(tmp_path)

    def figures() -> dict[tuple[str, str | None], float]:
        write_costs(late.folder, {"now": {"requests_per_s": 55.0}, said: 0.9})
        found = home_figures(late.settings, datetime.now(UTC))
        return {(key.metric, key.label("end")): value for key, value in found if key.metric.endswith(metric)}

    measured = f"tonnage_service_{metric}"
    predicted = str(REGISTRY[measured].predicted)
    assert figures()[measured, None] == 0.9
    assert (predicted, "value") not in figures()
    assert late.service.planned is not None
    with_ends = replace(late.service.planned, **{planned: (0.5, 0.4, 0.7)})  # type: ignore[arg-type]
    write_record(late.folder, replace(late.service, planned=with_ends))
    found = figures()
    assert {end: found[predicted, end] for end in ("value", "low", "high")} == {"value": 0.5, "low": 0.4, "high": 0.7}


def test_the_planned_cost_of_an_hour_is_of_the_hours_in_its_month(tmp_path: Path) -> None:
    """USD 400 for 200 hours a month."""
    late = Late(tmp_path)
    assert late.service.planned is not None
    planned = replace(late.service.planned, usd_per_month=400.0, hours_per_month=200.0)
    write_record(late.folder, replace(late.service, planned=planned))
    found = {
        key.label("end"): value for key, value in home_figures(late.settings, datetime.now(UTC))
        if key.metric == "tonnage_service_predicted_cost_usd_per_hour"
    }  # fmt: skip
    assert found == {"value": 2.0, "low": 0.005, "high": 0.005}


def test_what_cannot_be_made_is_said_and_nothing_is_changed(tmp_path: Path) -> None:
    """More replicas than `--replicas` allows, a layout that needs a restart, replicas that should do, no figures."""
    late = Late(tmp_path)
    cases = [(0.9, 1000.0, "at most 3 replicas"), (0.9, 20.0, "keep the promise at this load"), (None, 55.0, "too few")]
    for p95_s, rate, words in cases:
        late.says(p95_s=p95_s, rate=rate)
        with pytest.raises(TonnageError, match=words):
            late.scale()
    other = Late(tmp_path / "other", "serve-llama-7b-realtime", "g5.12xlarge")
    other.says(p95_s=0.9, rate=5.0)
    with pytest.raises(TonnageError, match="devices each") as raised:
        other.scale()
    assert "tensor_parallel" in (raised.value.hint or "")
    assert read_raised(late.folder) is None
    assert read_raised(other.folder) is None


def test_services_that_have_no_balancer_or_plan_are_refused(tmp_path: Path) -> None:
    """And one that does not run."""
    late = Late(tmp_path)
    late.says(p95_s=0.9, rate=55.0)
    with pytest.raises(InputError, match="no service named 'gone'"):
        scale_service(late.settings, "gone", "act")
    for service, words in ((replace(late.service, planned=None), "not planned"),
                           (replace(late.service, replicas=None), "behind a balancer")):  # fmt: skip
        write_record(late.folder, service)
        late.says(p95_s=0.9, rate=55.0)
        with pytest.raises(InputError, match=words):
            late.scale()


def test_p95_over_its_promise_is_a_figure_of_the_home(tmp_path: Path) -> None:
    """Which the default rule looks at; without enough answers it is not there."""
    late = Late(tmp_path)
    late.says(p95_s=0.9, rate=55.0)
    found = {key.metric: value for key, value in home_figures(late.settings, datetime.now(UTC))}
    assert found["tonnage_service_p95_seconds"] == 0.9
    assert found["tonnage_service_p95_to_promise_ratio"] == pytest.approx(1.8)
    late.says(p95_s=None, rate=55.0)
    assert "tonnage_service_p95_to_promise_ratio" not in {
        key.metric for key, _ in home_figures(late.settings, datetime.now(UTC))
    }


def test_a_file_of_the_service_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """It is a person's to look at."""
    late = Late(tmp_path)
    late.says(p95_s=0.9, rate=55.0)
    (late.folder / "raised.json").write_text(json.dumps({"least": 2, "more": 1}))
    with pytest.raises(TonnageError, match="cannot be read"):
        late.scale()
