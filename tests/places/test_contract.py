"""The pure half of places: tokens and tags, the state machine, what Slurm answers, the script, places.toml."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from tonnage.errors import InputError, UnknownName
from tonnage.places.contract import home_mark, read_tag, tag_of, token_of
from tonnage.places.file import KINDS, SlurmPlace, find_place, model_of, read_places
from tonnage.places.slurm.answers import PHASES, parse_job, parse_partitions, parse_queue
from tonnage.places.slurm.questions import against
from tonnage.places.slurm.script import batch_script
from tonnage.places.states import JobView, Phase, PlaceStatus, joined
from tonnage.runs.states import RunReason, RunState, RunStatus

SINFO = """batch*|up|1:00:00|2|8|64000|gpu:h100:8
cpu|up|infinite|4|64|256000+|(null)
old|down|2-00:00:00|1|8|64000|gpu:8
"""


def place(**given: Any) -> SlurmPlace:
    return SlurmPlace(**({"kind": "slurm", "cores": 1, "memory_gib": 4, "time_limit_minutes": 10} | given))


def test_a_submission_has_one_token() -> None:
    """The same run and number give the same token; another number, run or home another; the tag is read back."""
    run = Path("/home/me/runs/a")
    assert token_of(run, 1) == token_of(run, 1)
    assert len({token_of(run, 1), token_of(run, 2), token_of(run.with_name("b"), 1)}) == 3
    assert read_tag(tag_of(run, 1)) == (home_mark(run.parent), token_of(run, 1), "a")


@pytest.mark.parametrize(
    ("phase", "run", "expected"),
    [
        (Phase.QUEUED, RunState(), "queued"),
        (Phase.QUEUED, RunState(state=RunStatus.RUNNING, attempt=1), "preempted"),  # its node was lost
        (Phase.PROVISIONING, RunState(), "provisioning"),
        (Phase.RUNNING, RunState(), "starting"),
        (Phase.RUNNING, RunState(state=RunStatus.RUNNING, attempt=1), "running"),
        (Phase.RUNNING, RunState(state=RunStatus.STOPPING, attempt=1), "stopping"),
        (Phase.RUNNING, RunState(state=RunStatus.RESTARTING, attempt=1, reason=RunReason.WORKER_KILLED), "running"),
        (Phase.RUNNING, RunState(state=RunStatus.RESTARTING, attempt=1, reason=RunReason.PREEMPTED), "preempted"),
        (Phase.ENDING, RunState(state=RunStatus.RUNNING, attempt=1), "stopping"),
        (Phase.ENDED, RunState(), "failed"),  # no supervisor was ever there
        (Phase.ENDED, RunState(state=RunStatus.RUNNING, attempt=1), "lost"),
        (Phase.ENDED, RunState(state=RunStatus.STOPPED, attempt=1), "stopped"),  # the place says FAILED
        (Phase.CANCELLED, RunState(), "cancelled"),
        (Phase.GONE, RunState(), "lost"),
        (Phase.GONE, RunState(state=RunStatus.SUCCEEDED, attempt=1), "succeeded"),  # forgotten by its place
    ],
)
def test_the_state_of_a_run_at_a_place(phase: Phase, run: RunState, expected: str) -> None:
    """What the place shows and what the journal tells make one state."""
    assert joined(JobView(phase=phase), run).status.value == expected


def test_a_state_for_every_pair() -> None:
    """Whatever place and journal say, there is a state; the journal's end is never overruled."""
    for phase in Phase:
        for state in RunStatus:
            found = joined(JobView(phase=phase), RunState(state=state, attempt=1)).status
            assert not state.ended or found is PlaceStatus(state.value)


def test_the_queue_as_slurm_prints_it() -> None:
    """States, reasons and tags are read; every documented state has its phase; one of a later version is no end."""
    text = "7|PENDING|Resources||tonnage:a:b:c\n8|RUNNING|None|gpu1|mine | yours\n9|NOVEL|None|gpu1|(null)\n"
    waiting, running, novel = parse_queue(text)
    assert (waiting.view.phase, waiting.view.reason, waiting.comment) == (Phase.QUEUED, "Resources", "tonnage:a:b:c")
    assert (running.view.nodes, running.view.reason, running.comment) == ("gpu1", "", "mine | yours")
    assert novel.view.phase is Phase.RUNNING
    assert {"PREEMPTED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"} <= {
        word for word, phase in PHASES.items() if phase is Phase.ENDED
    }


