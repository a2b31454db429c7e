"""Images: what goes in follows from the workload; the Containerfile passes hadolint; builders get the right words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tonnage
from tonnage.errors import DataError, InputError
from tonnage.images.builders import BuildFailed, build_command, build_image, find_builder, push_command, run_command
from tonnage.images.containerfile import render_containerfile
from tonnage.images.recipe import ImageRecipe, bill_of_materials, image_recipe, installed_pins
from tonnage.reports.image import ImageReport, image_report

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGEST = "sha256:" + "a" * 64
ROCM = "https://example.org/whl/rocm6"


def recipe(file: str = "bert-finetune", **given: Any) -> ImageRecipe:
    """Of an example."""
    workload = tonnage.load_workload(EXAMPLES / f"{file}.tonnage.yaml")
    return image_recipe(workload, requirement="tonnage==0.1.0", version="0.1.0", **given)


@pytest.mark.parametrize(
    ("file", "device", "extras", "index", "swapped"),
    [
        ("bert-finetune", "cuda", ("train", "fetch"), False, False),
        ("bert-finetune", "cpu", ("train", "fetch"), True, False),
        ("gbm-5m-rows", None, ("tabular", "fetch"), False, False),
        ("gbm-5m-rows", "cuda", ("tabular", "fetch"), False, True),
        ("serve-bert", None, ("serve", "train", "fetch"), True, False),
    ],
)
def test_what_goes_in_follows_from_the_workload(
    file: str, device: Any, extras: tuple[str, ...], index: bool, swapped: bool
) -> None:
    """Extras by the kind of job; builds of PyTorch without CUDA for processors; XGBoost's own wheel on GPUs."""
    made = recipe(file, device=device)
    assert made.extras == extras
    assert (made.torch_index is not None) == index
    assert bool(made.swapped) == swapped
    text = render_containerfile(made, version="0.1.0")
    assert f"'tonnage[{','.join(extras)}]==0.1.0'" in text
    assert ("NVIDIA_VISIBLE_DEVICES" in text) == (made.device == "cuda")
    assert ("uninstall --yes xgboost-cpu" in text) == swapped


def test_an_image_runs_without_rights_and_services_say_how_they_are() -> None:
    """A user by number, which pods can be held to; a health check that asks the port; none for a job that ends."""
    service, job = (render_containerfile(recipe(name), version="0.1.0") for name in ("serve-bert", "bert-finetune"))
    assert "USER 1000:1000" in service
    assert "127.0.0.1:8000/health" in service
    assert "EXPOSE 8000" in service
    assert "HEALTHCHECK NONE" in job
    assert "EXPOSE" not in job


@pytest.mark.parametrize(
    ("file", "given", "said"),
    [
        ("serve-llama-7b-realtime", {}, "generates tokens"),
        ("batch-10k-per-hour", {"device": "tpu"}, "no device 'tpu'"),
        ("bert-finetune", {"device": "rocm"}, "index of its own"),
        ("bert-finetune", {"device": "rocm", "torch_index": ROCM, "platforms": ("linux/arm64",)}, "x86 alone"),
        ("bert-finetune", {"platforms": ("windows/amd64",)}, "windows/amd64"),
        ("bert-finetune", {"base": "python 3; rm -rf /"}, "names no image"),
    ],
)
def test_what_cannot_be_an_image_is_refused(file: str, given: dict[str, Any], said: str) -> None:
    """Each refusal names what is wrong and has a hint."""
    with pytest.raises(InputError, match=said) as raised:
        recipe(file, **given)
    assert raised.value.hint


