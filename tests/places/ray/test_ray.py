"""Ray as a place, without Ray: what is sent, what `check` finds, how a driver starts its work again."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.ray.dashboard import RayDashboard, RayUnreachable, auth_token
from tonnage.places.ray.jobs import RayJobs, RayRuns, said_in, view_of
from tonnage.places.ray.place import RayPlace
from tonnage.places.ray.questions import against_nodes, against_versions
from tonnage.places.states import Phase
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.ray import RayMachines, actor_name, arguments_of
from tonnage.supervisor.starts import MOST_LOSSES, HeldMachine, Lost, Say, carry_out
from tonnage.testing.places import PlaceTrial
from tonnage.testing.ray_dashboard import TOKEN, FakeDashboard, fake_dashboard

TERMS: dict[str, Any] = {
    "kind": "ray", "address": "http://head:8265", "bucket": "s3://runs/tonnage", "cores": 16, "memory_gib": 200,
    "gpus": 8, "gpu": "H100", "time_limit_minutes": 240,
}  # fmt: skip
WORK = Work(
    name="t-first-0a1b2c3d-0123456789ab", run="first", token="0123456789ab", home="0a1b2c3d", owner="me",
    tag="tonnage:0a1b2c3d:0123456789ab:first", command=("python", "-m", "tonnage.supervisor.bucket", "--run", "/a b"),
    env={"HF_HOME": "/c"}, tags={"tonnage-run": "first", "tonnage-token": "0123456789ab"}, max_cost_usd=None,
)  # fmt: skip


def place(**changed: Any) -> RayPlace:
    return RayPlace(**(TERMS | changed))


# what is sent


def test_the_whole_request() -> None:
    """Its id is the submission's; the driver takes no CPU; the command is one that a shell takes apart again."""
    [request] = RayJobs(name="r", place=place()).requests(WORK)
    body = request.body
    assert body["submission_id"] == WORK.name
    assert (body["entrypoint_num_cpus"], body["metadata"], body["runtime_env"]["env_vars"]) == (0, WORK.tags, WORK.env)
    words = shlex.split(body["entrypoint"])
    assert words[:3] == ["python", "-m", "tonnage.supervisor.ray"]
    assert json.loads(words[words.index("--bundle") + 1]) == {"CPU": 16, "GPU": 8, "accelerator_type:H100": 0.001}
    assert tuple(words[words.index("--") + 1 :]) == WORK.command
    patched = place(patch={"jobs": {"runtime_env": {"pip": ["my-tasks"]}}})
    [request] = RayJobs(name="r", place=patched).requests(WORK)
    assert request.body["runtime_env"] == {**body["runtime_env"], "pip": ["my-tasks"]}


def test_several_nodes_are_asked_of_the_driver() -> None:
    """The command is one of several machines then; one node alone is not spoken of."""
    [request] = RayJobs(name="r", place=place(nodes=2)).requests(WORK)
    words = shlex.split(request.body["entrypoint"])
    assert words[words.index("--nodes") + 1] == "2"
    assert arguments_of(words[3:]).nodes == 2
    [alone] = RayJobs(name="r", place=place()).requests(WORK)
    assert "--nodes" not in alone.body["entrypoint"]


@pytest.mark.parametrize(
    ("terms", "bundle"),
    [
        ({}, {"CPU": 16, "GPU": 8, "accelerator_type:H100": 0.001}),
        ({"gpu": None}, {"CPU": 16, "GPU": 8}),
        ({"gpus": 0}, {"CPU": 16}),
        ({"gpus": 0, "resources": {"tpu": 4}}, {"CPU": 16, "tpu": 4}),
    ],
)
def test_what_a_run_takes_of_a_node(terms: dict[str, Any], bundle: dict[str, float]) -> None:
    assert place(**terms).bundle == bundle


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"address": "head:8265"}, "address"), ({"address": "ray://head:10001"}, "address"),
        ({"address": "http://head:8265/"}, "address"), ({"bucket": "/shared/runs"}, "bucket"),
        ({"secret": "keys"}, "secret"), ({"resources": {"tpu": 0}}, "resources"), ({"image": "a"}, "image"),
    ],
)  # fmt: skip
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        place(**changed)


