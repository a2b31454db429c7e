"""A run in MLflow's SQLite store: all of it, once, whatever breaks in between."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tonnage.errors import InputError
from tonnage.runs import EventKind, RunFolder
from tonnage.runs.folder import append_values
from tonnage.runs.series import read_lines
from tonnage.testing import write_run
from tonnage.tracking import Tracker, TrackingUnavailable, progress, tracker
from tonnage.tracking.progress import only_one
from tonnage.tracking.unavailable import reaching

from .conftest import client_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


def track(folder: RunFolder, uri: str) -> Tracker:
    return Tracker(folder.spec(), folder, uri)


def only_run(client: MlflowClient) -> Run:
    (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    return run


def histories(client: MlflowClient) -> dict[str, list[tuple[int, float]]]:
    run = only_run(client)
    return {
        key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
    }


def expected_loss(folder: RunFolder) -> list[tuple[int, float]]:
    lines = {line.values["step"]: line.values["loss"] for line in read_lines(folder.metrics_file)}
    return sorted(lines.items())


def test_a_run_is_there_in_full_and_once(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """Parameters, one point a logged step, samples, state, status; a second and third sync add nothing."""
    for _ in range(3):
        track(folder, uri).sync()
    run, found = only_run(client), histories(client)
    assert (run.info.run_name, run.info.status) == ("one", "FINISHED")
    assert run.data.params["training.precision"] == "bf16"
    assert run.data.tags["tonnage.lost_steps"] == "10"
    assert found["loss"] == expected_loss(folder)
    assert len(found["system/gpu_0/power_w"]) == sum(1 for _ in read_lines(folder.samples_file))
    assert client.get_experiment(run.info.experiment_id).name == "texts"


def test_what_is_new_is_sent(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """Lines and events that came since; what was there stays as it was."""
    one = track(folder, uri)
    one.sync()
    append_values(folder.metrics_file, {"step": 110, "at": "2026-01-02T13:00:00+00:00", "loss": 0.01})
    folder.record(EventKind.EVALUATED, who="rank0", step=110, metrics={"accuracy": 0.93})
    one.sync()
    found = histories(client)
    assert found["loss"] == expected_loss(folder)
    assert found["evaluation/accuracy"] == [(110, 0.93)]


@pytest.mark.parametrize("at_call", [0, 2, 5])
def test_a_crash_anywhere_doubles_nothing(
    folder: RunFolder, uri: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch, at_call: int
) -> None:
    """Killed before its n-th note of what was sent, the next sync leaves the same points as one that never broke."""

    class Killed(Exception):
        pass

    calls = Counter[str]()
    save = tracker.save_sent

    def dying(*arguments: Any) -> None:
        calls["save"] += 1
        if calls["save"] > at_call:
            raise Killed
        save(*arguments)

    monkeypatch.setattr(tracker, "_LINES", 4)
    monkeypatch.setattr(tracker, "save_sent", dying)
    with pytest.raises(Killed):
        track(folder, uri).sync()
    monkeypatch.setattr(tracker, "save_sent", save)
    track(folder, uri).sync()
    found = histories(client)
    assert found["loss"] == expected_loss(folder)
    assert all(len(points) == len(set(points)) for points in found.values())
    assert len(found["system/cpu_fraction"]) == sum(1 for _ in read_lines(folder.samples_file))


def test_a_crash_before_the_tag_doubles_nothing(
    folder: RunFolder, uri: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The points came, the tag that says so did not: they are sent again, and the store keeps one of each."""
    monkeypatch.setattr(tracker.Sent, "offsets", lambda _: "")
    track(folder, uri).sync()
    monkeypatch.undo()
    track(folder, uri).sync()
    assert histories(client)["loss"] == expected_loss(folder)


