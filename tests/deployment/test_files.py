"""Deployment files: units that systemd takes, manifests that an API server would take, versions pinned."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tonnage
from tonnage.deployment.brought import bring
from tonnage.deployment.described import described, require_known_version
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
def test_systemd_takes_the_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]) -> None:
    """By systemd-analyze, where it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / args[1]).write_text("rules: {}\n") if args[1].endswith(".yaml") else None
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
        ("one", ("gateway", "/f"), {}, "the port of a gateway is in its file"),
        ("one", ("ui",), {"kind": "kubernetes"}, "in a container the page is reached from outside"),
        ("one", ("backup", "/b"), {"kind": "compose", "every_s": 9.0}, "--every is of systemd's timers"),
        ("one", ("watch",), {"image": "x:latest"}, "names no version"),
        ("one", ("watch",), {"image": "host:5000/x"}, "names no version"),
        ("one", ("watch",), {"kind": "nomad"}, "found 'nomad' for --as"),
        ("one", ("watch",), {"version": "9.9.9"}, "version 9.9.9 is later than this one"),
        ("one", ("watch",), {"version": "newest"}, "'newest' is no version"),
        ("one", ("watch", "no-rules.yaml"), {}, "the file no-rules.yaml of `tonnage watch` is not here"),
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


GATEWAY = """\
listen: {host: 0.0.0.0, port: 8443}
models: {chat: [one]}
judges: {file: rules/judge.yaml}
keys: {me: {key: "file:/etc/keys/me"}}
"""
WHERE = {"systemd": "/etc/tonnage/one", "compose": "/etc/tonnage/files", "kubernetes": "/etc/tonnage/files"}


@pytest.fixture
def gateway_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a gateway's file, a file that it names, and one that nothing names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "in here").mkdir()
    (tmp_path / "chat.yaml").write_text(GATEWAY)
    (tmp_path / "rules" / "judge.yaml").write_text("a: 1\n")
    (tmp_path / "other.yaml").write_text("b: 1\n")
    return tmp_path


@pytest.mark.parametrize("kind", WHERE)
@pytest.mark.heavy  # systemd-analyze reads the unit, where it is installed
def test_the_files_that_a_command_reads_are_carried(gateway_here: Path, kind: str) -> None:
    """Those of its arguments and those that they name; the command names them where they will be. A secret's file is
    said, and not carried."""
    asked = tonnage.DeployOptions(kind=kind)
    made = tonnage.deploy_files("one", ("gateway", "chat.yaml"), gateway_here / "out", asked).found
    assert {one for one in made.files if one.startswith("files/")} == {"files/chat.yaml", "files/rules/judge.yaml"}
    assert (gateway_here / "out" / "files" / "chat.yaml").read_text() == GATEWAY
    main = (gateway_here / "out" / made.files[0]).read_text()
    assert f"{WHERE[kind]}/chat.yaml" in main
    assert "8443" in main
    assert "8080" not in main
    assert any("/etc/keys/me" in one and "not carried" in one for one in made.next_steps)
    if kind == "systemd":
        assert any(one.startswith("mkdir -p /etc/tonnage/one && cp -r files/. ") for one in made.next_steps)
    if kind == "compose":
        assert "./files:/etc/tonnage/files:ro" in yaml.safe_load(main)["services"]["one"]["volumes"]
    if kind == "kubernetes":
        objects = {one["kind"]: one for one in yaml.safe_load_all(main)}
        pod = objects["Deployment"]["spec"]["template"]["spec"]
        (volume,) = (one["configMap"] for one in pod["volumes"] if "configMap" in one)
        mounted = {one["path"]: objects["ConfigMap"]["data"][one["key"]] for one in volume["items"]}
        assert mounted == {"chat.yaml": GATEWAY, "rules/judge.yaml": "a: 1\n"}
        assert volume["name"] == objects["ConfigMap"]["metadata"]["name"]


