"""A secret that a run needs is nowhere in what a place is sent, shows, writes or says: its reference alone is.

The secrets are planted in the environment, in the workload's own URL and, by mistake, in places.toml. SSH and Slurm
hand variables on by the environment of what they start, which no file and no argument holds.
"""

from __future__ import annotations

import json
import logging
import os
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places.test_dry_runs import PLACES

from tonnage.api.launching import prepare
from tonnage.api.placing import executor_at
from tonnage.cli import run
from tonnage.errors import FetchError, InputError
from tonnage.places.bucket.cloud import Request
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.bucket.filled import FillRequest, request_key, state_key
from tonnage.places.bucket.objects import open_objects
from tonnage.places.file import KINDS, read_places
from tonnage.runs.journal import EventKind
from tonnage.runs.secrets import MASKED, mask_values, masked
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, dump_spec
from tonnage.settings import Settings, load_settings
from tonnage.supervisor import fill

PLANTED = "pl4nted-s3cret-value"
URL_PASSWORD = "pl4nted-of-the-url"
VARIABLES = ("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "ROWS_KEY", "AWS_SECRET_ACCESS_KEY")
GCP = "gcp:projects/my-project/secrets/keys"
NAMED = {
    "sagemaker": "aws:tonnage/keys",
    "ec2": "aws:tonnage/keys",
    "aws-batch": "aws-ssm:/tonnage/keys",
    "gce": GCP,
    "vertex": f"{GCP}/versions/3",
    "azure": "azure:vault/keys",
    "azureml": "azure:vault/keys",
    "databricks": "scope",
    "digitalocean": "file:/etc/tonnage/keys.env",
    "ray": "env:KEYS",
    "spark": "vault:secret/tonnage#keys",
    "skypilot": "aws:tonnage/keys",
    "kubernetes": "keys-of-runs",
}  # fmt: skip - `secret` of each kind that has one
BY_ENVIRONMENT = ("slurm", "ssh")
KINDS_OF_PLACES = [pytest.param(kind, id=kind) for kind in KINDS]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home with a place of each kind, and secrets in the environment."""
    rows = []
    for kind, terms in PLACES.items():
        named = {"secret": NAMED[kind]} if kind in NAMED else {}
        values = {"kind": kind, **terms, **named}
        rows += [f"[places.{kind}]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())]
    (tmp_path / "places.toml").write_text("".join(rows))
    for name in VARIABLES:
        monkeypatch.setenv(name, PLANTED)
    monkeypatch.setenv("KEYS", json.dumps({"ROWS_KEY": PLANTED}))
    monkeypatch.setenv("TONNAGE_SECRET_1", "")  # set by the run, put back after the test
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    data = DataSpec(train=DataSource(location=f"https://u:{URL_PASSWORD}@rows.example/a.csv", format="csv"),
                    test=DataSource(location="https://u:${ROWS_KEY}@rows.example/b.csv", format="csv"))  # fmt: skip
    (tmp_path / "run.json").write_text(dump_spec(RunSpec(name="first", task="mlp", data=data)))
    return load_settings({}, os.environ, tmp_path)


def test_every_kind_is_here() -> None:
    """A new kind of place says how its runs get their variables."""
    assert set(NAMED) | set(BY_ENVIRONMENT) == set(KINDS) == set(PLACES)


def unplanted(text: str) -> str:
    """The text, with what is in Base64 in it (scripts of machines). AssertionError where a planted secret is in it."""
    coded = re.findall(r"[A-Za-z0-9+/]{64,}={0,2}", text)
    revealed = text + "".join(b64decode(f"{one}==").decode("utf-8", errors="replace") for one in coded)
    assert PLANTED not in revealed
    assert URL_PASSWORD not in revealed
    return revealed


@pytest.mark.parametrize("kind", KINDS_OF_PLACES)
@pytest.mark.usefixtures("settings")
def test_a_dry_run_shows_the_reference_alone(
    kind: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In JSON, of which the text is a view, and in text; the variables are named there."""
    caplog.set_level(logging.DEBUG)
    for form in (*([[]] if kind in {"ec2", "kubernetes", "slurm"} else []), ["-o", "json"]):
        assert run(["run", "run.json", "--on", kind, "--dry-run", *form]) == 0
        said = capsys.readouterr()
        shown = unplanted(said.out + said.err)
        unplanted(caplog.text)
        if kind in NAMED:
            assert NAMED[kind].removeprefix("file:") in shown.replace("\n", "")
    assert "TONNAGE_SECRET_1" in shown


class Sent:
    """A cloud's API that takes all and starts nothing."""

    def __init__(self, cloud: Any) -> None:
        self.requests, self.gaps, self.notices = cloud.requests, cloud.gaps, cloud.notices
        self.sent: tuple[Request, ...] = ()

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        self.sent = requests
        return f"job-{token}"


@pytest.mark.parametrize("kind", [one for one in NAMED if one != "kubernetes"])
def test_what_a_submission_writes_holds_no_secret(kind: str, settings: Settings, tmp_path: Path) -> None:
    """Bucket, requests, tags, specification, journal and record of a run that was submitted."""
    launch = prepare(settings, "run.json", {"on": kind})
    assert launch.submission is not None
    found = executor_at(settings, kind)
    assert isinstance(found, BucketRuns)
    cloud = Sent(found.cloud)
    executor = replace(found, cloud=cloud)
    vars(executor)["objects"] = open_objects(f"file://{tmp_path}/bucket")
    launch.folder.create(launch.spec)
    launch.folder.record(EventKind.SUBMITTED, who="cli", name="first", place=kind)
    executor.submit(launch.submission, launch.folder)
    assert cloud.sent
    files = [path for top in (launch.folder.path, tmp_path / "bucket") for path in top.rglob("*") if path.is_file()]
    assert {"spec.json", "job.json", "place.json", "journal.jsonl"} <= {path.name for path in files}
    everything = "".join(path.read_text("utf-8", errors="replace") for path in files)
    unplanted(everything + repr(cloud.sent) + launch.submission.script + repr(launch.submission.commands))
    assert "${TONNAGE_SECRET_1}" in everything


def test_kubernetes_takes_variables_from_its_own_secret(settings: Settings) -> None:
    """Each by its key; the manifest has no value."""
    launch = prepare(settings, "run.json", {"on": "kubernetes"})
    assert launch.submission is not None
    manifest = unplanted(launch.submission.script + repr(launch.submission.job))
    assert "secretKeyRef" in manifest
    assert NAMED["kubernetes"] in manifest


@pytest.mark.parametrize("kind", BY_ENVIRONMENT)
def test_ssh_and_slurm_name_variables_in_what_is_written(kind: str, settings: Settings) -> None:
    """Script, commands and job have the names; the values go in the environment of what is started."""
    launch = prepare(settings, "run.json", {"on": kind})
    assert launch.submission is not None
    unplanted(launch.submission.script + repr(launch.submission.commands) + repr(launch.submission.job))
    assert {"HF_TOKEN", "ROWS_KEY", "TONNAGE_SECRET_1"} <= set(launch.submission.job.secrets)
    assert os.environ["TONNAGE_SECRET_1"] == URL_PASSWORD


@pytest.mark.parametrize("wrong", [PLANTED, f"hunter:{PLANTED}", f"aws: {PLANTED}", f"gcp:my-project/{PLANTED}"])
@pytest.mark.usefixtures("settings")
def test_a_secret_in_places_toml_is_refused_unshown(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every kind that reads a reference, with the forms that it takes; the older spellings are refused so, too."""
    file = tmp_path / "places.toml"
    references = {kind: one for kind, one in NAMED.items() if kind not in {"kubernetes", "databricks"}}
    text = file.read_text()
    for one in set(references.values()):
        text = text.replace(json.dumps(one), json.dumps(wrong))
    file.write_text(text)
    assert run(["run", "run.json", "--on", "ec2", "--dry-run"]) == 2
    assert run(["places", "check", "ec2"]) == 2
    said = capsys.readouterr()
    unplanted(said.out + said.err)
    assert "places.ec2.secret" in said.err
    read = read_places((file,))
    assert set(read.faults) == set(references)
    for kind, fault in read.faults.items():
        words = unplanted(f"{fault.message} {fault.hint}")
        assert f"places.{kind}.secret" in words
        assert f"{references[kind].partition(':')[0]}:" in words


@pytest.mark.parametrize("kind", NAMED)
def test_a_place_without_a_secret_says_what_is_needed(kind: str, settings: Settings, tmp_path: Path) -> None:
    """By the variables' names."""
    file = tmp_path / "places.toml"
    file.write_text(file.read_text().replace(f"secret = {json.dumps(NAMED[kind])}\n", ""))
    with pytest.raises(InputError, match="TONNAGE_SECRET_1, ROWS_KEY, and the place names no `secret`") as caught:
        prepare(settings, "run.json", {"on": kind})
    unplanted(f"{caught.value.message} {caught.value.hint}")


def test_logs_of_ours_mask_what_was_read() -> None:
    """Values of variables that a secret has set are masked wherever they come up, whatever their names."""
    known = {"ROWS_KEY": PLANTED, "TONNAGE_SECRET_1": URL_PASSWORD, "REGION": "eu-west-1"}
    words = f"401 in eu-west-1 for {PLANTED} at https://u:{URL_PASSWORD}@rows.example"
    assert PLANTED in masked(words, known)
    mask_values(known, ("ROWS_KEY",))
    assert "401 in eu-west-1 for ***" in unplanted(masked(words, known))


def test_a_machine_that_fills_a_disk_masks_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why it failed, in the bucket and on the console."""
    monkeypatch.setenv(MASKED, "")
    monkeypatch.setenv("ROWS_KEY", PLANTED)
    mask_values(os.environ, ("ROWS_KEY",))

    def fails(*_: object) -> None:
        raise FetchError(f"401: the key {PLANTED} is refused", hint=f"not {PLANTED}")

    monkeypatch.setattr(fill, "fetch", fails)
    objects = open_objects(f"file://{tmp_path}/bucket")
    objects.write(request_key("d1"), FillRequest(key="k", sources=("https://rows.example/a",)).content())
    assert fill.DiskWriter(objects, "d1", tmp_path / "disk", every_s=9.0).carry_out() == 1
    said = capsys.readouterr()
    state = objects.read(state_key("d1"))
    assert state is not None
    assert "401: the key ***" in unplanted(said.err)
    assert "401: the key ***" in unplanted(state.content.decode())