def test_another_database_gets_the_run_anew(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """The store was thrown away and an empty one stands in its place: the run is made again, in full."""
    track(folder, uri).sync()
    client.delete_run(only_run(client).info.run_id)
    note = folder.path / "tracking.json"
    note.write_text(note.read_text().replace(json.loads(note.read_text())[uri]["run_id"], "0" * 32))
    track(folder, uri).sync()
    assert histories(client)["loss"] == expected_loss(folder)


def test_the_end_brings_summary_files_and_model(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """Metrics beside baseline, prediction beside measurement, report and log, the model with signature and alias; twice
    is once."""
    for _ in range(2):
        track(folder, uri).finish()
    run = only_run(client)
    metrics = run.data.metrics
    assert (metrics["metrics/accuracy"], metrics["baseline/accuracy"]) == (0.91, 0.62)
    assert metrics["predicted/samples_per_s"] == 300
    assert metrics["measured/samples_per_s"] == pytest.approx(320)
    files = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert {"spec.json", "prediction.json", "result.json", "report.html", "log-tail.txt", "model"} <= files
    (version,) = client.search_model_versions("name = 'reviews'")
    assert client.get_model_version_by_alias("reviews", "champion").version == version.version
    assert [event.fields["version"] for event in folder.events() if event.kind is EventKind.REGISTERED] == ["1"]
    with reaching(uri):
        from mlflow.models import Model

        info = Model.load(version.source.removeprefix("file://"))
    assert info.signature.inputs.input_names() == ["text"]
    assert info.signature.outputs.input_names() == ["label", "score"]
    assert info.saved_input_example_info is not None


def test_a_resumed_run_has_another_end(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """Its new result is sent beside the old one; MLflow shows the newest."""
    track(folder, uri).finish()
    result = json.loads(folder.result_file.read_text())
    folder.result_file.write_text(json.dumps({**result, "metrics": {"accuracy": 0.95}, "steps": 200}))
    folder.record(EventKind.SUCCEEDED, who="supervisor", step=200)
    track(folder, uri).finish()
    assert histories(client)["metrics/accuracy"] == [(100, 0.91), (200, 0.95)]


def test_a_server_that_is_down_is_said_soon(folder: RunFolder) -> None:
    """No answer at the port: TrackingUnavailable without the password, and the folder is as it was."""
    pytest.importorskip("mlflow")
    before = folder.journal_file.read_bytes()
    with pytest.raises(TrackingUnavailable, match=r"me:\*\*\*@127.0.0.1:1") as caught:
        track(folder, "http://me:secret@127.0.0.1:1").sync()
    assert "tonnage runs sync" in str(caught.value.hint)
    assert "secret" not in caught.value.message
    assert folder.journal_file.read_bytes() == before


def test_a_model_is_registered_once_for_the_same_files(folder: RunFolder, uri: str, client: MlflowClient) -> None:
    """Any number of times is one version, by whichever way it came; other files make another, and the alias moves."""
    track(folder, uri).finish()  # its own name: reviews
    same = track(folder, uri).register("reviews", "newest")
    assert (same.version, same.new) == ("1", False)
    other_name = track(folder, uri).register("letters", None)
    again = track(folder, uri).register("letters", None)
    assert (other_name.version, other_name.new, again.version, again.new) == ("1", True, "1", False)
    with pytest.raises(InputError, match=r"alias name .* is reserved"):
        track(folder, uri).register("letters", "latest")
    (folder.model / "config.json").write_text('{"other": 1}')
    changed = track(folder, uri).register("reviews", "newest")
    assert (changed.version, changed.new) == ("2", True)
    assert client.get_model_version_by_alias("reviews", "newest").version == 2
    assert client.get_model_version_by_alias("reviews", "champion").version == 1
    assert {one.name: len(client.search_model_versions(f"name = '{one.name}'")) for one in
            client.search_registered_models()} == {"reviews": 2, "letters": 1}  # fmt: skip


@pytest.mark.slow
def test_first_runs_at_once_make_one_database(tmp_path: Path) -> None:
    """Six processes meet a SQLite file that is not there yet: each run is in it in the end."""
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}"
    folders = [write_run(tmp_path / "runs" / f"run{number}") for number in range(6)]
    program = (
        "import sys; from pathlib import Path\n"
        "from tonnage.runs import RunFolder; from tonnage.tracking import Tracker\n"
        "folder = RunFolder(Path(sys.argv[1])); Tracker(folder.spec(), folder, sys.argv[2]).sync()\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, str(one.path), uri]) for one in folders]
    assert [process.wait(600) for process in started] == [0] * 6
    client = client_of(uri)
    experiment = client.get_experiment_by_name("tonnage")
    assert experiment is not None
    assert {run.info.run_name for run in client.search_runs([experiment.experiment_id])} == {
        f"run{n}" for n in range(6)
    }


def test_a_database_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    """The disk fills while MLflow makes its tables: nothing half made stays, and the next try has them all."""
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    folder = write_run(tmp_path / "runs" / "one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(TrackingUnavailable):
            Tracker(folder.spec(), folder, uri).sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    Tracker(folder.spec(), folder, uri).sync()
    assert client_of(uri).get_experiment_by_name("tonnage") is not None
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o777 == 0o600


def test_only_one_process_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one sends, another gives up after its wait; afterwards the next may."""
    monkeypatch.setattr(progress, "WAIT_S", 0.0)
    folder = RunFolder(tmp_path)
    with only_one(folder) as first, only_one(folder) as second:
        assert (first, second) == (True, False)
    with only_one(folder) as third:
        assert third
