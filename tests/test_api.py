"""The Python API: the same answers as the command line, as values a notebook can show."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.catalog.loading import snapshot_folders
from tonnage.errors import InputError, UnknownAccelerator, UnknownName, WorkloadError

EXAMPLE = Path(__file__).parents[1] / "examples" / "bert-finetune.tonnage.yaml"
WORKLOAD: dict[str, Any] = {
    "kind": "train",
    "model": "bert-base-uncased",
    "data": {"samples": 1000, "seq_len": 128, "epochs": 1},
}
DAY = "2026-11-20"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def result() -> tonnage.PlanResult:
    return tonnage.plan(WORKLOAD, as_of=DAY)


def test_plan_of_a_file_a_text_and_a_mapping_agree() -> None:
    """The same workload as a path, as YAML and as a mapping gives the same options."""
    text = EXAMPLE.read_text(encoding="utf-8")
    of_file, of_text = tonnage.plan(EXAMPLE, as_of=DAY), tonnage.plan(text, as_of=DAY)
    assert of_file.options == of_text.options
    assert tonnage.plan(str(EXAMPLE), as_of=DAY).options == of_file.options


def test_loaded_workload_is_taken_as_it_is(result: tonnage.PlanResult) -> None:
    """A workload read before plans the same; it has its clock already."""
    workload = tonnage.load_workload(WORKLOAD, as_of=DAY)
    assert tonnage.plan(workload).options == result.options
    with pytest.raises(InputError):
        tonnage.plan(workload, as_of=DAY)


def test_result_is_frozen_and_shows_itself(result: tonnage.PlanResult) -> None:
    """JSON, Markdown, HTML and text of a result; it cannot be changed."""
    assert json.loads(result.to_json())["schema"] == "tonnage/plan@1"
    assert result.to_markdown().startswith("# Plan for workload")
    assert "<table" in result._repr_html_()
    assert "<html" not in result._repr_html_()
    assert "Ranking" in str(result)
    with pytest.raises(FrozenInstanceError):
        result.top = 3  # type: ignore[misc]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_to_frame(result: tonnage.PlanResult, library: str) -> None:
    """One row an option, with the columns of the CSV."""
    pytest.importorskip(library)
    frame = result.to_frame(library)
    assert len(frame) == len(result.options)
    assert frame["cost_usd"].to_list() == [pytest.approx(option.cost_usd.value) for option in result.options]


def test_constraints_replace_the_workloads() -> None:
    """`providers`, `gpus` and `max_gpus` hold for every option."""
    result = tonnage.plan(WORKLOAD, as_of=DAY, providers="AWS", gpus=["T4", "A10G"], max_gpus=1)
    assert result.options
    assert {option.provider for option in result.options} == {"aws"}
    assert {option.gpu for option in result.options} <= {"T4", "A10G"}
    assert {option.gpu_count * option.count for option in result.options} == {1.0}


def test_not_interruptible_takes_spot_out() -> None:
    """`interruptible=False` leaves no spot option; where the file asks for spot alone that is a contradiction."""
    result = tonnage.plan(WORKLOAD, as_of=DAY, interruptible=False)
    assert {option.purchase for option in result.options} == {"on_demand"}
    with pytest.raises(InputError, match="spot only"):
        tonnage.plan(WORKLOAD | {"buy": {"purchases": ["spot"]}}, as_of=DAY, interruptible=False)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"gpu": "T4"}, InputError, "no constraint is named 'gpu'"),
        ({"gpus": "H10O"}, UnknownAccelerator, "H10O"),
        ({"gpus": "9000GB"}, InputError, "matches no GPU"),
        ({"providers": "amazon"}, InputError, "no provider named 'amazon'"),
        ({"regions": ["us-east-9"]}, InputError, "no region named 'us-east-9'"),
        ({"residency": "mars"}, InputError, "no area named 'mars'"),
        ({"deadline": "soon"}, InputError, "deadline: found 'soon'"),
        ({"deadline": "2020-01-01"}, InputError, "has passed"),
        ({"budget_usd": -1}, InputError, "budget: found -1"),
        ({"budget_usd": float("nan")}, InputError, "budget: found nan"),
        ({"max_gpus": 0}, InputError, "at least 1"),
        ({"interruptible": "no"}, InputError, "True or False"),
        ({"memory_margin": 0.7}, InputError, "memory margin"),
        ({"memory_margin": float("nan")}, InputError, "memory margin"),
        ({"rank": "price"}, InputError, "cannot rank by 'price'"),
        ({"top": 0}, InputError, "top"),
    ],
)
def test_bad_arguments(given: dict[str, Any], error: type[Exception], said: str) -> None:
    """What cannot be used is named, before anything is planned."""
    with pytest.raises(error, match=said):
        tonnage.plan(WORKLOAD, as_of=DAY, **given)


def test_a_service_has_no_deadline() -> None:
    """`deadline` on a service is refused as the workload file refuses it."""
    service = {
        "kind": "serve",
        "model": "gpt2",
        "serve": {"rate_per_s": 1, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"},
    }
    with pytest.raises(InputError, match="no deadline"):
        tonnage.plan(service, as_of=DAY, deadline="8h")


def test_bad_workload_says_where() -> None:
    """A mapping with a wrong key fails as a file does."""
    with pytest.raises(WorkloadError, match="bert-bse"):
        tonnage.plan(WORKLOAD | {"model": "bert-bse"}, as_of=DAY)


def test_memory_margin_is_used(result: tonnage.PlanResult) -> None:
    """More memory kept free can only refuse more, and explain names the figure used."""
    tight = tonnage.plan(WORKLOAD, as_of=DAY, memory_margin=0.5)
    assert len(tight.options) <= len(result.options)
    assert {one.name: one.value for one in tight.assumptions}["memory_margin_fraction"] == 0.5


def test_explain_and_size(result: tonnage.PlanResult) -> None:
    """`explain` and `size` return values with the same ways to show them."""
    assert json.loads(result.explain("T4").to_json())["subject"] == {"name": "T4", "kind": "GPU"}
    with pytest.raises(UnknownName):
        result.explain("H10O")
    report = tonnage.size(WORKLOAD, gpus="T4", as_of=DAY)
    assert {row.gpu for row in report.size.rows} == {"T4"}
    assert "<table" in report._repr_html_()


def test_clock_is_the_day_unless_the_deadline_is_an_instant() -> None:
    """Without a clock, a plan is dated by its day (and so repeats); a deadline at an instant needs the hour."""
    begun = datetime.now(UTC)
    plain = tonnage.load_workload(WORKLOAD)
    assert begun.date() <= plain.as_of.date() <= datetime.now(UTC).date()  # midnight may come in between
    assert plain.as_of == plain.as_of.replace(hour=0, minute=0, second=0, microsecond=0)
    dated = tonnage.load_workload(WORKLOAD | {"constraints": {"deadline": "2030-01-01T12:00Z"}})
    assert dated.constraints.deadline_s == (datetime(2030, 1, 1, 12, tzinfo=UTC) - dated.as_of).total_seconds()
    assert dated.as_of >= plain.as_of


def test_unknown_name_of_the_package() -> None:
    """A name the package does not have is an AttributeError; those it has are listed."""
    assert "plan" in dir(tonnage)
    assert tonnage.errors.TonnageError
    with pytest.raises(AttributeError):
        _ = tonnage.plam  # type: ignore[attr-defined]


def test_model_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hf://org/name` reads config.json of the hub that HF_ENDPOINT names, once; then the copy at home serves."""
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
    }
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps(config).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """No log on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        workload = tonnage.load_workload(WORKLOAD | {"model": "hf://org/my-gpt2"}, as_of=DAY)
        server.shutdown()
    assert workload.job.model.layers == 12  # type: ignore[union-attr]
    assert asked == ["/org/my-gpt2/resolve/main/config.json"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = tonnage.load_workload(WORKLOAD | {"model": "hf://org/my-gpt2"}, as_of=DAY)
    assert again.job == workload.job
    assert (tmp_path / "home" / "huggingface" / "org" / "my-gpt2" / "config.json").is_file()


def test_a_snapshot_of_a_folder_is_read_again_once_it_changed(tmp_path: Path) -> None:
    """A page asks for it with every slider; a price that was written since counts at once, also in the file's place."""
    folder = tmp_path / "snapshot"
    shutil.copytree(Path(str(snapshot_folders()[-1])), folder)
    first = tonnage.load_catalog(folder)
    assert tonnage.load_catalog(folder) is first
    offers = folder / "offers.csv"
    head, row, *rest = offers.read_text(encoding="utf-8").splitlines(keepends=True)
    offers.write_text(head + "".join(rest), encoding="utf-8")
    assert len(tonnage.load_catalog(folder).offers) == len(first.offers) - 1
    fresh = tmp_path / "offers.csv"
    fresh.write_text(head + row + "".join(rest), encoding="utf-8")
    fresh.replace(offers)
    assert tonnage.load_catalog(folder).offers == first.offers
