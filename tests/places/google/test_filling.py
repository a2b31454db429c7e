"""Disks that are filled before GPU machines start: by whom, with what, once, and whatever dies on the way."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.killed import Killed

from tonnage.cli import run
from tonnage.errors import TonnageError
from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.filled import FILLED, WORKING, content_digest
from tonnage.places.bucket.google import GoogleClient
from tonnage.places.google import disks, machine
from tonnage.places.google import place as google_place
from tonnage.places.google.compute import Compute
from tonnage.places.google.disks import (
    DIGEST,
    READ_BY_MANY,
    WRITTEN_BY_ONE,
    disk_body,
    filling_lines,
    filling_machine,
    filling_place,
    snapshot_body,
)
from tonnage.places.google.fill_terms import FillTerms
from tonnage.places.google.filling import Filling
from tonnage.places.google.machine import instance, mounts
from tonnage.places.google.place import GCEPlace
from tonnage.places.google.runs import ComputeRuns, fills_of
from tonnage.places.google.schema import check_instance
from tonnage.runs import RunFolder
from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle

pytestmark = pytest.mark.heavy
DIGEST_0 = f"sha256:{'0' * 64}"
SECRET = "gcp:projects/my-project/secrets/keys"
COMMIT = "hf://org/model@" + "0123456789" * 4
TERMS: dict[str, Any] = {
    "kind": "gce", "project": "my-project", "region": "us-central1", "zones": ["us-central1-a", "us-central1-b"],
    "cores": 208, "memory_gib": 1800, "gpus": 8, "gpu": "h100", "bucket": "gs://runs/tonnage", "python": sys.executable,
    "instance_type": "a3-highgpu-8g", "boot_image": "projects/ml/global/images/family/gpu", "time_limit_minutes": 240,
    "service_account": ACCOUNT, "image": f"us-central1-docker.pkg.dev/my-project/runs/tonnage@{DIGEST_0}",
    "exchange_s": 0.1,
}  # fmt: skip
RUNS = Path("/home/me/runs")
FILES = {"model/config.json": b"{}" * 9999, "model/weights.bin": bytes(range(256)) * 4096}


class Shop:
    """Serves files, and counts the bytes of each that were asked for."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.held: dict[str, threading.Event] = {}
        shop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                name = self.path.lstrip("/")
                content = FILES[name]
                span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                first, last = (int(span[1]), int(span[2] or len(content) - 1)) if span else (0, len(content) - 1)
                part = content[first : last + 1]
                self.send_response(206 if span else 200)
                if span:
                    self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(part)))
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
                self.end_headers()
                if body:
                    if len(part) > 1 and name in shop.held:
                        shop.held[name].wait(30)
                    shop.sent[name] = shop.sent.get(name, 0) + len(part)
                    with suppress(OSError):
                        self.wfile.write(part)

            def handle(self) -> None:
                with suppress(ConnectionResetError):
                    super().handle()

            def log_message(self, *_: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    @property
    def terms(self) -> dict[str, Any]:
        """A disk with all files; the names that fetching gives them are the last parts."""
        sums = "".join(f"{hashlib.sha256(one).hexdigest()}  {name.rpartition('/')[2]}\n" for name, one in FILES.items())
        return {"sources": [f"{self.url}/{name}" for name in FILES], "sums": sums, "size_gib": 10}


def fetched_once(shop: Shop) -> bool:
    """Each file's bytes, and the few with which a server is asked whether it knows ranges."""
    return all(len(one) <= shop.sent[name] <= len(one) + 8 for name, one in FILES.items())


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    for event in made.held.values():
        event.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture(autouse=True)
def disks_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended disk is a folder, and no machine signs in at a registry."""
    folder = tmp_path / "disks"
    for module in (google_place, disks):
        monkeypatch.setattr(module, "DATA", str(folder))
    monkeypatch.setattr(machine, "login", lambda _: ())
    return folder


def runs_at(**changed: Any) -> ComputeRuns:
    place = GCEPlace(**(TERMS | changed))
    cloud = Compute(name="gpu", place=place, attempts=3, sleep=lambda s: time.sleep(min(s, 0.05)))
    return ComputeRuns(kind="gce", name="gpu", place=place, cloud=cloud, pause_s=0.05)


def filling(terms: dict[str, Any], said: list[str] | None = None, **changed: Any) -> Filling:
    [found] = runs_at(fill={"weights": terms}, **changed).fills(RUNS, (said if said is not None else []).append)
    return found


def test_a_disk_is_filled_once_and_read_by_all(google: FakeGoogle, shop: Shop, disks_here: Path) -> None:
    """One machine without GPUs fetches; each zone gets the disk; the second call fetches and makes nothing."""
    said: list[str] = []
    made = filling(shop.terms, said).carry_out()
    whole = {name.rpartition("/")[2]: hashlib.sha256(one).hexdigest() for name, one in FILES.items()}
    assert made.zones == ("us-central1-a", "us-central1-b")
    assert made.digest == content_digest(whole)[:60]
    assert google.instances == {}
    assert google.disks.snapshots == {}
    for zone in made.zones:
        disk = google.disks.disks[zone, made.name].body
        assert (disk["accessMode"], disk["labels"][DIGEST]) == (READ_BY_MANY, made.digest)
    assert fetched_once(shop)
    document = json.loads((disks_here / "weights" / FILLED).read_text())
    assert document["files"] == whole
    assert not (disks_here / "weights" / WORKING).exists()
    inserts = [one for one in google.asked if one.method == "POST" and one.path.endswith("/instances")]
    assert len(inserts) == 1
    assert inserts[0].body["machineType"].endswith("/c3-standard-8")
    assert inserts[0].body["scheduling"]["provisioningModel"] == "SPOT"
    google.asked.clear()
    assert filling(shop.terms).carry_out() == made
    assert [one.path for one in google.asked if one.method == "POST" and "compute" in one.path] == []
    assert any("copied from us-central1-a" in line for line in said)


def changing(method: str, url: str) -> str:
    """What a request changes, by name; empty where it only asks."""
    path = urlsplit(url).path
    asks = method == "GET" or path.endswith(("/wait", ":testIamPermissions"))
    return "" if asks else f"{method} {path}?{urlsplit(url).query}"


@pytest.mark.slow
def test_a_client_may_die_after_every_request_that_changes_something(
    google: FakeGoogle, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One death after each: whoever calls again finds what is there. One machine, nothing fetched twice."""
    died: list[str] = []
    send = GoogleClient.send

    def mortal(self: GoogleClient, method: str, url: str, **more: Any) -> Any:
        answer = send(self, method, url, **more)
        what = changing(method, url)
        if what and what not in died:
            died.append(what)
            raise Killed
        return answer

    monkeypatch.setattr(GoogleClient, "send", mortal)
    made = None
    while made is None:
        try:
            made = filling(shop.terms).carry_out()
        except Killed:
            assert len(died) < 40
    assert len(died) > 10, died  # disk, request, state, machine, labels and mode twice, snapshot, copy, its end
    assert fetched_once(shop)
    assert google.instances == {}
    assert google.disks.snapshots == {}
    modes = {zone: disk.body["accessMode"] for (zone, _), disk in google.disks.disks.items()}
    assert modes == dict.fromkeys(TERMS["zones"], READ_BY_MANY)
    inserts = [one for one in google.asked if one.method == "POST" and one.path.endswith("/instances")]
    assert len(inserts) == 1


@pytest.mark.slow
def test_what_has_arrived_is_not_fetched_again_when_spot_takes_the_machine(
    google: FakeGoogle, shop: Shop, disks_here: Path
) -> None:
    """The next machine mounts the same disk and fetches the rest."""
    small, large = FILES
    shop.held[large] = threading.Event()
    said: list[str] = []
    one, done = filling(shop.terms, said), []
    client = threading.Thread(target=lambda: done.append(one.carry_out()))
    client.start()
    until(lambda: (disks_here / "weights" / "config.json").exists())
    [name] = google.instances
    shop.held.pop(large)
    google.interrupt(name)
    client.join(60)
    assert done
    assert shop.sent[small] <= len(FILES[small]) + 16
    assert any("Spot took the machine" in line and "another one goes on" in line for line in said), said
    assert len([asked for asked in google.asked if asked.method == "POST" and asked.path.endswith("/instances")]) == 2


def until(there: Callable[[], bool], longest_s: float = 30.0) -> None:
    """Wait for something."""
    end = time.monotonic() + longest_s
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_file_that_is_another_one_never_becomes_readable(google: FakeGoogle, shop: Shop) -> None:
    """The reason is the client's; the machine is gone, the disk stays closed, and `check` refuses runs."""
    wrong = shop.terms | {"sums": shop.terms["sums"].replace("a", "b")}
    with pytest.raises(TonnageError, match=r"is not what it should be|did not come") as raised:
        filling(wrong).carry_out()
    assert "the same command then goes on" in (raised.value.hint or "")
    assert google.instances == {}
    [disk] = google.disks.disks.values()
    assert disk.body["accessMode"] == WRITTEN_BY_ONE
    assert DIGEST not in disk.body["labels"]
    found = runs_at(fill={"weights": wrong}, zones=["us-central1-a"]).check(RunFolder(RUNS / "check"))
    [refused] = [one for one in found if "is not filled yet" in one.message]
    assert refused.hint == "`tonnage places fill gpu`"


@pytest.mark.usefixtures("google")
def test_a_file_that_no_sum_states_is_refused(shop: Shop) -> None:
    """With the file's name: a size is no proof."""
    half = shop.terms | {"sums": shop.terms["sums"].splitlines()[0]}
    with pytest.raises(TonnageError, match=r"no digest is stated of 1 files, such as weights\.bin"):
        filling(half).carry_out()


def test_no_capacity_and_rights_that_lack_are_said(google: FakeGoogle, shop: Shop) -> None:
    """With what mends each; the disk that was made is found again."""
    google.full["us-central1-a"] = "ZONE_RESOURCE_POOL_EXHAUSTED"
    with pytest.raises(TonnageError, match="ZONE_RESOURCE_POOL_EXHAUSTED: us-central1-a has none now") as raised:
        filling(shop.terms).carry_out()
    assert "`spot = false` there" in (raised.value.hint or "")
    assert len(google.disks.disks) == 1
    google.rights.discard("compute.disks.update")
    with pytest.raises(TonnageError, match=r"you may not: compute\.disks\.update") as raised:
        filling(shop.terms).carry_out()
    assert "add-iam-policy-binding my-project" in (raised.value.hint or "")


@pytest.mark.usefixtures("google")
def test_a_disk_of_the_name_that_another_made_is_left_alone(shop: Shop) -> None:
    one = filling(shop.terms)
    disk = disk_body(one.fill, "us-central1-a") | {"labels": {}}
    one.compute.call("POST", "projects/my-project/zones/us-central1-a/disks", body=disk)
    with pytest.raises(TonnageError, match="has not made"):
        one.carry_out()


def test_what_is_left_is_found_and_ended_and_what_is_read_stays(google: FakeGoogle, shop: Shop) -> None:
    """A disk whose content places.toml names no more; one that is named is no orphan; `remove` leaves nothing."""
    home = RUNS
    filling(shop.terms, zones=["us-central1-a"]).carry_out()
    named = runs_at(fill={"weights": shop.terms}, zones=["us-central1-a"])
    assert named.orphans(home, end=True) == ()
    other = runs_at(fill={"weights": shop.terms | {"exclude": ["x"]}}, zones=["us-central1-a"])
    disk = next(iter(google.disks.disks))[1]
    body = instance(named.place, WORK, "us-central1-a")
    google.boot_s = 600
    named.cloud.call("POST", "projects/my-project/zones/us-central1-a/instances", params={"requestId": "1"}, body=body)
    [held] = other.orphans(home, end=True)
    assert held.why == "places.toml names its content no more; 1 machines read it: it stays"
    google.instances.clear()
    google.boot_s = 0.1
    assert other.orphans(Path("/home/other/runs"), end=True) == ()
    [left] = other.orphans(home, end=True)
    assert (left.job_id, left.run) == (f"zones/us-central1-a/disks/{disk}", disk)
    assert google.disks.disks == {}
    filling(shop.terms).carry_out()
    assert len(filling(shop.terms).remove()) == 2
    assert google.disks.disks == {}
    assert [key for key in google.storage.buckets["runs"] if "/fills/" in key] == []
    assert filling(shop.terms).remove() == ()


WORK = Work(
    name="t-reader", run="reader", token="0123456789ab", home="0a1b2c3d", owner="me", tag="", command=("true",), env={},
    tags={}, max_cost_usd=None,
)  # fmt: skip
FILL = {"sources": [COMMIT], "size_gib": 200}


@pytest.mark.parametrize("form", [
    FILL, FILL | {"throughput_mib_per_s": 2400}, FILL | {"spot": False, "include": ["*.safetensors"]},
])  # fmt: skip
def test_every_body_is_one_that_the_discovery_document_has(form: dict[str, Any], tmp_path: Path) -> None:
    """The fetching machine has no GPU, reads no secret's value, and leaves the disk; all scripts are bash's."""
    place = GCEPlace(**TERMS | {"fill": {"weights": form}, "secret": SECRET, "kms_key": "projects/p/k", "spot": True,
                                "grace_s": 20, "reservation": None})  # fmt: skip
    [fill] = fills_of("gpu", place, RUNS)
    zone = "us-central1-a"
    assert disk_body(fill, zone)["accessMode"] == WRITTEN_BY_ONE
    assert snapshot_body(fill, zone)["storageLocations"] == ["us-central1"]
    assert disk_body(fill, zone, snapshot=fill.disk)["sourceSnapshot"].endswith(fill.disk)
    body = filling_machine(fill, zone, "7")
    check_instance(body)
    assert body["machineType"].endswith("c3-standard-8")
    assert "guestAccelerators" not in body
    boot, data = body["disks"]
    assert (boot["autoDelete"], data["mode"], data["autoDelete"]) == (True, "READ_WRITE", False)
    assert (body["scheduling"]["provisioningModel"] == "SPOT") == form.get("spot", True)
    script = next(one["value"] for one in body["metadata"]["items"] if one["key"] == "startup-script")
    (tmp_path / "first").write_text(script)
    subprocess.run(["bash", "-n", str(tmp_path / "first")], check=True)
    words = filling_lines(fill, "7")
    assert f"--secret {SECRET}" in words[-2]
    assert "umount" in words[-1]  # before the last container says that it is filled
    assert filling_place(fill).gpus == 0
    assert len(body["name"]) <= 63
    assert filling_machine(fill, zone, "7") == body


@pytest.mark.parametrize("changed", [{"nodes": 2, "placement_policy": "close"}, {"flex_start": True}])
def test_the_machine_that_fetches_is_one_and_waits_in_no_queue(changed: dict[str, Any]) -> None:
    """Whatever the machines with GPUs are: several, close together, or queued for."""
    place = GCEPlace(**TERMS | changed | {"fill": {"weights": FILL}})
    [fill] = fills_of("gpu", place, RUNS)
    body = filling_machine(fill, "us-central1-a", "7")
    check_instance(body)
    assert filling_place(fill).machines == 1
    assert not {"resourcePolicies", "params", "reservationAffinity"} & set(body)
    assert {"resourcePolicies", "params"} & set(instance(place, WORK, "us-central1-a"))


def test_a_gpu_machine_reads_the_disk_and_refuses_another_content(tmp_path: Path, disks_here: Path) -> None:
    """Attached by its content's name; a disk that says something else ends the machine."""
    place = GCEPlace(**TERMS | {"fill": {"weights": FILL}})
    [disk] = place.read_disks
    body = instance(place, WORK, "us-central1-a")
    assert body["disks"][1] == {
        "source": f"projects/my-project/zones/us-central1-a/disks/{disk.name}", "deviceName": "weights",
        "mode": "READ_ONLY", "boot": False, "autoDelete": False,
    }  # fmt: skip
    assert place.holds(f"{disks_here}/weights/config.json")
    for name in ("mount", "mountpoint"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    script = "\n".join(["set -euo pipefail", *mounts(place)])
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    (disks_here / "weights").mkdir(parents=True)
    (disks_here / "weights" / FILLED).write_text('{"key": "of another"}')
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"the disk {disk.name} does not hold what places.toml says" in done.stderr
    (disks_here / "weights" / FILLED).write_text(json.dumps({"key": place.fill["weights"].key}))
    subprocess.run(["bash", "-c", script], env=env, check=True)


@pytest.mark.parametrize(("changed", "said"), [
    ({"sources": ["hf://org/model"]}, "may be other bytes tomorrow"), ({"sources": []}, "sources"),
    ({"sources": ["https://host/a?X-Amz-Signature=1"], "sums": "x"}, "has a secret in it"),
    ({"sources": ["s3://bucket/a"]}, "sha256sum FILE"),
    ({"size_gib": 2}, "size_gib"), ({"data_gib": 300}, "do not fit"),
    ({"throughput_mib_per_s": 10}, "throughput"), ({"image": "a/t:latest"}, "no digest"),
])  # fmt: skip
def test_terms_that_cannot_be_are_refused_when_they_are_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GCEPlace(**TERMS | {"fill": {"weights": FILL | changed}})


def test_a_disk_has_one_folder() -> None:
    with pytest.raises(ValueError, match="`data_disks` names it too"):
        GCEPlace(**TERMS | {"fill": {"weights": FILL}, "data_disks": ["weights"]})
    with pytest.raises(ValueError, match="8 disks at most"):
        GCEPlace(**TERMS | {"fill": {f"w{n}": FILL for n in range(5)}, "data_disks": ["a", "b", "c", "d"]})


def test_the_key_is_that_of_the_content() -> None:
    """Its price, machine and size change nothing; a commit, a pattern or a sum does."""
    key = FillTerms(**FILL).key
    assert FillTerms(**FILL | {"size_gib": 300, "spot": False, "usd_per_hour": 1}).key == key
    assert FillTerms(**FILL | {"include": ["a"]}).key != key
    assert FillTerms(**FILL | {"sources": [COMMIT[:-1] + "f"]}).key != key


def written(folder: Path, fill: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the place `gpu` and these lines of a disk."""
    rows = "".join(f"{key} = {json.dumps(value)}\n" for key, value in TERMS.items())
    (folder / "places.toml").write_text(f"[places.gpu]\n{rows}[places.gpu.fill.weights]\n{fill}")
    monkeypatch.setenv("TONNAGE_HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


def test_the_command_fills_and_removes(
    google: FakeGoogle, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What happens is told on stderr; the answer names disk, zones and digest."""
    fill = "".join(f"{key} = {json.dumps(value)}\n" for key, value in shop.terms.items())
    written(tmp_path, fill, monkeypatch)
    assert run(["places", "fill", "gpu", "-o", "json"]) == 0
    shown = capsys.readouterr()
    [told] = json.loads(shown.out)["filled"]
    assert told["zones"] == TERMS["zones"]
    assert "c3-standard-8 (spot) fetches onto" in shown.err
    assert run(["places", "fill", "gpu", "--remove"]) == 0
    assert google.disks.disks == {}