def test_a_job_as_scontrol_prints_it() -> None:
    """Exit code and signal as a shell writes them."""
    line = "JobId=3 JobName=x JobState={} Reason=None Dependency=(null) Requeue=1 ExitCode={} NodeList=gpu1"
    failed, killed = parse_job(line.format("FAILED", "76:0")), parse_job(line.format("FAILED", "0:9"))
    assert failed is not None
    assert killed is not None
    assert (failed.exit_code, failed.word, failed.nodes) == (76, "FAILED", "gpu1")
    assert killed.exit_code == 137
    assert parse_job("slurm_load_jobs error") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, []),
        ({"gpus": 8, "gpu": "h100"}, []),
        ({"gpus": 8}, []),
        ({"partition": "cpu", "time_limit_minutes": 100_000}, []),  # no limit
        ({"gpus": 9}, ["has 8 GPUs", "wait forever"]),
        ({"gpus": 1, "gpu": "h10"}, ["GPUs of the type 'h10'"]),
        ({"gpus": 1, "partition": "cpu"}, ["has 0 GPUs", "wait forever"]),
        ({"partition": "bach"}, ["no partition is named 'bach'"]),
        ({"partition": "old"}, ["is down"]),
        ({"time_limit_minutes": 61}, ["over the limit of batch: 60"]),
        ({"cores": 9}, ["has 8 cores", "wait forever"]),
        ({"memory_gib": 63}, ["62.5 GiB", "wait forever"]),
    ],
)
def test_what_stands_against_a_run(given: dict[str, Any], said: list[str]) -> None:
    """What Slurm would let wait forever is refused, each with the key that mends it."""
    found = list(against(place(**given), "cluster", parse_partitions(SINFO)))
    assert [expected in one.message for one, expected in zip(found, said, strict=True)] == [True] * len(said)
    assert all(one.hint for one in found)


def test_more_nodes_than_there_are() -> None:
    """Slurm lets such a job wait forever."""
    [found] = against(place(nodes=3), "cluster", parse_partitions(SINFO))
    assert found.message.startswith("2 nodes of batch have all that is asked for, 3 are needed")


def test_the_script_is_one_a_shell_takes(tmp_path: Path) -> None:
    """The same bytes twice, fit for `sh -n`, whatever the folder is called; all that was asked for is in it."""
    folder = tmp_path / "a home's runs" / "one"
    asked = place(gpus=8, gpu="h100", account="ml", setup=["module load cuda"], grace_s=30)
    script = batch_script(asked, folder, name="one", tag="tonnage:a:b:one", token="b")
    assert script == batch_script(asked, folder, name="one", tag="tonnage:a:b:one", token="b")
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    for option in ("--gres=gpu:h100:8", "--account=ml", "--requeue", "--signal=B:USR1@30", "--time=10"):
        assert f"#SBATCH {option}\n" in script
    assert "\nmodule load cuda\n" in script


def test_an_older_submission_does_nothing(tmp_path: Path) -> None:
    """The script ends before it starts anything where place.json has another token, or is gone."""
    script = batch_script(place(python="/bin/false"), tmp_path, name="one", tag="t", token="old")
    for content in (None, '{"token": "new"}'):
        if content is not None:
            (tmp_path / "place.json").write_text(content)
        done = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, "not the newest submission" in done.stdout) == (0, True)


def test_places_of_a_file(tmp_path: Path) -> None:
    """A place by NAME or KIND:NAME; what is wrong is named by its key."""
    file = tmp_path / "places.toml"
    file.write_text('[places.big]\nkind = "slurm"\ncores = 1\nmemory_gib = 4\ntime_limit_minutes = 10\n')
    known = read_places((file,))
    assert find_place("slurm:big", known, home=tmp_path) == find_place("big", known, home=tmp_path)
    with pytest.raises(UnknownName, match="no place is named 'bag'"):
        find_place("bag", known, home=tmp_path)
    with pytest.raises(InputError, match="of the kind slurm"):
        find_place("ssh:big", known, home=tmp_path)


GOOD = '[places.good]\nkind = "slurm"\ncores = 1\nmemory_gib = 4\ntime_limit_minutes = 10\n'


