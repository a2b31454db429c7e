"""Spark as a place, without Spark: what is sent, what `check` finds, what a master means, how a driver goes on."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.objects import FolderObjects
from tonnage.places.spark.jobs import SparkJobs, SparkRuns, view_of
from tonnage.places.spark.master import class_name, starter, tag_in
from tonnage.places.spark.place import SparkPlace
from tonnage.places.spark.questions import against_version, against_workers
from tonnage.places.states import Phase
from tonnage.runs.job import Job, across_by_environment, meeting_variables
from tonnage.supervisor.spark import MOST_LAUNCHES, DriverNote, arguments_of, drive, epoch_before, reason_in
from tonnage.supervisor.spark_task import over_mark
from tonnage.testing.http_service import HTTPAnswer, times
from tonnage.testing.places import PlaceTrial
from tonnage.testing.spark_master import WORKER, FakeMaster, fake_master

TERMS: dict[str, Any] = {
    "kind": "spark", "address": "spark://head:7077", "bucket": "s3://runs/tonnage", "cores": 4, "memory_gib": 4,
    "gpus": 2, "time_limit_minutes": 240,
}  # fmt: skip
TAG = "tonnage:0a1b2c3d:0123456789ab:first.run"
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first.run", token="0123456789ab", home="0a1b2c3d", owner="me", tag=TAG,
    command=("python", "-m", "tonnage.supervisor.bucket", "--run", "/a b"), env={"HF_HOME": "/c"},
    tags={"tonnage-run": "first.run"}, max_cost_usd=None,
)  # fmt: skip


def place(**changed: Any) -> SparkPlace:
    return SparkPlace(**(TERMS | changed))


# what is sent


def test_the_whole_request() -> None:
    """One task an executor, each with all its cores and GPUs; the class has the tag; the work follows `--`."""
    [request] = SparkJobs(name="s", place=place(nodes=3)).requests(WORK)
    body, words = request.body, request.body["appArgs"]
    settings = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf")
    assert settings["spark.cores.max"] == "12"
    assert {settings[f"spark.{one}.resource.gpu.amount"] for one in ("executor", "task")} == {"2"}
    assert (settings["spark.executor.cores"], settings["spark.task.cpus"]) == ("4", "4")
    assert (settings["spark.executor.memory"], settings["spark.stage.maxConsecutiveAttempts"]) == ("4096m", "1")
    assert settings["spark.executorEnv.HF_HOME"] == "/c"
    assert body["mainClass"] == "tonnage.0a1b2c3d.0123456789ab.first.run"
    assert body["appResource"] == "s3a://runs/tonnage/0a1b2c3d/first.run/starter-0123456789ab.jar"
    assert body["sparkProperties"]["spark.driver.supervise"] == "true"
    script = next(at for at, word in enumerate(words) if word.endswith("/driver.py"))
    asked = arguments_of(words[script + 1 :])
    assert (asked.tag, asked.nodes, asked.resource, asked.limit_s) == (TAG, 3, "gpu", 14400.0)
    assert tuple(asked.command) == WORK.command


def test_what_the_place_says_goes_before() -> None:
    """Settings of Spark, and the patch of the request."""
    changed = place(settings={"spark.executor.memory": "1g"}, patch={"create": {"sparkProperties": {"spark.x": "1"}}})
    [request] = SparkJobs(name="s", place=changed).requests(WORK)
    assert "spark.executor.memory=1g" in request.body["appArgs"]
    assert request.body["sparkProperties"]["spark.x"] == "1"
    assert request.body["sparkProperties"]["spark.driver.cores"] == "1"
    [request] = SparkJobs(name="s", place=place(gpus=0)).requests(WORK)
    assert not [word for word in request.body["appArgs"] if "resource.gpu" in word]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"address": "head:7077"}, "address"), ({"address": "spark://a:1,b:2"}, "address"),
        ({"address": "yarn"}, "address"), ({"bucket": "/shared/runs"}, "bucket"), ({"secret": "keys"}, "secret"),
        ({"bucket": "az://c@a.blob.core.windows.net/x"}, "code_url"),
        ({"settings": {"executor.memory": "1g"}}, "settings"),
        ({"nodes": 0}, "nodes"), ({"web": "http://head:8080/"}, "web"),
    ],
)  # fmt: skip
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        place(**changed)


def test_addresses() -> None:
    """Those that are left out are a master's usual ones; the bucket is named in Hadoop's words."""
    assert (place().rest_url, place().web_url) == ("http://head:6066", "http://head:8080")
    assert place(web="https://head/spark").web_url == "https://head/spark"
    assert place(bucket="file:///shared").hadoop_url == "file:///shared"
    azure = place(bucket="az://c@a.blob.core.windows.net/x", code_url="abfss://c@a.dfs.core.windows.net/x")
    assert azure.hadoop_url == "abfss://c@a.dfs.core.windows.net/x"


def test_the_class_that_starts_a_driver() -> None:
    """A class of Java 5 with the tag as its name and one method, in a jar of the same bytes each time."""
    jar = starter(TAG)
    assert jar == starter(TAG)
    assert tag_in(class_name(TAG)) == TAG
    with zipfile.ZipFile(io.BytesIO(jar)) as archive:
        [inside] = archive.namelist()
        content = archive.read(inside)
    assert inside == "tonnage/0a1b2c3d/0123456789ab/first/run.class"
    assert struct.unpack(">IHH", content[:8]) == (0xCAFEBABE, 0, 49)
    assert b"org/apache/spark/deploy/SparkSubmit" in content


# several executors


JOB = Job(
    runner="torchrun", processes=4, signal_to="children",
    argv=("python", "-m", "torch.distributed.run", "--standalone", "--nnodes", "1", "--nproc-per-node", "4", "-m", "w"),
)  # fmt: skip


def test_processes_are_shared_out() -> None:
    """Each executor's agent has its part, and reads from its variables where the others are."""
    job = across_by_environment(JOB, nodes=2)
    assert job.argv == ("python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "w")
    assert job.signal_to == "nobody"
    first, second = (meeting_variables("gpu1:4000", at=at, nodes=2, name="a-1") for at in (0, 1))
    assert {first.pop("PET_RDZV_CONF"), second.pop("PET_RDZV_CONF")} == {"is_host=1", "is_host=0"}
    assert first == second
    assert meeting_variables("", at=0, nodes=1, name="a-1") == {}
    assert over_mark("/runs/a", "t", 1) != over_mark("/runs/a", "t", 2)


@pytest.mark.parametrize(
    ("job", "said"),
    [(JOB, "4 processes cannot be shared out evenly over 3 machines"),
     (replace(JOB, runner="local", argv=("python", "-m", "w")), "the runner 'local' works on one machine")],
)  # fmt: skip
def test_what_cannot_be_shared_out(job: Job, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        across_by_environment(job, nodes=3)
    assert raised.value.hint


# what a master tells


@pytest.mark.parametrize(
    ("state", "said", "phase", "reason"),
    [
        ("SUBMITTED", {}, "queued", "no worker has room for its driver"),
        ("RELAUNCHING", {"phase": "running"}, "queued", "the worker of its driver was lost"),
        ("RUNNING", {}, "provisioning", ""),
        ("RUNNING", {"phase": "queued", "reason": "1 of 2 are there"}, "queued", "1 of 2 are there"),
        ("RUNNING", {"phase": "running", "node": "gpu1"}, "running", ""),
        ("RUNNING", {"phase": "of a later version"}, "provisioning", ""),
        ("KILLED", {"phase": "running"}, "cancelled", ""),
        ("FINISHED", {"phase": "ended", "reason": "its 5 minutes are over"}, "ended", "its 5 minutes are over"),
        ("ERROR", {}, "ended", ""),
    ],
)  # fmt: skip
def test_a_driver_and_its_word(state: str, said: dict[str, Any], phase: str, reason: str) -> None:
    """The master says RUNNING while the driver waits for executors."""
    found = view_of({"id": "driver-1", "state": state}, said)
    assert (found.phase, found.reason, found.word) == (Phase(phase), reason, state)


def worker(cores: int = 8, gib: int = 16, gpus: int = 8, state: str = "ALIVE") -> dict[str, Any]:
    return WORKER | {"cores": cores, "memory": gib * 1024, "state": state,
                     "resources": {"gpu": {"addresses": [""] * gpus}} if gpus else {}}  # fmt: skip


@pytest.mark.parametrize(
    ("terms", "workers", "said"),
    [
        ({}, [worker()], None),
        ({"nodes": 2}, [worker(), worker()], None),
        ({"nodes": 2}, [worker()], "no worker has room for the driver"),
        ({"nodes": 2}, [worker(cores=9)], None),
        ({}, [worker(cores=4)], "no worker has room for the driver"),
        ({}, [worker(cores=4), worker(cores=1, gpus=0)], None),
        ({"nodes": 3}, [worker()], "hold 2 executors of 4 cores, 4 GiB and 2 gpu, 3 are needed"),
        ({"resource": "fpga"}, [worker()], "hold 0 executors"),
        ({"memory_gib": 17}, [worker()], "hold 0 executors"),
        ({}, [worker(state="DEAD")], "its 0 living workers hold 0 executors"),
        ({"driver_memory_gib": 20}, [worker(), worker()], "no worker has room for the driver"),
    ],
)
def test_what_no_workers_hold_is_refused(
    terms: dict[str, Any], workers: list[dict[str, Any]], said: str | None
) -> None:
    """A master would let it wait forever."""
    found = list(against_workers("s", place(**terms), workers))
    assert len(found) == (said is not None)
    assert all(said in one.message and one.kind == "refused" and one.hint for one in found if said)


@pytest.mark.parametrize(
    ("version", "kinds"), [("3.5.9", []), ("2.4.8", ["refused"]), ("", ["refused"]), ("4.1.0", ["doubtful"])]
)
def test_versions(version: str, kinds: list[str]) -> None:
    assert [one.kind for one in against_version(version)] == kinds


def test_what_matters_of_a_failed_stage() -> None:
    said = "An error occurred.\n: SparkException: Job aborted\nExecutorLostFailure (executor 0) Reason: gone"
    assert (reason_in(said), reason_in(""), reason_in("\n one \n two")) == ("gone", "no reason", "one")


# the driver


def test_a_driver_goes_on_from_the_lease(tmp_path: Path) -> None:
    """The epoch of its last start; nothing where a newer submission has the run."""
    objects = FolderObjects(tmp_path)
    objects.write("0a1b2c3d/first.run/lease.json", b'{"token": "0123456789ab", "epoch": 4}')
    assert epoch_before(objects, "0a1b2c3d/first.run", "0123456789ab") == 4
    assert epoch_before(objects, "0a1b2c3d/first.run", "another") is None
    assert epoch_before(objects, "0a1b2c3d/other", "0123456789ab") is None


def drive_once(bucket: Path, machines: Any) -> str:
    words = ["--tag", TAG, "--store", f"file://{bucket}", "--nodes", "1", "--mount", "/m", "--limit-s", "60",
             "--notice-s", "5", "--", "work"]  # fmt: skip
    assert drive(arguments_of(words), machines) == 0
    said = FolderObjects(bucket).read("0a1b2c3d/first.run/driver-0123456789ab.json")
    assert said is not None
    return said.content.decode()


def test_a_driver_that_cannot_begin_is_not_launched_for_ever(tmp_path: Path) -> None:
    """The master launches it again after any fault; after so many it ends with the reason."""
    FolderObjects(tmp_path).write("0a1b2c3d/first.run/lease.json", b'{"token": "0123456789ab"}')

    def broken(_: Any) -> Any:
        raise RuntimeError("no Java")

    for _ in range(MOST_LAUNCHES):
        with pytest.raises(RuntimeError, match="no Java"):
            drive_once(tmp_path, broken)
    assert f"its driver was launched {MOST_LAUNCHES} times: RuntimeError: no Java" in drive_once(tmp_path, broken)


def test_a_driver_of_an_older_submission_does_nothing(tmp_path: Path) -> None:
    FolderObjects(tmp_path).write("0a1b2c3d/first.run/lease.json", b'{"token": "newer"}')
    assert "a newer submission has the run" in drive_once(tmp_path, lambda _: pytest.fail("it started something"))


def test_launches_are_counted(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    DriverNote(objects, TAG).say("queued")
    assert DriverNote(objects, TAG).launches == 2


# requests


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_master(tmp_path / "spark") as found:
        yield found


def jobs_at(found: FakeMaster, folder: Path, **changed: Any) -> SparkJobs:
    terms = place(rest=found.url, web=found.url, bucket=f"file://{folder / 'bucket'}", **changed)
    return SparkJobs(name="s", place=terms, attempts=2)


@pytest.mark.heavy
def test_a_driver_is_made_once(master: FakeMaster, tmp_path: Path) -> None:
    """An answer that was lost, a driver that waits for a worker: it is found by the token in its class."""
    master.full = True
    master.after = [times(1, HTTPAnswer(status=503), "POST", "/create")]
    jobs = jobs_at(master, tmp_path)
    driver = jobs.send(jobs.requests(WORK), WORK.token)
    assert list(master.drivers) == [driver] == [jobs.find(WORK.token)]
    assert (jobs.view(driver).phase, jobs.find("another")) == (Phase.QUEUED, None)
    [tagged] = jobs.tagged(WORK.home)
    assert (tagged.job_id, tagged.tag) == (driver, TAG)
    assert jobs.tagged("another") == []
    jobs.end(driver, WORK.token)
    jobs.end(driver, WORK.token)
    assert (jobs.view(driver).phase, jobs.tagged(WORK.home)) == (Phase.CANCELLED, [])
    assert jobs.view("driver-of-another").phase is Phase.GONE


@pytest.mark.heavy
def test_what_a_master_refuses(master: FakeMaster, tmp_path: Path) -> None:
    jobs = jobs_at(master, tmp_path, patch={"create": {"entrypont": "x"}})
    with pytest.raises(TonnageError, match="Malformed request: entrypont"):
        jobs.send(jobs.requests(WORK), WORK.token)
    assert master.drivers == {}


@pytest.mark.heavy
def test_what_check_finds(master: FakeMaster, tmp_path: Path) -> None:
    """Address, state and version of the master, and its workers: each with what mends it."""

    def said(**changed: Any) -> str:
        found = list(jobs_at(master, tmp_path, **changed).questions())
        assert all(one.hint for one in found)
        return "; ".join(one.message for one in found)

    assert said() == ""
    master.version, master.status = "3.1.2", "STANDBY"
    assert "its Spark is 3.1.2, 3.2 is needed" in said()
    assert "is STANDBY" in said()
    assert "would wait forever" in said(gpus=9)
    master.before = [times(9, HTTPAnswer(status=404, content=b"<html>"), "GET", "/v1/")]
    assert "404" in said()
    master.before = [times(9, HTTPAnswer(document={"a": 1}), "GET", "/json")]
    assert "is not the page of a Spark master" in said()


@pytest.mark.heavy
def test_a_run_from_its_submission_to_its_end(master: FakeMaster, tmp_path: Path) -> None:
    """Through the folder that client and worker share; nothing of it is left."""
    terms = place(rest=master.url, web=master.url, bucket=f"file://{tmp_path / 'bucket'}", cores=1, memory_gib=1,
                  grace_s=8, exchange_s=0.2, mount=str(tmp_path / "there"))  # fmt: skip
    runs = SparkRuns(kind="spark", name="s", place=terms, cloud=SparkJobs(name="s", place=terms, attempts=2))
    trial = PlaceTrial(executor=runs, home=tmp_path / "here")
    folder = trial.write("whole")
    job = trial.start(folder, steps=400, step_s=0.01, checkpoint_every=20)
    trial.wait(lambda: trial.status(folder).status.ended or folder.state().step > 5)
    assert runs.submit(trial.submission(folder, steps=400), folder) == job
    runs.stop(folder, by="test", reason="asked for")
    trial.wait(lambda: trial.status(folder).status.ended)
    state = folder.state()
    assert (state.state.value, state.checkpoint_step) == ("stopped", state.step)
    runs.teardown(folder)
    assert (folder.checkpoints / f"step-{state.step:08d}").is_dir()
    assert len(master.drivers) == 1
    assert runs.orphans(folder.path.parent, end=False) == ()
    left = [key for key in FolderObjects(tmp_path / "bucket").sizes("") if not key.startswith(("objects/", "code/"))]
    assert [key.rpartition("/")[2] for key in left] == ["lease.json"]
