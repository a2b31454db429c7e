"""The parts of SSH places without a server: what the machine is told, what it tells, what it must not be able to do."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.layout import artifact_names
from tonnage.places.file import SSHPlace, read_places
from tonnage.places.ssh import agent, mirror
from tonnage.places.ssh.line import SSHConnection
from tonnage.places.ssh.questions import against
from tonnage.places.ssh.shipping import inputs_of, own_code, spec_there, wheels
from tonnage.runs import RunFolder, RunSpec, log_parts
from tonnage.runs.spec import DataSource, DataSpec, FilePrint
from tonnage.supervisor import pod
from tonnage.supervisor.shim import LogKeeper

SEEN = {
    "time": 0.0, "python": "3.11.7", "missing": [], "writable": True, "free_bytes": 1 << 40, "cores": 8,
    "memory_bytes": 64 << 30, "load": 0.1, "gpus": [["H100", 81559.0, 4.0]] * 8, "runs": [],
    "driver": "580.95.05", "packages": {"torch": "2.9.0+cu128"},
}  # fmt: skip


def place(**given: Any) -> SSHPlace:
    terms = {"kind": "ssh", "host": "box", "folder": "/home/me/t", "cores": 8, "memory_gib": 64, "gpus": 8}
    return SSHPlace(**(terms | given))


def ask(verb: str, folder: Path, body: bytes = b"", **request: Any) -> tuple[dict[str, Any], bytes]:
    """One request to the agent in this process."""
    out = io.BytesIO()
    agent.main({"verb": verb, "folder": str(folder), **request}, io.BytesIO(body), out)
    mark, answer, rest = out.getvalue().split(b"\n", 2)
    assert mark.decode() == agent.MARK
    return json.loads(answer), rest


@pytest.mark.parametrize(
    ("seen", "given", "said", "mends"),
    [
        ({}, {}, None, None),
        ({"python": "3.8.10"}, {}, "3.11 is needed", "python"),
        ({"missing": ["psutil"]}, {}, "lacks psutil", "pip install"),
        ({"missing": ["torch"]}, {}, "most tasks need", "pip install"),
        ({"writable": False}, {}, "cannot be written", "install -d"),
        ({"free_bytes": 1 << 20}, {}, "0.00 GiB are free", "du -xsh"),
        ({"skew": 3600.0}, {}, "3600 s ahead of ours", "set-ntp"),
        ({"skew": -90.0}, {}, "90 s behind ours", "set-ntp"),
        ({"cores": 4}, {}, "4 cores, 8 are written", "places.box.cores"),
        ({"memory_bytes": 32 << 30}, {}, "32.0 GiB, 64", "memory_gib"),
        ({"gpus": None}, {}, "no nvidia-smi", "driver"),
        ({"gpus": [["H100", 81559.0, 4.0]]}, {}, "1 GPU, 8", "nvidia-smi -L"),
        ({"gpus": [["T4", 15360.0, 4.0]] * 8}, {"gpu_memory_gib": 80}, "less memory", "gpu_memory_gib"),
        ({"gpus": [["H100", 81559.0, 70000.0]] * 8}, {}, "8 GPUs are in use", "share = true"),
        ({"driver": "570.26", "packages": {"torch": "2.12.0+cu130"}}, {}, "CUDA 13 needs 580.65.06", "docs.nvidia.com"),
        ({"driver": None}, {}, "not known which driver they have", "places.box.driver"),
        ({"packages": {}}, {}, "not known which CUDA PyTorch has", "places.box.cuda"),
        ({"driver": "580.95.05", "packages": {}}, {"cuda": "12.8"}, None, None),
        ({"runs": ["tonnage:a:b:other"]}, {}, "1 run already: other", "share = true"),
        ({"load": 20.0}, {}, "load of 20.0", "uptime"),
        ({"load": 20.0, "runs": ["tonnage:a:b:other"]}, {"share": True}, None, None),
    ],
)
def test_what_stands_against_a_run(seen: dict[str, Any], given: dict[str, Any], said: str, mends: str) -> None:
    """Each fault of a machine is found alone, with what mends it; a machine as it is written has none."""
    line = SSHConnection(name="box", place=place(**given))
    told = SEEN | {key: value for key, value in seen.items() if key != "skew"}
    found = list(against(line, told, skew_s=seen.get("skew", 1.0)))
    assert [said in one.message and mends in one.hint for one in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("ssh: connect to host box port 22: Connection refused", "unreachable"),
        ("ssh: Could not resolve hostname box: Name or service not known", "unreachable"),
        ("me@box: Permission denied (publickey).", "refused"),
        ("No ED25519 host key is known for box and you have requested strict checking.\nHost key verification failed.",
         "key unknown"),
        ("@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.", "key changed"),
    ],
)  # fmt: skip
def test_what_ssh_says(words: str, why: str) -> None:
    """OpenSSH's own words, each kind with the command that mends it."""
    fault = SSHConnection(name="box", place=place())._cut(words, words)
    assert fault.why == why
    assert "`" in (fault.hint or "")


