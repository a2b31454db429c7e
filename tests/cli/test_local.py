"""`tonnage calibrate --local` and `--device` as a user runs them, on a profile of round figures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from tests.calibration.measured_rows import measured_row

from tonnage.api.serving import on_this_machine
from tonnage.benchmarks.machine import device_name, host_identity
from tonnage.calibration.columns import INFERENCE_COLUMNS
from tonnage.calibration.local_file import devices_folder, read_profile, save_profile
from tonnage.calibration.local_profile import DeviceProfile
from tonnage.calibration.local_rows import rows_csv
from tonnage.planning.local import predict_local
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.engines.engine import EncoderEngine, EnginePlace
from tonnage.serving.report import PlannedReplica, here_words, replica_report
from tonnage.settings import current_settings
from tonnage.store import open_store
from tonnage.testing.devices import fake_profile
from tonnage.workload.jobs import ServeJob
from tonnage.workload.loading import load_workload, parse_workload

from .conftest import BERT, DAY, EXAMPLES, Run

WORK = """kind: train
model: all-minilm-l6-v2
data: {samples: 3200, seq_len: 32, epochs: 1}
train: {objective: classification, global_batch: 32, precision: fp32}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    place = tmp_path / "mini.tonnage.yaml"
    place.write_text(WORK, encoding="utf-8")
    return str(place)


@pytest.fixture
def profile(tmp_path: Path) -> DeviceProfile:
    """A profile of this machine at home."""
    here = host_identity()
    made = replace(fake_profile(name=device_name(here, "cpu")), identity=here)
    save_profile(made, devices_folder(tmp_path / "home") / f"{made.name}.json")
    return made


@pytest.mark.usefixtures("profile")
def test_size_and_plan_give_the_same_figures_on_a_local_device(inside: Run, file: str) -> None:
    """Time, rate and memory with their intervals; the cost is unknown while no hour has a price."""
    sized = inside("size", file, "--device", "local", "-o", "json", *DAY)
    planned = inside("plan", file, "--device", "local", "-o", "json", *DAY)
    assert (sized.returncode, sized.stdout) == (0, planned.stdout)
    found = json.loads(sized.stdout)
    assert found["schema"] == "tonnage/local-prediction@1"
    assert found["cost_usd"] is None
    for key in ("step_s", "samples_per_s", "run_s", "peak_memory_gib"):
        assert found[key]["low"] < found[key]["value"] < found[key]["high"]
    assert "unknown" in inside("size", file, "--device", "local").stdout


@pytest.mark.usefixtures("profile")
def test_what_the_device_does_not_hold_is_exit_3(inside: Run, file: str) -> None:
    """The report is shown, the limit named."""
    done = inside("plan", file, "--device", "local", "--deadline", "1s", *DAY)
    assert done.returncode == 3
    assert "deadline" in done.stderr
    assert "samples/s" in done.stdout


