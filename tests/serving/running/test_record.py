"""Services that run: what they wrote down, and what `ps`, `show` and `stop` make of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tonnage.cli.app import build_app
from tonnage.errors import InputError
from tonnage.serving.running.meter import CostMeter, ServiceCounts
from tonnage.serving.running.record import (
    PlannedCost,
    RunningService,
    read_record,
    recorded,
    this_process,
    write_costs,
    write_record,
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "serve-llama-7b-realtime.tonnage.yaml"
PLANNED = PlannedCost(
    rank=1, provider="gcp", instance_type="g2-standard-4", machines=2, usd_per_month=1000.0, low_usd_per_month=500.0,
    high_usd_per_month=2000.0, requests_per_month=4e6, predicted_p95_s=(0.25, 0.125, 0.5),
    predicted_ttft_p95_s=(0.05, 0.04, 0.0625),
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends at SIGTERM, in the place of a service."""
    waits = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        yield made
        made.kill()


def service(pid: int | None = None, began: float | None = None, **more: object) -> RunningService:
    own, own_began = this_process()
    given = {
        "name": "reviews", "engine": "encoder", "url": "http://127.0.0.1:8000", "pid": own if pid is None else pid,
        "process_started_at": own_began if began is None else began, "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "usd_per_machine_hour": 1.8, "price_from": "--usd-per-hour", **more,
    }  # fmt: skip
    return RunningService(**given)  # type: ignore[arg-type]


def of_process(process: subprocess.Popen[bytes]) -> RunningService:
    return service(process.pid, psutil.Process(process.pid).create_time())


def folder_of(home: Path) -> Path:
    return home / "services" / "reviews"


def told(*arguments: str) -> str:
    found = CliRunner().invoke(build_app(arguments[0]), list(arguments), catch_exceptions=False)
    return found.output


def test_the_record_stands_while_the_service_runs(home: Path) -> None:
    """Written, read whole, and gone after the block; what it costs is taken away with a new start."""
    made = service(replicas=(1, 4), planned=PLANNED)
    with recorded(folder_of(home), made):
        assert read_record(folder_of(home)) == made
        assert made.is_alive
    assert read_record(folder_of(home)) is None


def test_a_name_is_one_service(home: Path, process: subprocess.Popen[bytes]) -> None:
    """A second one of the name is refused while the first lives, and takes its place when that was killed."""
    write_record(folder_of(home), of_process(process))
    with pytest.raises(InputError, match=f"runs already, as process {process.pid}"):
        write_record(folder_of(home), service())
    process.kill()
    process.wait()
    write_record(folder_of(home), service())


def test_a_number_that_is_used_again_is_another_process() -> None:
    """This process's number with another start is no service that lives."""
    own, began = this_process()
    assert not service(own, began - 100.0).is_alive


def test_ps_lists_services_and_those_that_were_killed(home: Path, process: subprocess.Popen[bytes]) -> None:
    """With their price an hour as they said it last."""
    write_record(folder_of(home), of_process(process))
    write_costs(folder_of(home), {"usd_per_hour": 3.6})
    assert "service reviews runs at http://127.0.0.1:8000, $3.60 an hour" in told("ps")
    process.kill()
    process.wait()
    assert "service reviews is gone: its process was killed" in told("ps")


def test_show_sets_its_cost_beside_the_plan(home: Path) -> None:
    """The last minute, the time since the start, the plan's figure; why there is no price per token."""
    meter = CostMeter(usd_per_machine_hour=1.8)
    meter.tick(0.0, replicas=1, counts=ServiceCounts(requests=0))
    meter.tick(40.0, replicas=1, counts=ServiceCounts(requests=100))
    with recorded(folder_of(home), service(planned=PLANNED)):
        write_costs(folder_of(home), meter.document())
        found = json.loads(told("show", "reviews", "-o", "json"))
        page = told("show", "service:reviews")
    assert found["costs"]["now"]["usd_per_1000_requests"] == pytest.approx(0.2)
    assert found["planned"]["usd_per_1000_requests"] == {"value": 0.25, "low": 0.125, "high": 0.5}
    assert found["planned"]["p95_latency_s"] == {"value": 0.25, "low": 0.125, "high": 0.5}
    assert found["planned"]["p95_ttft_s"] == {"value": 0.05, "low": 0.04, "high": 0.0625}
    assert found["planned"]["p95_tpot_s"] is None
    lines = {line.strip().partition("  ")[0]: line for line in page.splitlines()}
    assert lines["USD per 1,000 requests"].endswith("0.25 (0.125 to 0.5)")
    assert lines["p95 latency in s"].endswith("0.25 (0.125 to 0.5)")
    assert lines["p95 TTFT in s"].endswith("0.05 (0.04 to 0.0625)")
    assert "p95 TPOT in s" not in lines  # neither measured nor predicted
    assert "the plan, at its busy rate" in page
    assert found["apis"] is None
    assert "without a workload file" in found["why_no_apis"]
    assert "$1.80 (--usd-per-hour)" in page


def test_an_hour_of_the_plan_is_one_of_its_month(home: Path) -> None:
    """USD 1,000 a month of 200 hours are USD 5 an hour; with a rate that moves they are of a mean day, and no hour's at
    the busy rate is said."""
    for varies in (False, True):
        planned = replace(PLANNED, hours_per_month=200.0, rate_varies=varies)
        with recorded(folder_of(home), service(planned=planned)):
            write_costs(folder_of(home), {"machines": 1, "usd_per_hour": 1.75})
            lines = told("show", "reviews").splitlines()
        hourly = next(line for line in lines if line.strip().startswith("USD an hour"))
        assert ("5 (2.5 to 10)" in hourly, "(" in hourly) == (not varies, not varies)


def test_prices_per_token_are_those_of_what_it_answers(home: Path, tmp_path: Path) -> None:
    """Requests measured at 1,000 tokens in and 100 out cost an API what those cost, whatever the file says of them."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("model: llama-7b", "model: llama-3.1-8b")
    file = tmp_path / "service.tonnage.yaml"
    file.write_text(text, encoding="utf-8")
    span = {"seconds": 60.0, "usd": 0.03, "requests": 100.0, "input_tokens": 1e5, "output_tokens": 1e4}
    with recorded(folder_of(home), service(workload_file=str(file))):
        write_costs(folder_of(home), {"machines": 1, "usd_per_hour": 1.8, "now": span, "since_start": span})
        found = json.loads(told("show", "reviews", "-o", "json"))
    assert found["apis"], found["why_no_apis"]
    one = found["apis"][0]
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import load_workload
    from tonnage.service.listed_tokens import listed_token_prices
    from tonnage.settings import current_settings

    market = market_of(None, current_settings())
    price = next(each for each in listed_token_prices(load_workload(file), market) if each.name == one["name"])
    usd = 1000 * (1000 * price.usd_per_million_input + 100 * price.usd_per_million_output) / 1e6
    assert one["usd_per_1000_requests"] == pytest.approx(usd)


def test_stop_ends_a_service(home: Path, process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its process, waited for; a second time it says that it has ended."""
    write_record(folder_of(home), of_process(process))
    assert "The service reviews ended." in told("stop", "reviews")
    assert process.wait(timeout=10.0) != 0


def test_names_that_are_none_are_reported(home: Path) -> None:
    """`service:` with a name that never ran lists what there is."""
    with recorded(folder_of(home), service()):
        pass
    found = CliRunner().invoke(build_app("show"), ["show", "service:nobody"])
    assert "no service is named 'nobody'" in str(found.exception)