def test_the_command_checks_host_keys_and_asks_nothing() -> None:
    """Whatever is written down of the machine; what is left out is left to ~/.ssh/config."""
    command = " ".join(SSHConnection(name="box", place=place(jump="me@gate", port=2222, user="me")).command)
    for option in ("StrictHostKeyChecking=yes", "BatchMode=yes", "-J me@gate", "-p 2222", "-l me"):
        assert option in command
    assert " -i " not in command


@pytest.mark.parametrize(("key", "value"), [("folder", "there"), ("host", "-oProxyCommand=x"), ("port", 0)])
def test_a_place_that_cannot_be(key: str, value: Any, tmp_path: Path) -> None:
    """A relative folder, a host that ssh would read as an option."""
    file = tmp_path / "places.toml"
    terms = {"host": "box", "folder": "/t", "cores": 1, "memory_gib": 1} | {key: value}
    file.write_text('[places.box]\nkind = "ssh"\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in terms.items()))
    assert f"`places.box.{key}`" in str(read_places((file,)).faults["box"])


def test_paths_of_the_specification_are_those_of_the_copies(tmp_path: Path) -> None:
    """Rows by a pattern, weights in a folder, prints: all name the copies; what is behind a network stays."""
    for name in ("rows-1.csv", "rows-2.csv"):
        (tmp_path / name).write_text(name)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"w")
    rows = DataSource(location=str(tmp_path / "rows-*.csv"), format="csv")
    prints = (FilePrint(path=str(tmp_path / "rows-1.csv"), bytes=10, sha256="a"),)
    held = DataSource(location="hf://glue", format="hf")
    spec = RunSpec(
        name="a", task="mlp", data=DataSpec(train=rows, test=held, prints=prints), weights=str(tmp_path / "weights")
    )
    there = spec_there(spec, "/t/run")
    assert there.data.train.location == f"/t/run/inputs{tmp_path}/rows-*.csv"
    assert there.data.prints is not None
    assert there.data.prints[0].path == f"/t/run/inputs{tmp_path}/rows-1.csv"
    assert there.weights == f"/t/run/inputs{tmp_path}/weights"
    assert there.data.test == held
    assert set(inputs_of(spec)) == {
        f"inputs{tmp_path}/{name}" for name in ("rows-1.csv", "rows-2.csv", "weights/model.safetensors")
    }


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    """It is said before anything is sent."""
    with pytest.raises(InputError, match="is not a wheel"):
        wheels([str(tmp_path / "dist.whl")])


@pytest.mark.heavy
def test_the_package_is_the_same_bytes_twice_and_runs_from_its_folder(tmp_path: Path) -> None:
    """As an object it is sent once; unpacked it is importable."""
    code = own_code()
    assert own_code().digest == code.digest == hashlib.sha256(code.content).hexdigest()
    ask("want", tmp_path, run=str(tmp_path / "run"), objects=[code.digest])
    ask("take", tmp_path, code.content, parts=[[code.digest, 0, code.size]])
    agent.unpack(str(tmp_path), code.digest)
    words = [sys.executable, "-c", "import tonnage; print(tonnage.__file__)"]
    env = {"PYTHONPATH": str(tmp_path / "code" / code.digest)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path / "code"))