def test_measured_rows_go_in_and_come_out_again(inside: Run, file: str, profile: DeviceProfile, tmp_path: Path) -> None:
    """--rows narrows the interval, --export writes the same rows, and a second import changes no byte."""
    job = parse_workload(WORK, file=None, folder=tmp_path, as_of=_day()).job
    made = predict_local(job, profile)  # type: ignore[arg-type]
    row = measured_row(
        made.work, profile, id="a", metric="iteration_time_s", value=2 * made.step_s.value, source="t", log_sd=0.01
    )
    rows = tmp_path / "rows.csv"
    rows.write_text(rows_csv([row]), encoding="utf-8")
    place = devices_folder(tmp_path / "home") / f"{profile.name}.json"
    assert inside("calibrate", "--local", "--rows", str(rows)).returncode == 0
    first = place.read_bytes()
    after = json.loads(inside("size", file, "--device", "local", "-o", "json", *DAY).stdout)
    assert after["step_s"]["value"] == pytest.approx(2 * made.step_s.value, rel=0.05)
    assert after["rows"]["time"] == 1
    assert inside("calibrate", "--local", "--export", "out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text() == rows.read_text()
    assert inside("calibrate", "--local", "--rows", "out.csv").returncode == 0
    assert place.read_bytes() == first


def _day():  # type: ignore[no-untyped-def]
    from datetime import UTC, datetime

    return datetime(2026, 11, 20, tzinfo=UTC)


def test_without_a_profile_the_command_to_run_is_named(inside: Run, file: str) -> None:
    """Nothing was measured here yet."""
    done = inside("size", file, "--device", "local")
    assert done.returncode == 2
    assert "tonnage calibrate --local" in done.stderr


def test_a_profile_of_another_machine_is_refused_unless_asked_for(inside: Run, file: str, tmp_path: Path) -> None:
    """--other-machine plans for it."""
    save_profile(fake_profile(), tmp_path / "other.json")
    refused = inside("size", file, "--device", "other.json")
    assert refused.returncode == 2
    assert "Fake CPU" in refused.stderr
    assert inside("size", file, "--device", "other.json", "--other-machine", *DAY).returncode == 0


def test_bad_rows_leave_the_profile_as_it_was(inside: Run, profile: DeviceProfile, tmp_path: Path) -> None:
    """Another device, a negative value, NaN: exit 2 with the row's id."""
    place = devices_folder(tmp_path / "home") / f"{profile.name}.json"
    before = place.read_bytes()
    job = parse_workload(WORK, file=None, folder=tmp_path, as_of=_day()).job
    work = predict_local(job, profile).work  # type: ignore[arg-type]
    good = measured_row(work, profile, id="row-7", metric="iteration_time_s", value=1.0, source="t")
    for bad in (replace(good, gpu="H100-SXM"), replace(good, value=-1.0), replace(good, value=float("nan"))):
        (tmp_path / "rows.csv").write_text(rows_csv([bad]), encoding="utf-8")
        done = inside("calibrate", "--local", "--rows", "rows.csv")
        assert done.returncode == 2
        assert "row-7" in done.stderr
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--local", "--device", "tpu"), "cpu or cuda"),
        (("--local", "--threads", "two"), "whole numbers"),
        (("--local", "--usd-per-hour", "-1"), "at least zero"),
        (("--local", "--usd-per-hour", "nan"), "at least zero"),
        (("--local", "--training", "x.csv"), "--training"),
        (("--quick",), "--local"),
        ((), "--training"),
        (("--local", "--rows", "none.csv"), "calibrate --local"),
    ],
)
def test_usage_errors_are_exit_2(inside: Run, arguments: tuple[str, ...], said: str) -> None:
    """Each says what to give instead, and nothing is measured."""
    done = inside("calibrate", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_without_torch_the_extra_is_named(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip install 'tonnage[train]'."""
    monkeypatch.setitem(sys.modules, "torch", None)
    done = inside("calibrate", "--local", "--quick")
    assert done.returncode == 2
    assert "tonnage[train]" in done.stderr


@pytest.mark.usefixtures("profile")
def test_options_that_choose_among_offers_do_not_go_with_a_device(inside: Run) -> None:
    """--gpu and --provider are refused beside --device."""
    for verb, option, value in (("size", "--gpu", "H100"), ("plan", "--provider", "aws")):
        done = inside(verb, BERT, "--device", "local", option, value)
        assert done.returncode == 2
        assert option in done.stderr


@pytest.mark.usefixtures("profile")
def test_a_service_that_writes_tokens_is_not_sized_on_a_local_device(inside: Run) -> None:
    """Only training and encoders were measured."""
    done = inside("size", str(EXAMPLES / "serve-gpt2-realtime.tonnage.yaml"), "--device", "local", *DAY)
    assert done.returncode == 2
    assert "writes tokens" in done.stderr


def test_a_damaged_profile_is_exit_2(inside: Run, file: str, profile: DeviceProfile, tmp_path: Path) -> None:
    """Fold in the middle."""
    place = devices_folder(tmp_path / "home") / f"{profile.name}.json"
    place.write_text(place.read_text()[:500])
    done = inside("size", file, "--device", "local")
    assert done.returncode == 2
    assert "device profile" in done.stderr
    assert read_profile is not None


SERVICE = """
kind: serve
model: minilm
serve: {rate_per_s: 50, input_tokens: {mean: 48, max: 128}, p95_latency: 500ms, engine: onnxruntime, weights: fp32}
"""


def test_a_bench_of_a_service_corrects_its_next_plan(inside: Run, profile: DeviceProfile, tmp_path: Path) -> None:
    """The plan says by how much and from which rows; a row of another engine is left out, and that is said."""
    timed = replace(profile, curves=fake_profile(services=True).curves)
    save_profile(timed, devices_folder(tmp_path / "home") / f"{timed.name}.json")
    (tmp_path / "service.yaml").write_text(SERVICE, encoding="utf-8")
    before = json.loads(inside("plan", str(tmp_path / "service.yaml"), "--device", "local", "-o", "json", *DAY).stdout)
    row = dict.fromkeys(INFERENCE_COLUMNS, "") | {
        "source": "tonnage bench serve", "gpu": timed.name, "kind": "encoder", "model": "minilm", "precision": "fp32",
        "engine": "onnxruntime", "input_len": "47.6", "note": "request_rate_qps=20; input mean=48 longest=128",
    }  # fmt: skip
    figures = (
        ("requests_per_s", 20.0), ("latency_ms_p50", 3000 * before["latency_p50_s"]["value"]),
        ("latency_ms_p95", 3000 * before["latency_p95_s"]["value"]),
    )  # fmt: skip
    rows = [
        row | {"id": f"{name}{metric}", "config_id": name, "engine": engine, "metric": metric, "value": str(value)}
        for name, engine in (("bench@1", "onnxruntime"), ("bench@2", "vllm")) for metric, value in figures
    ]  # fmt: skip
    with open_store(f"sqlite:///{tmp_path / 'home' / 'tonnage.db'}") as store:
        store.add_measurements(rows, table="inference")
    done = inside("plan", str(tmp_path / "service.yaml"), "--device", "local", "-o", "json", *DAY)
    after = json.loads(done.stdout)
    assert after["benches"] == {"own": ["bench@1"], "other_models": []}
    assert after["slower_than_curves"]["value"] > 2 * before["slower_than_curves"]["value"]
    assert "bench@2" in done.stderr
    page = inside("plan", str(tmp_path / "service.yaml"), "--device", "local", *DAY).stdout
    assert "% slower than the curves" in page
    assert "bench@1" in page
    explained = inside("explain", str(tmp_path / "service.yaml"), "--device", "local", "-o", "json", *DAY)
    assert json.loads(explained.stdout) == after
    assert inside("explain", str(tmp_path / "service.yaml"), "aws", "--device", "local", *DAY).returncode == 2
    served = planned_here(tmp_path)
    assert served.here is not None
    document = replica_report(served).document()["here"]
    assert {key: document[key] for key in ("holds_per_s", "latency_p95_s")} == {
        key: after[key] for key in ("holds_per_s", "latency_p95_s")
    }
    measured = [words for words in here_words(served) if words.startswith("at 20 requests/s")]
    assert len(measured) == 1
    assert "measured 20/s" in measured[0]
    assert "predicted 20" in measured[0]


def planned_here(folder: Path) -> PlannedReplica:
    """The planned service as `tonnage serve FILE` has it, of a model whose weights are nowhere."""
    place = EnginePlace(folder=str(folder), host="127.0.0.1", port=8000)
    service = EncoderService(model="none", name="mini", p95_s=0.5)
    made = PlannedReplica(
        option=None, folder=folder, command=EncoderEngine().render(service, place),
        render=partial(EncoderEngine().render, service),
    )  # fmt: skip
    home = folder / "home"
    settings = replace(current_settings(), home=home, database_url=f"sqlite:///{home / 'tonnage.db'}")
    job = load_workload(folder / "service.yaml", as_of=datetime(2026, 11, 20, tzinfo=UTC)).job
    assert isinstance(job, ServeJob)
    found, told = on_this_machine(made, job, settings)
    assert told == ()
    return found