def test_a_run_that_needs_secrets_says_where_they_are() -> None:
    """Named in the request alone; `nodes`: the nodes' environment has them."""
    assert place(secret="aws:keys").secret_address == "aws:keys"
    assert place(secret="nodes").secret_address is None


# tokens


def test_the_token_is_where_ray_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place's file, then RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, and Ray's own file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert auth_token(place()) is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of the file\n")
    assert auth_token(place()) == "of the file"
    (tmp_path / "other").write_text("of another")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "other"))
    assert auth_token(place()) == "of another"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the variable")
    assert auth_token(place()) == "of the variable"
    (tmp_path / "places").write_text("of the place")
    assert auth_token(place(token_file=str(tmp_path / "places"))) == "of the place"
    with pytest.raises(InputError, match="nowhere"):
        auth_token(place(token_file="/nowhere"))


# what Ray tells


@pytest.mark.parametrize(
    ("job", "said", "phase", "reason"),
    [
        ({"status": "PENDING", "message": "runtime env"}, {}, "provisioning", "runtime env"),
        ({"status": "RUNNING"}, {}, "provisioning", ""),
        ({"status": "RUNNING"}, {"phase": "queued", "reason": "no node has GPU: 8"}, "queued", "no node has GPU: 8"),
        ({"status": "RUNNING"}, {"phase": "running", "node": "gpu1"}, "running", ""),
        ({"status": "RUNNING"}, {"phase": "of a later version"}, "provisioning", ""),
        ({"status": "STOPPED"}, {"phase": "running"}, "cancelled", ""),
        ({"status": "SUCCEEDED", "message": "Job finished successfully."}, {"phase": "ended"}, "ended",
         "Job finished successfully."),
        ({"status": "FAILED", "message": "exit code 3, last available logs (truncated)", "driver_exit_code": 3}, {},
         "ended", "exit code 3"),
        ({"status": "FAILED", "message": "exit code 75"}, {"phase": "ended", "reason": "its 5 minutes are over"},
         "ended", "its 5 minutes are over"),
    ],
)  # fmt: skip
def test_a_job_and_its_drivers_word(job: dict[str, Any], said: dict[str, Any], phase: str, reason: str) -> None:
    """Ray says RUNNING while the driver waits for a node."""
    found = view_of(job, said)
    assert (found.phase, found.reason, found.word) == (Phase(phase), reason, job["status"])


def test_the_newest_whole_line_counts() -> None:
    log = 'Connecting\ntonnage-state {"phase": "queued"}\nnoise\ntonnage-state {"phase": "running"}\ntonnage-st'
    assert said_in(log) == {"phase": "running"}
    assert said_in("tonnage-state {") == {}


NODES = [
    {"state": "ALIVE", "resources_total": {"CPU": 64.0, "memory": 1.0}},
    {"state": "ALIVE", "resources_total": {"CPU": 8.0, "GPU": 8.0, "accelerator_type:H100": 1.0}},
    {"state": "DEAD", "resources_total": {"CPU": 64.0, "GPU": 8.0, "accelerator_type:H100": 1.0}},
]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"cores": 8}, None),
        ({"cores": 64, "gpus": 0}, None),
        ({}, "none of its 2 living nodes has CPU: 16, GPU: 8, accelerator_type:H100 together"),
        ({"gpus": 16}, "none of its 2 living nodes has GPU: 16"),
        ({"gpu": "A100"}, "none of its 2 living nodes has accelerator_type:A100"),
        ({"cores": 8, "resources": {"rack": 1}}, "none of its 2 living nodes has rack: 1"),
        ({"cores": 8, "gpus": 0, "nodes": 2}, None),
        (
            {"cores": 8, "nodes": 2},
            "2 nodes with CPU: 8, GPU: 8, accelerator_type:H100 are needed, and of its 2 living nodes 1 is such",
        ),
    ],
)
def test_what_no_node_has_is_refused(terms: dict[str, Any], said: str | None) -> None:
    """Ray would let it wait forever; where nodes may come it is doubtful alone."""
    found = list(against_nodes("r", place(**terms), NODES))
    assert [one.message for one in found] == ([] if said is None else [f"{said}: it would wait forever"])
    may_come = list(against_nodes("r", place(**terms, autoscales=True), NODES))
    assert {one.kind for one in may_come} == ({"doubtful"} if said else set())