def test_objects_arrive_whole_or_as_a_part(tmp_path: Path) -> None:
    """A cut leaves a part; the rest makes it whole; bytes that are not what their name says are thrown away."""
    content = b"0123456789" * 100
    name = hashlib.sha256(content).hexdigest()
    run = str(tmp_path / "run")
    assert ask("want", tmp_path, run=run, objects=[name])[0]["here"] == {name: 0}
    cut, _ = ask("take", tmp_path, content[:300], parts=[[name, 0, len(content)]])
    assert cut["refused"] == "cut"
    assert ask("want", tmp_path, run=run, objects=[name])[0]["here"] == {name: 300}
    late, _ = ask("take", tmp_path, content, parts=[[name, 0, len(content)]])
    assert late["refused"] == "changed"  # another client was faster
    ask("take", tmp_path, content[300:], parts=[[name, 300, len(content) - 300]])
    assert ask("want", tmp_path, run=run, objects=[name])[0]["here"] == {name: -1}
    other = hashlib.sha256(b"other").hexdigest()
    assert ask("take", tmp_path, b"wrong", parts=[[other, 0, 5]])[0]["refused"] == "damaged"
    assert ask("want", tmp_path, run=run, objects=[other])[0]["here"] == {other: 0}


def started(tmp_path: Path, *, token: str, number: int, command: list[str]) -> dict[str, Any]:
    files = [["journal.jsonl", base64.b64encode(b'{"kind": "submitted"}\n').decode()]]
    answer, _ = ask(
        "start", tmp_path, run=str(tmp_path / "run"), token=token, number=number, tag=f"tonnage:0:{token}:run",
        inputs=[], copies=[], code=[], files=files, command=command, env={},
    )  # fmt: skip
    return answer


@pytest.mark.heavy
def test_one_submission_starts_one_supervisor(tmp_path: Path) -> None:
    """Sent again it finds the first; an older one that arrives late is refused; one that dies says why."""
    counted = tmp_path / "count"
    command = ["sh", "-c", f"echo x >> {counted}"]
    first = started(tmp_path, token="a", number=2, command=command)
    assert started(tmp_path, token="a", number=2, command=command) == first
    assert counted.read_text() == "x\n"
    assert started(tmp_path, token="b", number=1, command=command)["refused"] == "superseded"
    broken = started(tmp_path, token="c", number=3, command=["sh", "-c", "echo no such module >&2; exit 1"])
    assert broken["refused"] == "start"
    assert "no such module" in broken["message"]


def test_a_log_of_two_gigabytes_is_not_copied_whole(tmp_path: Path) -> None:
    """Its end comes, from the beginning of a line, and how much did not."""
    run = tmp_path / "run"
    run.mkdir()
    with (run / "log.txt").open("wb") as file:
        file.truncate(2 << 30)  # a hole: it takes no room
        file.seek(0, 2)
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(1000)))
    answer, rest = ask("tell", tmp_path, run=str(run), offsets={}, chunk=1 << 20)
    assert answer["skipped"]["log.txt"] == f"tonnage: 2,147,483,649 bytes of the log stay there: {run}/log.txt\n"
    assert rest.startswith(b"line 0\n")
    assert rest.endswith(b"line 999\n")


def test_a_log_that_begins_anew_there_goes_on_here(tmp_path: Path) -> None:
    """Four parts are kept there; whoever follows has every byte, who comes too late learns how many have gone."""
    run = tmp_path / "run"
    run.mkdir()
    keeper, said, came, have = LogKeeper(run / "log.txt", largest_bytes=1000), b"", b"", 0
    for number in range(60):
        block = b"".join(b"block %02d line %d\n" % (number, line) for line in range(7))
        keeper.write(block)
        said += block
        more = number % 9 == 8
        while more:
            answer, rest = ask("tell", tmp_path, run=str(run), offsets={"log.txt": have}, chunk=600)
            assert answer["skipped"] == {}
            came, have, more = came + rest, have + len(rest), answer["more"]
    while have < len(said):
        answer, rest = ask("tell", tmp_path, run=str(run), offsets={"log.txt": have}, chunk=600)
        came, have = came + rest, have + len(rest)
    assert came == said
    assert (run / "log.3.txt").exists()
    assert not (run / "log.4.txt").exists()
    answer, rest = ask("tell", tmp_path, run=str(run), offsets={}, chunk=100_000)
    gone = len(said) - sum(path.stat().st_size for path in run.glob("log*.txt"))
    assert answer["skipped"]["log.txt"] == f"tonnage: {gone:,} bytes of the log have gone with its oldest parts\n"
    assert rest == said[gone : gone + (run / "log.3.txt").stat().st_size]


