"""Verbs as functions: each gives the answer that its command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import FetchError, InputError, NothingFits, PlanRefused, TonnageError, UnknownName
from tonnage.settings import current_settings

EXAMPLES = Path(__file__).parents[1] / "examples"
DAY = "2026-11-20"
SERVICE: dict[str, Any] = {
    "kind": "serve",
    "model": "gpt2",
    "serve": {"rate_per_s": 5, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"},
}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints as JSON."""
    from tonnage.cli import run

    run([*words, "-o", "json"])
    return capsys.readouterr().out


@pytest.mark.heavy
def test_breakeven_answers_as_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON from function and command; a price that is half stated is refused."""
    file = tmp_path / "service.tonnage.yaml"
    file.write_text(json.dumps(SERVICE), encoding="utf-8")
    asked = tonnage.BreakEvenOptions(usd_per_million_input=0.5, usd_per_million_output=1.5)
    answer = tonnage.breakeven(file, asked, as_of=DAY, gpus="T4", providers="aws")
    assert answer.fault is None
    words = ["breakeven", str(file), "--input-usd", "0.5", "--output-usd", "1.5", "--gpu", "T4", "--provider", "aws"]
    assert answer.to_json() == printed(capsys, *words, "--as-of", DAY)
    with pytest.raises(InputError, match="--output-usd is missing"):
        tonnage.breakeven(SERVICE, tonnage.BreakEvenOptions(usd_per_million_input=1), as_of=DAY)


def test_a_service_that_no_machine_holds_has_a_fault() -> None:
    """`fault` says what the command ends with, `checked` raises it, and the report stands all the same."""
    hard = SERVICE | {"serve": SERVICE["serve"] | {"p95_latency": "1ms"}}
    asked = tonnage.BreakEvenOptions(usd_per_million_input=0.5, usd_per_million_output=1.5)
    answer = tonnage.breakeven(hard, asked, as_of=DAY, gpus="T4", providers="aws")
    assert isinstance(answer.fault, NothingFits)
    assert answer.to_json()
    with pytest.raises(NothingFits):
        answer.checked()


def test_rightsize_answers_as_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; headroom is part of the options."""
    usage = EXAMPLES / "usage.csv"
    answer = tonnage.rightsize(usage, tonnage.RightsizeOptions(headroom_fraction=0.5), as_of=DAY)
    assert answer.to_json() == printed(capsys, "rightsize", str(usage), "--headroom", "0.5", "--as-of", DAY)
    assert answer.found[0].usage.name == "fine-tuning"


def test_spot_advice_answers_as_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; spot that would never end is a fault, and the answer stands beside it."""
    asked = tonnage.spot.AdviseOptions(work_h=20, changeover_h=0.2, price_ratio=3)
    words = ["spot", "advise", "--hours", "20", "--changeover-hours", "0.2", "--price-ratio", "3"]
    assert tonnage.spot.advise(asked).to_json() == printed(capsys, *words)
    lost = tonnage.spot.AdviseOptions(work_h=5000, changeover_h=1, price_ratio=3, no_checkpoints=True)
    assert isinstance(tonnage.spot.advise(lost).fault, PlanRefused)


def test_portfolio_answers_as_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; a budget that holds for no assignment is a fault."""
    (tmp_path / "small.tonnage.yaml").write_text(
        "kind: train\nmodel: bert-base-uncased\ndata: {samples: 1000, seq_len: 128, epochs: 1}\n"
        "constraints: {providers: aws, gpus: T4}\n",
        encoding="utf-8",
    )
    file = tmp_path / "portfolio.yaml"
    file.write_text("workloads: [{file: small.tonnage.yaml}]\n", encoding="utf-8")
    answer = tonnage.portfolio(file, as_of=DAY)
    assert answer.fault is None
    assert (
        json.loads(answer.to_json())["assignments"]
        == json.loads(printed(capsys, "plan", "--portfolio", str(file), "--as-of", DAY))["assignments"]
    )
    file.write_text("budget_usd: 0.0001\nworkloads: [{file: small.tonnage.yaml}]\n", encoding="utf-8")
    assert isinstance(tonnage.portfolio(file, as_of=DAY).fault, NothingFits)