@pytest.mark.parametrize(("ray", "python", "refused"), [
    ("2.60.0", "3.11.7", 0), ("3.0.0rc1", "3.13.0", 0), ("2.9.3", "3.11.7", 1), ("2.9.3", "3.8.1", 2)])  # fmt: skip
def test_versions(ray: str, python: str, refused: int) -> None:
    assert len(list(against_versions(ray, python))) == refused


# the driver


class Cluster:
    """Machines whose ends are told: an exit code, or `None` where it is lost; how long each works."""

    def __init__(self, *ends: tuple[int | None, float]) -> None:
        self.ends, self.now, self.started, self.slept = list(ends), 0.0, [], []  # type: ignore[var-annotated]

    @contextmanager
    def hold(self, epoch: int, say: Say) -> Iterator[HeldMachine]:
        say("provisioning", reason=str(epoch))
        yield self

    node = "gpu1"

    def work(self, words: Sequence[str], *, longest_s: float, notice_s: float) -> tuple[int, str]:
        code, works_s = self.ends.pop(0)
        self.started.append((list(words), longest_s, notice_s))
        self.now += min(works_s, longest_s)
        if works_s > longest_s:
            return WorkerExit.PREEMPTED, ""
        if code is None:
            raise Lost("the actor's node has died")
        return code, "Traceback\nImportError: no torch\n\n"


def carried(cluster: Cluster, limit_s: float = 3600.0) -> tuple[int, list[dict[str, str]]]:
    said: list[dict[str, str]] = []
    code = carry_out(
        cluster, ["work"], limit_s=limit_s, notice_s=60.0, clock=lambda: cluster.now, sleep=cluster.slept.append,
        say=lambda phase, **more: said.append({"phase": phase, **more}),
    )  # fmt: skip
    return code, said


def test_each_start_has_an_epoch_of_its_own() -> None:
    """A lost machine, one that is taken away, and an end; the time is that of all starts together."""
    cluster = Cluster((None, 1000.0), (WorkerExit.PREEMPTED, 1000.0), (0, 10.0))
    code, said = carried(cluster)
    assert code == 0
    assert [words[-2:] for words, _, _ in cluster.started] == [["--epoch", str(number)] for number in (1, 2, 3)]
    assert [longest_s for _, longest_s, _ in cluster.started] == [3600.0, 2600.0, 1600.0]
    reasons = [one["reason"] for one in said if one["phase"] == "queued"]
    assert reasons == ["", "the machine was lost: the actor's node has died", "gpu1 is taken away"]
    assert said[-1] == {"phase": "ended", "reason": ""}


@pytest.mark.parametrize("code", [1, WorkerExit.BAD_INPUT, WorkerExit.STOPPED, 137])
def test_an_end_is_no_loss(code: int) -> None:
    """Whatever it is, nothing is started again; its last words are told."""
    found, said = carried(Cluster((code, 1.0)))
    assert (found, said[-1]["reason"]) == (code, "ImportError: no torch")


def test_the_time_of_a_submission_ends_it() -> None:
    """Asked to save, it is not started again."""
    found, said = carried(Cluster((None, 30.0), (0, 1000.0)), limit_s=60.0)
    assert (found, said[-1]["reason"]) == (WorkerExit.PREEMPTED, "its 1 minutes are over")


