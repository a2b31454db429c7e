"""Droplets as a place: what is sent, what the machine does with it, what `check` finds, and APIs that fail."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import home_mark
from tonnage.places.digitalocean.droplets import UNBORN, Droplets, end_script, plain_tag, tags_of, written_tag
from tonnage.places.digitalocean.place import DigitalOceanPlace
from tonnage.places.states import Phase
from tonnage.runs import RunFolder
from tonnage.testing.digitalocean import SSH_KEY, FakeDigitalOcean, digitalocean_fault
from tonnage.testing.http_service import HTTPAnswer, times

pytestmark = pytest.mark.heavy
DIGEST = f"sha256:{'0' * 64}"
VPC = "5a4981aa-9653-4bd1-bef5-d6bff52042e4"
TERMS: dict[str, Any] = {
    "kind": "digitalocean", "region": "tor1", "cores": 4, "memory_gib": 8, "bucket": "s3://runs/tonnage",
    "instance_type": "s-4vcpu-8gb", "boot_image": "gpu-h100x8-base", "ssh_keys": [SSH_KEY], "time_limit_minutes": 240,
    "image": f"registry.digitalocean.com/team/tonnage@{DIGEST}",
}  # fmt: skip
TAG = "tonnage:0a1b2c3d:0123456789ab:first.v1"
WORK = Work(
    name="t-first-v1-0a1b2c3d-0123456789ab", run="first.v1", token="0123456789ab", home="0a1b2c3d", owner="me", tag=TAG,
    command=("sleep", "60"), env={"A": "it's $HOME"}, max_cost_usd=None,
    tags={"tonnage": TAG, "tonnage-home": "0a1b2c3d", "tonnage-token": "0123456789ab", "tonnage-run": "first.v1"},
)  # fmt: skip
GPUS = {"gpus": 8, "gpu": "h100", "gpu_memory_gib": 80, "instance_type": "gpu-h100x8-640gb", "cores": 160}


def cloud(**changed: Any) -> Droplets:
    attempts = changed.pop("attempts", 3)
    return Droplets(name="drop", place=DigitalOceanPlace(**(TERMS | changed)), attempts=attempts, sleep=lambda _: None)


def other(token: str) -> Work:
    tag = f"tonnage:0a1b2c3d:{token}:first.v1"
    return replace(WORK, name=f"t-first-v1-0a1b2c3d-{token}", token=token, tag=tag, tags={**WORK.tags, "tonnage": tag})


@pytest.mark.parametrize("form", [
    {}, GPUS, {"public_address": True}, {"vpc": VPC}, {"image": f"registry.example/t@{DIGEST}"},
    {"boot_image": "7555620", "ssh_keys": ["1"]}, {"secret": "file:/etc/tonnage/env", "token_file": "/etc/do-token"},
    {"patch": {"droplets_create": {"volumes": ["12e97116-7280-11ed-b3d0-0a58ac146812"], "monitoring": True}}},
])  # fmt: skip
def test_every_form_is_one_that_the_api_takes(form: dict[str, Any]) -> None:
    """The bucket's key is of one bucket; no key is in what is shown; nothing of others reaches the machine."""
    requests = cloud(**form).requests(WORK)
    key, *login, droplet = requests
    assert key.body["grants"] == [{"bucket": "runs", "permission": "readwrite"}]
    assert [one.operation for one in login] == ([] if "image" in form else ["registries_get_dockerCredentials"])
    body = droplet.body
    assert body["public_networking"] == ("public_address" in form)
    assert not body["with_droplet_agent"]
    assert body["ssh_keys"]
    assert "AWS_SECRET_ACCESS_KEY={{spaces_key.secret_key}}" in body["user_data"]
    if "secret" in form:
        assert "--env-file /etc/tonnage/env" in body["user_data"]
    assert cloud(**form).requests(WORK) == requests