def test_validate_answers_as_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON; progress is told; a table that cannot be judged says why."""
    table = Path(__file__).parent / "data" / "training_throughput.csv"
    reported: list[int] = []
    answer = tonnage.validate("training", table, on_rows=reported.append)
    assert answer.to_json() == printed(capsys, "validate", "training", str(table))
    assert reported
    with pytest.raises(InputError, match="cannot be left out"):
        tonnage.validate("training", table, tonnage.ValidateOptions(leave_out="colour"))


def test_fetch_answers_with_its_files(tmp_path: Path) -> None:
    """What came is in the answer; a file changed afterwards is a fault of `verify_fetched`."""
    pytest.importorskip("filelock")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    target = tmp_path / "there"
    answer = tonnage.fetch(str(tmp_path / "rows.csv"), tonnage.FetchOptions(to=(str(target),), copy=True))
    assert [one.name for one in answer.checked().files] == ["rows.csv"]
    assert tonnage.verify_fetched(target).fault is None
    (target / "rows.csv").write_text("a,b\n1,3\n", encoding="utf-8")
    assert isinstance(tonnage.verify_fetched(target).fault, FetchError)
    with pytest.raises(InputError, match="found 0 for jobs, expected 1 to 128"):
        tonnage.FetchOptions(jobs=0)


def test_models_of_unknown_runs_are_refused(tmp_path: Path) -> None:
    """`evaluate` and `predict` name the run that is not there, and a device that is none."""
    with pytest.raises(UnknownName, match="no run is named 'nowhere'"):
        tonnage.evaluate("nowhere")
    with pytest.raises(InputError, match="no device is named 'tpu'"):
        tonnage.predict("nowhere", "rows.csv", tmp_path / "out.jsonl", tonnage.PredictOptions(device="tpu"))


@pytest.mark.heavy
def test_a_run_is_started_stopped_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` comes back while the run goes on, `stop` when it has ended with a checkpoint; `resume` starts it again."""
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    spec = {"name": "one", "task": "mlp", "data": {"train": {"location": str(tmp_path / "rows.csv"), "format": "csv"}}}
    file = tmp_path / "one.json"
    file.write_text(json.dumps(spec), encoding="utf-8")
    monkeypatch.setenv("TONNAGE_WORKER", "tonnage.testing.worker")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    monkeypatch.setenv("TONNAGE_FAKE", json.dumps({"steps": 100_000}))
    folder = tonnage.run(file, tonnage.RunOptions(max_restarts=0)).found
    assert folder.spec().launch.max_restarts == 0
    assert json.loads(tonnage.stop("one").to_json())["runs"][0]["state"] == "stopped"
    tonnage.resume("one", tonnage.ResumeOptions(max_restarts=1))
    assert folder.spec().launch.max_restarts == 1
    tonnage.stop("one", at_once=True)
    assert tonnage.show("one").found.state.state.value == "cancelled"
    with pytest.raises(InputError, match="'one' has ended"):
        tonnage.stop("one")


def test_a_starter_comes_from_the_package_too(tmp_path: Path) -> None:
    """The paths are those written; a second time is refused, and options of `compare` go with no task."""
    asked = tonnage.InitOptions(out=tmp_path / "new")
    paths = tonnage.init("mlp", asked)
    assert tmp_path / "new" / "mlp.tonnage.yaml" in paths
    assert all(path.is_file() for path in paths)
    with pytest.raises(InputError, match="is there"):
        tonnage.init("mlp", asked)
    with pytest.raises(InputError, match="go with compare"):
        tonnage.init("mlp", tonnage.InitOptions(title="ours"))


def test_the_doctor_says_what_the_command_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A catalog that does not load is a fault of the answer; the checks are those that the command prints."""
    (tmp_path / "empty").mkdir()
    answer = tonnage.doctor(settings=current_settings(catalog="empty"))
    assert answer.fault is not None
    assert {one.name: one.status for one in answer.found}["catalog"] == "problem"
    shown = json.loads(printed(capsys, "doctor", "--catalog", "empty"))
    assert [one["name"] for one in shown["checks"]] == [one.name for one in answer.found]


def test_a_refresh_refuses_before_it_asks(tmp_path: Path) -> None:
    """A folder that is there, a provider without a source, an address without a name."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "meta.json").touch()
    for asked, said in (
        (tonnage.RefreshOptions(to="old"), "exists already"),
        (tonnage.RefreshOptions(providers=("awz",)), "no provider named 'awz'"),
        (tonnage.RefreshOptions(urls=("http://here",)), "expected NAME=URL"),
    ):
        with pytest.raises(TonnageError, match=said):
            tonnage.refresh(asked)


def test_lists_of_the_catalog_answer_as_their_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The same JSON with conditions; a condition that names nothing is refused."""
    offers = tonnage.list_offers("H100:8", tonnage.OfferListOptions(purchases=("spot",), max_usd_per_gpu_hour=4))
    words = ["catalog", "offers", "H100:8", "--purchase", "spot", "--max-gpu-price", "4"]
    assert offers.to_json() == printed(capsys, *words)
    machines = tonnage.list_instances(asked=tonnage.InstanceListOptions(cpu_arch="arm64", min_vcpus=64))
    assert machines.to_json() == printed(capsys, "catalog", "instances", "--cpu-arch", "arm64", "--min-vcpus", "64")
    devices = tonnage.list_gpus(asked=tonnage.GpuListOptions(sort="memory_gib", descending=True))
    assert devices.to_json() == printed(capsys, "catalog", "gpus", "--sort", "memory_gib", "--desc")
    assert tonnage.list_models("bert").to_json() == printed(capsys, "catalog", "models", "bert")
    assert tonnage.list_services(("aws",)).to_json() == printed(capsys, "catalog", "services", "--provider", "aws")
    with pytest.raises(InputError, match="no processor architecture 'arm'"):
        tonnage.list_instances(asked=tonnage.InstanceListOptions(cpu_arch="arm"))
    with pytest.raises(InputError, match="no services of 'awz' are priced"):
        tonnage.list_services(("awz",))