def test_a_log_is_read_while_it_begins_anew(tmp_path: Path) -> None:
    """Whoever reads it finds each byte at its place, at every step of a turn, and where one was cut short."""
    log = tmp_path / "log.txt"
    for number in range(3):
        log.write_text(f"part {number}\n")
        log_parts.turn(str(log))
    log.write_text("part 3\n")
    whole = b"part 0\npart 1\npart 2\npart 3\n"
    assert log_parts.read_at(str(log), 0, 100) == (0, whole)
    note = (tmp_path / "log.txt.turned").read_text()
    log_parts.turn(str(log))
    assert log_parts.read_at(str(log), 0, 100) == (7, whole[7:])  # the oldest has gone; the newest is not begun
    (tmp_path / "log.1.txt").rename(log)
    assert log_parts.read_at(str(log), 7, 100) == (7, whole[7:])  # the note is ahead of the log
    assert note != (tmp_path / "log.txt.turned").read_text()
    log_parts.turn(str(log))
    log.write_text("part 4\n")
    assert log_parts.read_at(str(log), 21, 100) == (21, b"part 3\npart 4\n")


def test_older_parts_of_logs_stay_where_they_are(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """One rule for machines by SSH, pods and buckets: who follows has their bytes, or was told that they stay."""
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    stays = {"log.1.txt", "log.3.txt", "log-machine-2.1.txt", "log.txt.turned", "log-machine-2.txt.turned"}
    comes = {"result.json", "log.txt.index", "notes.1.txt"}
    for name in stays | comes:
        (tmp_path / name).write_text("x")
    by_ssh = {one[0] for one in ask("list", tmp_path, run=str(tmp_path))[0]["files"]}
    assert pod.main(["--pack", "--run", str(tmp_path)]) == 0
    with tarfile.open(fileobj=io.BytesIO(capfdbinary.readouterr().out)) as archive:
        by_pod = set(archive.getnames())
    assert by_ssh == by_pod == set(artifact_names(folder)) == comes


def test_what_a_dead_client_had_appended_is_not_there_twice(tmp_path: Path) -> None:
    """Bytes written and not noted are written again in their place; the journal keeps the client's own lines."""
    folder = RunFolder(tmp_path)
    noted = mirror.Mirror(token="a")
    for _ in range(2):  # the second time as a client that did not see the first's note
        mirror.append_grown(folder, noted, "log.txt", 0, b"one\ntwo\n")
        mirror.append_grown(folder, noted, "journal.jsonl", 0, b'{"n": 1}\n{"n": 2}\n{"n"')
        with folder.journal_file.open("ab") as file:
            file.write(b'{"mine": 1}\n')
    assert folder.log_file.read_bytes() == b"one\ntwo\n"
    assert folder.journal_file.read_bytes().split() == b'{"n": 1}\n{"n": 2}\n{"mine": 1}\n{"mine": 1}\n'.split()
    known = mirror.read_mirror(folder)
    assert known is not None
    assert known.there["journal.jsonl"] == len(b'{"n": 1}\n{"n": 2}\n')  # the cut line comes whole next time


@pytest.mark.parametrize("inside", ["../../.ssh/authorized_keys", "/etc/passwd", "model/../../x"])
def test_a_machine_names_no_file_outside_the_folder(inside: str) -> None:
    """What the other side says is not believed."""
    with pytest.raises(TonnageError, match="outside"):
        mirror._safe(inside)


class AgentHere:
    """A line whose other end is the agent in this process."""

    name = "box"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, verb: str, request: dict[str, Any]) -> Any:
        answer, rest = ask(verb, self.folder, **request)
        source = io.BytesIO(rest)

        def frames() -> Iterator[tuple[str, int, int, Iterator[bytes]]]:
            for name, offset, size in answer["frames"]:
                yield name, offset, size, iter([source.read(size)])

        return SimpleNamespace(answer=answer, frames=frames, close=lambda: None)


def test_files_of_one_content_all_come(tmp_path: Path) -> None:
    """As the best and the last weights of a run are; what a broken transfer left is not brought again."""
    there, here = tmp_path / "there", RunFolder(tmp_path / "here")
    for name in ("model/best.bin", "model/last.bin", "model/empty", "model/none"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(b"weights" if name.endswith("bin") else b"")
    here.path.mkdir()
    line = cast(SSHConnection, AgentHere(tmp_path))
    assert mirror.fetch_made(line, here, str(there)) == 4
    brought = {one.name: one.read_bytes() for one in (here.path / "model").iterdir()}
    assert brought == {"best.bin": b"weights", "last.bin": b"weights", "empty": b"", "none": b""}
    assert mirror.fetch_made(line, here, str(there)) == 0