@pytest.mark.parametrize(
    ("listen", "kind", "port", "said"),
    [
        ("{host: 127.0.0.1}", "compose", None, "reached from outside, and chat.yaml listens on 127.0.0.1"),
        ("{}", "kubernetes", None, "listens on 127.0.0.1"),
        ("{host: 127.0.0.1}", "systemd", None, None),
        ("{host: 0.0.0.0, port: 9000}", "compose", 9001, "--port says 9001, and chat.yaml listens on 9000"),
        ("{host: 0.0.0.0, port: 9000}", "compose", 9000, None),
        ("{prot: 1}", "compose", None, "`listen` cannot be read"),
        ("[1]", "systemd", None, "`listen` cannot be read"),
    ],
)
@pytest.mark.heavy  # systemd-analyze reads the unit, where it is installed
def test_where_a_gateway_listens_is_read_from_its_file(
    gateway_here: Path, listen: str, kind: str, port: int | None, said: str | None
) -> None:
    """Its port, which --port may repeat; in a container an address that is reached from outside."""
    (gateway_here / "chat.yaml").write_text(f"listen: {listen}\n")
    asked = tonnage.DeployOptions(kind=kind, port=port)
    if said is None:
        assert tonnage.deploy_files("one", ("gateway", "chat.yaml"), gateway_here / "out", asked).found.files
        return
    with pytest.raises(InputError, match=said) as caught:
        tonnage.deploy_files("one", ("gateway", "chat.yaml"), gateway_here / "out", asked)
    assert caught.value.hint
    assert not (gateway_here / "out").exists()


@pytest.mark.heavy  # systemd-analyze reads the unit, where it is installed
def test_a_service_that_only_its_container_reaches_is_refused(tmp_path: Path) -> None:
    """`--host 127.0.0.1` in a container; on a machine it stays as it is."""
    for args in (("serve", "model", "--host", "127.0.0.1"), ("serve", "model", "--host=localhost")):
        with pytest.raises(InputError, match="in a container it is reached from outside, and --host says"):
            tonnage.deploy_files("one", args, tmp_path / "compose", tonnage.DeployOptions(kind="compose"))
        folder = tmp_path / args[-1].strip("-")
        assert tonnage.deploy_files("one", args, folder, tonnage.DeployOptions(kind="systemd")).found.files


@pytest.mark.heavy  # systemd-analyze reads the unit, where it is installed
def test_a_folder_and_a_key_are_put_there_by_hand(gateway_here: Path) -> None:
    """A folder is not carried, whether it is a model or workloads; a bare first word may be a run; no TLS key is."""
    for name in ("tls.key", "tls.crt"):
        (gateway_here / name).write_text("secret")
    args = ("ui", "--folder", "rules", "--tls-key=tls.key", "--tls-cert", "tls.crt")
    made = tonnage.deploy_files("page", args, gateway_here / "ui").found
    assert made.files == ("tonnage-page.service",)
    assert made.next_steps[0].startswith("put rules, tls.key, tls.crt where")
    for target, said in (("rules", False), ("./rules", True)):
        found = tonnage.deploy_files("m", ("serve", target), gateway_here / f"out{said}").found
        assert (found.next_steps[0].startswith("put ")) is said


def test_files_that_cannot_be_carried(gateway_here: Path) -> None:
    """Two of one name, a file that is no text, one too large for a ConfigMap; an older version is pinned."""
    (gateway_here / "rules" / "chat.yaml").write_text("c: 1\n")
    (gateway_here / "picture.bin").write_bytes(b"\xff\xfe")
    (gateway_here / "large.json").write_text("x" * 1_000_001)
    for more, words in (
        (("--to", "rules/chat.yaml"), "two files of the command are named chat.yaml"),
        (("--to", "picture.bin"), "cannot be brought"),
        (("--to", "large.json"), "over 1 MB together"),
    ):
        with pytest.raises(InputError, match=words):
            bring(("gateway", "chat.yaml", *more), gateway_here, place="/there")
    for version, own in (("1.2.0", "1.2"), ("1.1.9", "1.2"), ("1.2rc1", "1.2.0")):
        require_known_version(version, own)