@pytest.mark.parametrize(
    ("table", "said", "hint"),
    [
        ('kind = "slurm"\ncors = 1\nmemory_gib = 4\ntime_limit_minutes = 9', "`places.bad.cors`: unknown key 'cors'",
         "did you mean 'cores'"),
        ('kind = "slurm"\ncores = 1\nmemory_gib = 4\ntime_limit_minutes = 9\npartitoin = "a"',
         "`places.bad.partitoin`: unknown key", "did you mean 'partition'"),
        ('kind = "slurm"\ncores = 0\nmemory_gib = "4"', "`places.bad.cores`: found 0, expected a number of at least 1",
         None),
        ('kind = "aci"', "Azure Container Instances offers no GPUs any more", 'kind = "azure" is a virtual machine'),
        ('kind = "slrum"', "places.bad.kind: no kind is named 'slrum'", "did you mean 'slurm'"),
        ("cores = 1", "places.bad.kind: is missing", "kinds: slurm, ssh, kubernetes"),
        ('kind = "ssh"\nhost = "a"\nfolder = "here"\ncores = 1\nmemory_gib = 1', "found 'here', expected text of the",
         None),
    ],
)  # fmt: skip
def test_a_wrong_table_is_its_own_place_s_fault(tmp_path: Path, table: str, said: str, hint: str | None) -> None:
    """It is named with its key and the nearest that there are; the other places are as good as before."""
    file = tmp_path / "places.toml"
    file.write_text(f"{GOOD}[places.bad]\n{table}\n")
    read = read_places((file,))
    assert (list(read.places), list(read.faults), read.names) == (["good"], ["bad"], ("good", "bad"))
    assert find_place("good", read, home=tmp_path)[1].cores == 1
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        find_place("bad", read, home=tmp_path)
    assert hint is None or hint in str(refused.value.hint)


def test_all_of_a_table_s_faults_are_said_at_once(tmp_path: Path) -> None:
    """Each with its key; a required key that is there misspelt is said once."""
    file = tmp_path / "places.toml"
    file.write_text('[places.bad]\nkind = "slurm"\ncors = 1\nmemory_gib = 4\ngpus = -1\n')
    lines = str(read_places((file,)).faults["bad"]).splitlines()
    assert [line.split("`")[1] for line in lines] == [
        "places.bad.cors", "places.bad.gpus", "places.bad.time_limit_minutes"
    ]  # fmt: skip


def test_the_project_s_wrong_table_hides_the_home_s(tmp_path: Path) -> None:
    """Of two places with one name the project's counts, right or wrong: nothing slides to the other."""
    home, project = tmp_path / "home.toml", tmp_path / "project.toml"
    home.write_text(GOOD)
    project.write_text('[places.good]\nkind = "slurm"\n')
    read = read_places((project, home))
    assert (read.places, list(read.faults)) == ({}, ["good"])


def test_the_blocks_of_the_page_load_as_they_are(tmp_path: Path) -> None:
    """What a reader pastes is a place, of every kind that there is."""
    page = (Path(__file__).parents[2] / "docs" / "places.md").read_text()
    blocks = [one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[places." in one]
    kinds = set()
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        read = read_places((file,))
        assert read.faults == {}, block
        kinds |= {place.kind for place in read.places.values()}
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_own_model(kind: str) -> None:
    """What is written down of a kind names it."""
    assert model_of(kind).model_fields["kind"].annotation == Literal[kind]


def test_one_place_is_read_without_the_others(tmp_path: Path) -> None:
    """A run at one place checks no other table; a name that is not there is told those that are."""
    (tmp_path / "places.toml").write_text(
        '[places.a]\nkind = "slurm"\ncores = 1\nmemory_gib = 1\ntime_limit_minutes = 1\n[places.b]\nkind = "slurm"\n'
    )
    only = read_places((tmp_path / "places.toml",), only="a")
    assert (tuple(only.places), tuple(only.faults)) == (("a",), ())
    every = read_places((tmp_path / "places.toml",))
    assert (tuple(every.places), tuple(every.faults)) == (("a",), ("b",))
    (tmp_path / "places.toml").write_text('[places.a]\nkind = "slurm"\n')
    assert tuple(read_places((tmp_path / "places.toml",), only="a").faults) == ("a",)