REFUSED = [
    ({"spot": True}, "sells no spot"), ({"disk_gib": 500}, "comes with its size"), ({"ssh_keys": []}, "ssh_keys"),
    ({"bucket": "gs://runs/a"}, "Spaces"), ({"secret": "keys"}, "keeps no secrets"), ({"vpc": "mine"}, "vpc"),
    ({"purchase": "reserved_1y"}, "on demand alone"), ({"image": "a/t:latest"}, "no digest"),
    ({"boot_image": "my image"}, "boot_image"), ({"token_file": "token"}, "token_file"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_place_half_configured_is_refused_when_it_is_read(changed: dict[str, Any], said: str) -> None:
    """With the key, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


@pytest.mark.parametrize(("patch", "said"), [
    ({"sizes": "x"}, "sizes: there is no such member"), ({"backups": "yes"}, "backups: true or false"),
    ({"backup_policy": {"plan": "hourly"}}, "'hourly' is none of daily, weekly"),
    ({"name": "my run"}, "does not match"),
    ({"ssh_keys": [1.5]}, "none of what it takes"), ({"user_data": "x" * 70_000}, "65536 at most"),
])  # fmt: skip
def test_what_the_api_would_refuse_is_refused_before_anything_is_sent(patch: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cloud(patch={"droplets_create": patch}).requests(WORK)


def test_tags_keep_every_name() -> None:
    """Of runs with dots too, which tags cannot have."""
    for name in ("plain", "a.b_c", "_2e", "modèle 1"):
        assert plain_tag(written_tag(f"tonnage:1:0:{name}")) == f"tonnage:1:0:{name}"
    assert "tonnage:0a1b2c3d:0123456789ab:first_2ev1" in tags_of(WORK)


def test_the_machines_scripts_are_ones_that_bash_reads(tmp_path: Path) -> None:
    """A machine with a token deletes itself, one without is switched off; the key is a file that root alone reads."""
    body = cloud(secret="file:/etc/env").requests(WORK)[-1].body
    (tmp_path / "first").write_text(body["user_data"])
    subprocess.run(["bash", "-n", str(tmp_path / "first")], check=True)
    assert "install -D -m 600 /dev/null /opt/tonnage/keys.env" in body["user_data"]
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\ncase "$*" in *metadata*) echo 42;; *) echo "$@" >> called;; esac\n')
    curl.chmod(0o755)
    (tmp_path / "token").write_text("dop_v1_secret\n")
    for terms, called in (({}, "poweroff"), ({"token_file": str(tmp_path / "token")}, "/v2/droplets/42")):
        (tmp_path / "called").write_text("")
        end = end_script(cloud(**terms).place).replace("/bin/systemctl", "echo poweroff >> called #")
        subprocess.run(["bash", "-c", end], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
        printed = (tmp_path / "called").read_text()
        assert called in printed
        assert ("poweroff" in printed) == (not terms)


def made(one: Droplets, work: Work = WORK) -> str:
    return one.send(one.requests(work), work.token)


def test_sent_twice_it_is_one_droplet_with_one_key(digitalocean: FakeDigitalOcean) -> None:
    """With GPUs too, which the list of droplets leaves out unless they are asked for."""
    digitalocean.boot_s = 600
    first = made(cloud(**GPUS))
    assert made(cloud(**GPUS)) == first == cloud().find(WORK.token)
    assert (len(digitalocean.droplets), len(digitalocean.keys)) == (1, 1)
    [droplet] = digitalocean.droplets.values()
    assert "{{" not in droplet.body["user_data"]
    assert "AWS_SECRET_ACCESS_KEY=test-secret" in droplet.body["user_data"]
    assert '"auth": "b3BlbjpzZXNhbWU="' in droplet.body["user_data"]
    assert cloud().find("ffffffffffff") is None


@pytest.mark.parametrize("refusal", [
    digitalocean_fault(429, "too_many_requests", "API rate limit exceeded"), digitalocean_fault(503, "x", "later"),
])  # fmt: skip
def test_throttled_failing_and_lost_answers_make_no_second_droplet(
    digitalocean: FakeDigitalOcean, refusal: HTTPAnswer
) -> None:
    digitalocean.boot_s = 600
    digitalocean.before.append(times(1, refusal, "POST", "/droplets"))
    digitalocean.after.append(times(1, refusal, "POST", "/droplets"))
    made(cloud())
    assert len(digitalocean.droplets) == 1


def test_of_two_that_a_late_list_has_let_through_one_is_left(digitalocean: FakeDigitalOcean) -> None:
    """The answer is lost, and the list does not show the droplet yet: the second one goes once both are seen."""
    digitalocean.boot_s = 600
    digitalocean.after.append(times(1, digitalocean_fault(503, "x", "lost"), "POST", "/droplets"))
    digitalocean.hidden = 1
    job = made(cloud())
    assert [str(one) for one in digitalocean.droplets] == [job]


def test_no_capacity_leaves_nothing_behind(digitalocean: FakeDigitalOcean) -> None:
    digitalocean.full = "Size is not available in this region."
    with pytest.raises(TonnageError, match="no droplet: DigitalOcean: Size is not available") as raised:
        made(cloud())
    assert "--on any" in (raised.value.hint or "")
    assert digitalocean.keys == {}


def test_its_life_and_its_end(digitalocean: FakeDigitalOcean) -> None:
    """Switched off it is billed: an orphan until it is deleted, with its key and its tag."""
    one = cloud(setup=["exit 3"])
    job = made(one)
    assert one.view(job).phase is Phase.PROVISIONING
    while one.view(job).phase is not Phase.ENDED:
        time.sleep(0.02)
    [found] = one.tagged("0a1b2c3d")
    assert (found.job_id, found.tag, found.view.phase) == (job, TAG, Phase.ENDING)
    assert one.tagged("ffffffff") == []
    assert written_tag(TAG) in digitalocean.tags
    one.end(job, WORK.token)
    one.end(job, WORK.token)
    assert one.view(job).phase is Phase.GONE
    assert (digitalocean.droplets, digitalocean.keys) == ({}, {})
    assert written_tag(TAG) not in digitalocean.tags


def test_a_key_whose_client_died_before_its_droplet_is_an_orphan(digitalocean: FakeDigitalOcean) -> None:
    """After an hour: until then the droplet may be on its way."""
    one = cloud()
    digitalocean.boot_s = 600
    name = f"t-gone-{'0a1b2c3d'}-{'f' * 12}"
    one.client.call("POST", one.client.address("spaces/keys"), body={"name": name, "grants": []})
    assert one.tagged("0a1b2c3d") == []
    [key] = digitalocean.keys.values()
    key["created_at"] = "2026-01-01T00:00:00Z"
    [found] = one.tagged("0a1b2c3d")
    assert (found.job_id, found.tag) == (UNBORN, f"tonnage:0a1b2c3d:{'f' * 12}:gone")
    one.end(found.job_id, "f" * 12)
    assert digitalocean.keys == {}


def test_droplets_are_found_page_by_page(digitalocean: FakeDigitalOcean) -> None:
    digitalocean.boot_s, digitalocean.page = 600, 2
    one = cloud()
    for number in range(5):
        made(one, other(f"0123456789a{number}"))
    assert len(one.tagged("0a1b2c3d")) == 5
    assert one.find("0123456789a4") is not None


def findings(kind: str = "refused", **changed: Any) -> list[tuple[str, str]]:
    found = cloud(**changed)
    runs = BucketRuns(kind="digitalocean", name="drop", place=found.place, cloud=found)
    return [(one.message, one.hint) for one in runs.check(RunFolder(Path("/home/runs/check"))) if one.kind == kind]


def test_check_names_what_is_missing_and_the_command_that_mends_it(digitalocean: FakeDigitalOcean, aws: str) -> None:
    """Each alone."""
    here = {"endpoint": aws}
    assert findings(**here) == []
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"bucket": "s3://nothing/here"}, "no bucket nothing", "aws s3 mb"),
        ({"instance_type": "gpu-none"}, "no size gpu-none", "doctl compute size list"),
        ({"instance_type": "gpu-l40sx1-48gb"}, "to be had nowhere now", "region"),
        ({"region": "nyc2", "vpc": VPC}, "to be had tor1", "region"),
        ({"cores": 64}, "has 4 cores, 8 GiB and 0 GPUs", "cores = 4"),
        ({"boot_image": "none"}, "no image none", "doctl compute image list"),
        ({"ssh_keys": ["1"]}, "no SSH key 1", "doctl compute ssh-key list"),
        ({"vpc": VPC.replace("5", "6")}, "no VPC", "doctl vpcs list"),
        ({"image": f"registry.digitalocean.com/team/none@{DIGEST}"}, "not in its registry", "list-manifests none"),
    ]
    for changed, message, hint in table:
        found = findings(**{**here, **changed})
        assert any(message in said and hint in mends for said, mends in found), (changed, found)
    digitalocean.lists["vpc_nat_gateways"] = []
    assert any("no way out" in said and "public_address" in mends for said, mends in findings(**here))
    digitalocean.there["account"] = {"account": {"droplet_limit": 0, "status": "locked", "status_message": "pay"}}
    found = findings(**here)
    assert any("locked: pay" in said for said, _ in found)
    assert any("may have 0 droplets" in said for said, _ in found)


def test_check_says_what_it_doubts(digitalocean: FakeDigitalOcean, aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open machine, one that is billed after its end, and a store that takes every write."""
    doubts = dict(findings("doubtful", endpoint=aws, public_address=True))
    assert "doctl compute firewall create" in doubts["the firewall of droplets with the tag tonnage is not there"]
    assert any("billed until" in one for one in doubts)
    digitalocean.lists["firewalls"] = [{"tags": ["tonnage"], "inbound_rules": []}]
    assert findings("doubtful", endpoint=aws, public_address=True, token_file="/etc/token") == []
    monkeypatch.setattr("tonnage.places.bucket.s3.S3Objects.write_if", lambda *_: True)
    assert any("two writers" in one for one, _ in findings("doubtful", endpoint=aws, token_file="/etc/token"))


def test_check_without_a_token_or_with_one_that_is_refused(
    digitalocean: FakeDigitalOcean, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digitalocean.droplets == {}
    monkeypatch.setenv("DIGITALOCEAN_ACCESS_TOKEN", "expired")
    assert any("refused or has expired" in said and "DIGITALOCEAN" in mends for said, mends in findings(endpoint=aws))
    monkeypatch.delenv("DIGITALOCEAN_ACCESS_TOKEN")
    assert any("are not set" in said and "api/tokens" in mends for said, mends in findings(endpoint=aws))


@pytest.mark.slow
def test_two_droplets_of_one_submission_and_one_works(digitalocean: FakeDigitalOcean, aws: str, tmp_path: Path) -> None:
    """What no list shows in time the machines settle by the bucket: the second one does nothing and is switched off."""
    import sys

    from tonnage.testing.places import PlaceTrial

    found = cloud(endpoint=aws, python=sys.executable, mount=str(tmp_path / "there"), exchange_s=0.3, grace_s=8)
    runs = BucketRuns(kind="digitalocean", name="drop", place=found.place, cloud=found)
    trial = PlaceTrial(executor=runs, home=tmp_path / "here")
    folder = trial.write("twice")
    job = trial.start(folder, steps=4000, step_s=0.02)
    trial.wait(lambda: trial.status(folder).status.value == "running" and folder.state().step > 3)
    [first] = digitalocean.droplets.values()
    body = {**first.body, "user_data": first.body["user_data"].replace(str(tmp_path / "there"), str(tmp_path / "b"))}
    second = int(found.client.call("POST", found.client.address("droplets"), body=body)["droplet"]["id"])
    trial.wait(lambda: digitalocean.droplets[second].status == "off")
    assert "another machine has" in (digitalocean.folder / f"{second}.console").read_text()
    assert digitalocean.droplets[int(job)].status == "active"
    runs.teardown(folder)
    assert digitalocean.droplets == {}
    assert found.tagged(home_mark(folder.path.parent)) == []
    assert json.loads(folder.journal_file.read_text().splitlines()[-1])["kind"] == "stopped"