def test_losses_in_a_row_end_it() -> None:
    """With longer and longer waits; a start that worked for long begins a new row."""
    found, said = carried(Cluster(*[(None, 1.0)] * 20))
    assert found == WorkerExit.PREEMPTED
    assert said[-1]["reason"].endswith(f"{MOST_LOSSES + 1} starts in a row were lost")
    long = Cluster(*[(None, 1.0)] * 5, (None, 700.0), *[(None, 1.0)] * 5, (0, 1.0))
    assert carried(long)[0] == 0
    assert (max(long.slept), long.slept[5]) == (32.0, 1.0)


class Nodes:
    """Answers of nodes as Ray gives them, and those that were asked to end."""

    def __init__(self, *said: tuple[int, str] | type[Lost] | None) -> None:
        self.said, self.ended, self.settled = list(said), list[int](), list[int]()
        self.actors = [self._actor(at) for at in range(len(self.said))]

    def _actor(self, at: int) -> Any:
        return SimpleNamespace(
            work=SimpleNamespace(remote=lambda _: at), end=SimpleNamespace(remote=lambda: self.ended.append(at))
        )

    def first_of(self, answers: list[int], longest_s: float) -> tuple[int, tuple[int, str]] | None:
        """Those that end by themselves in their order; one that does not does when it was asked to."""
        assert longest_s > 0
        for place, at in enumerate(answers):
            said = self.said[at]
            if isinstance(said, tuple):
                return place, said
            if said is Lost:
                raise Lost("the node died")
            if at in self.ended:
                return place, (75, "saved")
        return None

    def settle(self, answers: list[int], longest_s: float) -> None:
        """Noted."""
        self.settled += [*answers, round(longest_s)]

    def work(self) -> tuple[int, str]:
        """What the driver makes of them."""
        machines = RayMachines(cluster=self, actors=self.actors, node="a, b")  # type: ignore[arg-type]
        return machines.work(["run"], longest_s=60, notice_s=20)


def test_the_end_of_several_nodes_is_one() -> None:
    """Done where all are; that of one that failed goes before, and the others need not wait for it."""
    done = Nodes((0, "first"), (0, ""))
    assert (done.work(), done.ended) == ((0, "first"), [])
    assert Nodes((75, "saved"), (0, "")).work() == (75, "saved")
    failed = Nodes((1, "no module named x"), None)
    assert failed.work() == (1, "no module named x")
    assert (failed.ended, failed.settled) == ([0, 1], [1, 140])


def test_one_node_that_is_lost_ends_the_others() -> None:
    """They save in their notice, before the next start is made."""
    lost = Nodes(None, Lost)
    with pytest.raises(Lost, match="the node died"):
        lost.work()
    assert (lost.ended, lost.settled) == ([0, 1], [0, 1, 140])


def test_the_time_of_several_nodes_ends_all() -> None:
    late = Nodes(None, None)
    assert late.work() == (75, "saved")
    assert set(late.ended) == {0, 1}


def test_the_newest_actor_is_the_last_by_name() -> None:
    assert sorted(actor_name("a", epoch) for epoch in (1, 10, 9, 100))[-1] == actor_name("a", 100)


# requests


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDashboard]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    with fake_dashboard(tmp_path / "ray") as found:
        yield found


def jobs_at(found: FakeDashboard, **changed: Any) -> RayJobs:
    return RayJobs(name="r", place=place(address=found.url, cores=1, gpu=None, **changed), tries=3)


