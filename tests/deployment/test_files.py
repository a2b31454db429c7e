"""Deployment files: units that systemd takes, manifests that an API server would take, versions pinned."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tonnage
from tonnage.deployment.described import described
from tonnage.deployment.manifests import manifests
from tonnage.deployment.systemd import systemd_files
from tonnage.errors import InputError
from tonnage.places.kubernetes.checking.judging import judge

COMMANDS = (
    ("serve", "/models/reviews", "--replicas", "2..4", "--port", "8001"),
    ("ui", "--host", "0.0.0.0", "--behind-proxy"),
    ("gateway", "chat.yaml"),
    ("watch", "rules with blanks.yaml"),
)


@pytest.mark.parametrize("args", COMMANDS, ids=[one[0] for one in COMMANDS])
def test_what_stays(args: tuple[str, ...]) -> None:
    """Each kind of command has its unit, container and objects; what listens has its health check."""
    what = described(
        "one", args, version="1.2.3", port=8080 if args[0] == "gateway" else None, secrets=("KEY",), gpus=1
    )
    unit = systemd_files(what, program="/opt/t/bin/tonnage", home="/var/lib/t", user="t")["tonnage-one.service"]
    assert f"ExecStart=/opt/t/bin/tonnage {args[0]} " in unit
    assert ("deploy check http://127.0.0.1:" in unit) is (what.port is not None)
    assert "EnvironmentFile=/etc/tonnage/one.env" in unit
    for one in manifests(what):
        verdict = judge(one)
        assert verdict.accepted, verdict.refusals
    (deployment,) = (one for one in manifests(what) if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "tonnage-one:1.2.3"
    assert ("startupProbe" in container) is (what.port is not None)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_word_of_a_unit_is_read_as_it_was() -> None:
    """Blanks, percent signs and quotes of an argument do not become others' words."""
    what = described("one", ("watch", 'a "b" 100%.yaml'), version="1", port=None)
    unit = systemd_files(what, program="/p", home="/h", user="u")["tonnage-one.service"]
    assert 'ExecStart=/p watch "a \\"b\\" 100%%.yaml"\n' in unit


@pytest.mark.heavy
@pytest.mark.parametrize("args", COMMANDS, ids=[one[0] for one in COMMANDS])
def test_systemd_takes_the_units(tmp_path: Path, args: tuple[str, ...]) -> None:
    """By systemd-analyze, where it is."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    port = 8080 if args[0] == "gateway" else None
    made = tonnage.deploy_files("one", args, tmp_path, tonnage.DeployOptions(port=port)).found
    assert made.checks == ("systemd-analyze verify takes the units",)
    timer = tonnage.deploy_files("nightly", ("backup", "/backups"), tmp_path,
                                 tonnage.DeployOptions(every_s=86_400.0)).found  # fmt: skip
    assert timer.files == ("tonnage-nightly.service", "tonnage-nightly.timer")
    assert "ReadWritePaths=/var/lib/tonnage /backups\n" in (tmp_path / timer.files[0]).read_text()
    assert "OnUnitActiveSec=86400s" in (tmp_path / timer.files[1]).read_text()


def test_a_compose_file(tmp_path: Path) -> None:
    """Pinned, checked, with no more rights than it needs; the Dockerfile where no image was named."""
    asked = tonnage.DeployOptions(kind="compose", secrets=("KEY",), gpus=2)
    tonnage.deploy_files("reviews", ("serve", "run-7"), tmp_path / "own", asked)
    read = yaml.safe_load((tmp_path / "own" / "compose.yaml").read_text())["services"]["reviews"]
    assert read["command"] == ["serve", "run-7", "--host", "0.0.0.0"]
    assert "http://127.0.0.1:8000/health" in read["healthcheck"]["test"][-1]
    assert (read["ports"], read["env_file"], read["read_only"]) == (["127.0.0.1:8000:8000"], ["reviews.env"], True)
    assert f"tonnage[serve,load]=={tonnage.__version__}" in (tmp_path / "own" / "Dockerfile").read_text()
    tonnage.deploy_files("reviews", ("serve", "run-7"), tmp_path / "named",
                         tonnage.DeployOptions(kind="compose", image="registry.example.org/t:1"))  # fmt: skip
    assert not (tmp_path / "named" / "Dockerfile").exists()


@pytest.mark.parametrize(
    ("name", "args", "options", "words"),
    [
        ("one", ("plan", "x"), {}, "'plan' does not stay"),
        ("one", (), {}, "nothing is to be deployed"),
        ("One", ("watch",), {}, "cannot be the name"),
        ("one", ("backup", "/b"), {}, "it needs --every"),
        ("one", ("watch",), {"every_s": 9.0}, "--every is of a backup"),
        ("one", ("gateway", "f"), {}, "the port of a gateway is in its file"),
        ("one", ("ui",), {"kind": "kubernetes"}, "in a container the page is reached from outside"),
        ("one", ("backup", "/b"), {"kind": "compose", "every_s": 9.0}, "--every is of systemd's timers"),
        ("one", ("watch",), {"image": "x:latest"}, "names no version"),
        ("one", ("watch",), {"image": "host:5000/x"}, "names no version"),
        ("one", ("watch",), {"kind": "nomad"}, "found 'nomad' for --as"),
        ("one", ("serve", "m"), {"smoke": "/no/such/file"}, "smoke test /no/such/file cannot be read"),
    ],
)
def test_what_cannot_be_deployed(
    tmp_path: Path, name: str, args: tuple[str, ...], options: dict[str, object], words: str
) -> None:
    """Nothing is written."""
    with pytest.raises(InputError, match=words):
        tonnage.deploy_files(name, args, tmp_path / "none", tonnage.DeployOptions(**options))  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["serve", "run-7", "--replcas", "2..4"], "No such option: --replcas"),
        (["serve", "run-7", "more", "words"], "unexpected extra argument"),
        (["ui", "--prot", "80"], "No such option: --prot"),
        (["watch", "rules.yaml", "--bogus"], "No such option: --bogus"),
        (["backup", "/mnt/b", "--keep", "zero"], "Invalid value for '--keep'"),
    ],
)
def test_the_command_is_read_before_it_is_written_into_a_unit(tmp_path: Path, args: list[str], words: str) -> None:
    """A unit that cannot start is not written; what is right is."""
    every = ["--every", "1d"] if args[0] == "backup" else []
    command = [sys.executable, "-m", "tonnage", "deploy", "files", "one", "--to", str(tmp_path / "units")]
    done = subprocess.run([*command, *every, "--", *args], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (tmp_path / "units").exists()


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_a_smoke_test_is_kept_where_nothing_asks_it_by_itself(tmp_path: Path, kind: str) -> None:
    """Its file lies beside the others, and the next steps ask it."""
    smoke = tmp_path / "smoke.json"
    smoke.write_text('{"path": "/predict", "body": {"inputs": "a good book"}}')
    options = tonnage.DeployOptions(kind=kind, smoke=str(smoke))
    made = tonnage.deploy_files("one", ("serve", "run-7"), tmp_path / "out", options).found
    assert (tmp_path / "out" / "one.smoke.json").read_text() == smoke.read_text()
    assert made.next_steps[-1] == "tonnage deploy check http://127.0.0.1:8000 --smoke one.smoke.json"