@pytest.mark.heavy
@pytest.mark.parametrize("file", ["bert-finetune", "gbm-5m-rows", "serve-bert"])
@pytest.mark.parametrize("device", ["cpu", "cuda", "rocm"])
def test_hadolint_finds_nothing(file: str, device: Any) -> None:
    """The linter of Containerfiles has nothing to say of any of them, and does of a bad one."""
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")

    def lint(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([linter, "-"], input=text, capture_output=True, text=True, check=False)

    made = recipe(file, device=device, torch_index=ROCM if device == "rocm" else None, base=f"python@{DIGEST}")
    found = lint(render_containerfile(made, version="0.1.0"))
    assert (found.returncode, found.stdout) == (0, "")
    assert lint("FROM python\nRUN cd /tmp && sudo true\n").returncode == 1


def package(name: str, version: str, direct: str | None = None) -> Distribution:
    """As importlib.metadata describes one."""
    metadata = Message()
    metadata["Name"] = name
    found = SimpleNamespace(metadata=metadata, version=version, read_text=lambda _file: direct)
    return cast(Distribution, found)


def test_pins_are_what_is_installed_here() -> None:
    """A build of one device loses its mark, what comes from a folder is left out, a swapped one keeps its version."""
    found = [
        package("torch", "2.13.0+cpu"), package("Typing_Extensions", "4.1"), package("tonnage", "0.1.0"),
        package("mine", "1.0", '{"url": "file:///src"}'), package("xgboost-cpu", "3.2.0"),
    ]  # fmt: skip
    expected = "torch==2.13.0\ntyping-extensions==4.1\nxgboost==3.2.0\nxgboost-cpu==3.2.0\n"
    assert installed_pins(found, swapped=(("xgboost-cpu", "xgboost"),)) == expected
    assert "numpy==" in installed_pins()


PIP = {"installed": [{"metadata": {"name": "Torch", "version": "2.13.0+cpu", "license_expression": "BSD-3-Clause"}}]}


def test_materials_name_every_package_and_repeat_themselves() -> None:
    """CycloneDX with a package URL for each package; the same image gives the same text, another image another."""
    text = bill_of_materials("work:1", DIGEST, PIP, "libc6:amd64\t2.36-9+deb12u14\nbroken line\n")
    document = json.loads(text)
    assert [part["purl"] for part in document["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14",
        "pkg:pypi/torch@2.13.0%2Bcpu",
    ]
    assert document["components"][1]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert text == bill_of_materials("work:1", DIGEST, PIP, "libc6:amd64\t2.36-9+deb12u14\n")
    assert text != bill_of_materials("work:2", DIGEST, PIP, "libc6:amd64\t2.36-9+deb12u14\n")
    with pytest.raises(DataError, match="pip inspect"):
        bill_of_materials("work:1", DIGEST, {"installed": [{}]}, "")


def test_each_builder_has_its_own_words(tmp_path: Path) -> None:
    """One platform is an image, several are a list; pip's index of this machine is a build argument."""
    one = recipe(name="work:1")
    both = replace(one, platforms=("linux/amd64", "linux/arm64"))
    index = {"PIP_INDEX_URL": "https://example.org/simple"}
    single = build_command("buildah", one, tmp_path, index)
    assert single[:4] == ("buildah", "bud", "--format", "docker")
    assert "PIP_INDEX_URL=https://example.org/simple" in single
    assert single[-3:-1] == ("--tag", "work:1")
    several = build_command("podman", both, tmp_path, {})
    assert several[-3:-1] == ("--manifest", "work:1")
    assert "linux/amd64,linux/arm64" in several
    assert build_command("docker", one, tmp_path, {})[:3] == ("docker", "buildx", "build")
    digest = tmp_path / "digest"
    assert push_command("buildah", one, "r.example/w:1", digest)[-1] == "docker://r.example/w:1"
    assert push_command("podman", both, "oci:there", digest)[1:4] == ("manifest", "push", "--all")


def answers(words: dict[str, str | Exception]) -> tuple[list[tuple[str, ...]], Callable[[tuple[str, ...]], str]]:
    """A builder that answers by the second word of a command, and what it was asked."""
    asked: list[tuple[str, ...]] = []

    def run(command: tuple[str, ...]) -> str:
        asked.append(command)
        if "--digestfile" in command:
            Path(command[command.index("--digestfile") + 1]).write_text(DIGEST, encoding="utf-8")
        answer = words.get(command[1], "")
        if isinstance(answer, Exception):
            raise answer
        return answer

    return asked, run


def test_a_build_is_read_and_pushed(tmp_path: Path) -> None:
    """The image's own list of packages is read from a container that is removed, then it is pushed, with its digest."""
    asked, run = answers({"run": json.dumps(PIP), "from": "box\n", "inspect": "abc\n"})
    built = build_image(
        "buildah", recipe(name="work:1"), tmp_path / "context", index={}, push="r.example/work:1",
        show=asked.append, run=run,
    )  # fmt: skip
    assert (built.image_id, built.digest, built.pip) == ("abc", DIGEST, PIP)
    assert [command[1] for command in asked] == ["bud", "from", "run", "rm", "from", "run", "rm", "inspect", "push"]


def test_a_container_goes_where_its_reading_fails(tmp_path: Path) -> None:
    """A failure between `from` and `rm` leaves no container behind."""
    asked, run = answers({"run": BuildFailed("no"), "from": "box\n"})
    with pytest.raises(BuildFailed):
        build_image(
            "buildah", recipe(name="work:1"), tmp_path / "context", index={}, push=None,
            show=asked.append, run=run,
        )  # fmt: skip
    assert asked[-1] == ("buildah", "rm", "box")


@pytest.mark.heavy
def test_builders_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name and an empty PATH each say what to do; a builder that fails is named."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="no builder 'kaniko'"):
        find_builder("kaniko")
    with pytest.raises(InputError, match="none of buildah"):
        find_builder(None)
    with pytest.raises(BuildFailed, match="exit code 3"):
        run_command((sys.executable, "-c", "raise SystemExit(3)"))


def test_the_line_for_a_place_has_the_digest() -> None:
    """A registry's image is named as places.toml takes it; a folder's digest is said without such a line."""
    made = ImageReport(
        name="w:1", device="cpu", platforms=("linux/amd64",), extras=("train",), base="b", base_pinned=True,
        command=("buildah",), containerfile="FROM b\n", image_id="abc", digest=DIGEST, destination="r.example:5000/w:1",
        python_packages=1, system_packages=2,
    )  # fmt: skip
    assert f'image = "r.example:5000/w@{DIGEST}"' in str(image_report(made).page())
    folder = str(image_report(replace(made, destination="oci:/tmp/there:1")).page())
    assert "image =" not in folder
    assert DIGEST in folder
    with_cuda = str(image_report(replace(made, cuda="13.0", nccl="2.29.7")).page())
    assert 'cuda = "13.0"' in with_cuda
    assert 'nccl = "2.29.7"' in with_cuda
    assert "cuda =" not in folder


@pytest.mark.heavy
def test_the_verb_writes_and_shows_what_a_builder_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--dry-run touches nothing and is the same twice; a file that is no workload is bad input."""
    from tonnage.cli import run

    def shown() -> str:
        assert run(["image", "build", str(EXAMPLES / "bert-finetune.tonnage.yaml"), "--dry-run", "-o", "json"]) == 0
        return capsys.readouterr().out

    document = json.loads(first := shown())
    assert first == shown()
    assert document["schema"] == "tonnage/image@1"
    assert document["containerfile"].startswith("FROM docker.io/library/python:")
    assert document["image_id"] is None
    assert run(["image", "build", str(tmp_path / "none.yaml"), "--dry-run"]) == 2


@pytest.mark.slow
def test_a_real_image_is_built(tmp_path: Path) -> None:
    """With buildah and a base image at hand (TONNAGE_TEST_BASE_IMAGE) an image is built, and runs as its user."""
    base = os.environ.get("TONNAGE_TEST_BASE_IMAGE")
    if base is None or shutil.which("buildah") is None:
        pytest.skip("needs buildah, and a base with python3 named by TONNAGE_TEST_BASE_IMAGE")
    goal = tmp_path / "materials.json"
    asked = tonnage.ImageOptions(
        base=base, name="tonnage-test:1", builder="buildah", materials=str(goal), push=f"oci:{tmp_path / 'pushed'}:1"
    )
    found = tonnage.build_image(EXAMPLES / "gbm-5m-rows.tonnage.yaml", asked).checked()
    assert found.digest is not None
    names = {part["name"] for part in json.loads(goal.read_text(encoding="utf-8"))["components"]}
    assert {"tonnage", "xgboost-cpu", "boto3"} <= names
    container = run_command(("buildah", "from", "--pull-never", "tonnage-test:1")).strip()
    try:
        assert run_command(("buildah", "run", container, "--", "id", "-u")).strip() == "1000"
        assert "tonnage 0." in run_command(("buildah", "run", container, "--", "tonnage", "--version"))
    finally:
        run_command(("buildah", "rm", container))