@pytest.mark.heavy
def test_a_job_is_sent_once(dashboard: FakeDashboard) -> None:
    """Sent again, or after an answer that was lost, it is the same; of another's id it says so."""
    jobs = jobs_at(dashboard)
    requests = jobs.requests(WORK)
    dashboard.lost = 1
    assert jobs.send(requests, WORK.token) == WORK.name
    assert jobs.send(requests, WORK.token) == WORK.name
    assert list(dashboard.jobs) == [WORK.name]
    assert sum(method == "PUT" for method, _ in dashboard.asked) == 1
    assert jobs.find(WORK.token) == WORK.name
    with pytest.raises(TonnageError, match="is not this run's"):
        jobs.send(requests, "of another")
    jobs.end(WORK.name, WORK.token)
    assert dashboard.jobs == {}
    jobs.end(WORK.name, WORK.token)
    assert jobs.view(WORK.name).phase is Phase.GONE
    with pytest.raises(TonnageError, match="unexpected keyword argument 'entrypont'"):
        jobs_at(dashboard, patch={"jobs": {"entrypont": "x"}}).send(
            jobs_at(dashboard, patch={"jobs": {"entrypont": "x"}}).requests(WORK), WORK.token
        )


@pytest.mark.heavy
def test_throttling_and_failures(dashboard: FakeDashboard) -> None:
    """What is only asked is asked again; what fails for good is an error with a hint."""
    waits: list[float] = []
    line = RayDashboard("r", jobs_at(dashboard).place, tries=4, sleep=waits.append)
    dashboard.failures = [429, 503, 500]
    assert line.json("GET", "/api/jobs/") == []
    assert waits == [0.5, 1.0, 2.0]
    dashboard.failures = [503] * 4
    with pytest.raises(RayUnreachable, match="503") as raised:
        line.json("GET", "/api/jobs/")
    assert raised.value.hint


@pytest.mark.heavy
def test_what_check_finds(dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, token, versions, nodes: each with what mends it."""

    def said(**changed: Any) -> str:
        found = list(jobs_at(dashboard, **changed).questions())
        assert all(one.hint for one in found)
        return "; ".join(one.message for one in found)

    assert said() == ""
    dashboard.python = "3.9.18"
    assert "its Python is 3.9.18" in said()
    dashboard.nodes = []
    assert "none of its 0 living nodes" in said()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    assert "does not know us: Forbidden" in said()
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", os.devnull + "-not-there")
    assert "Missing authentication token" in said()


@pytest.mark.heavy
def test_a_run_and_a_command_beside_it(dashboard: FakeDashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                       ) -> None:  # fmt: skip
    """From its submission to its end, through the folder that client and machine share; nothing of it is left."""
    terms = RayPlace(
        kind="ray", address=dashboard.url, bucket=f"file://{tmp_path / 'bucket'}", cores=1, memory_gib=1, grace_s=8,
        time_limit_minutes=5, exchange_s=0.2, mount=str(tmp_path / "there"), python="python",
    )  # fmt: skip
    runs = RayRuns(kind="ray", name="r", place=terms, cloud=RayJobs(name="r", place=terms))
    trial = PlaceTrial(executor=runs, home=tmp_path / "here")
    folder = trial.write("whole")
    trial.start(folder, steps=20_000, step_s=0.01, checkpoint_every=20)
    trial.wait(lambda: trial.status(folder).status.ended or folder.state().step > 5)
    assert runs.exec(folder, ["sh", "-c", "pwd; exit 7"]) == 7
    assert capsys.readouterr().out == f"{runs.folder_there(folder).path}\n"
    assert runs.orphans(folder.path.parent, end=True) == ()
    runs.stop(folder, by="test", reason="asked for")
    trial.wait(lambda: trial.status(folder).status.ended)
    state = folder.state()
    assert (state.state.value, state.checkpoint_step) == ("stopped", state.step)
    runs.teardown(folder)
    assert (folder.checkpoints / f"step-{state.step:08d}").is_dir()
    assert dashboard.jobs == {}
    (tmp_path / "there").rename(tmp_path / "gone")
    with pytest.raises(TonnageError, match="the run has no node now"):
        runs.exec(folder, ["true"])
