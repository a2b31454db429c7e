"""Several instances of Compute Engine for one run: what is sent, all or none, and how their GPUs are joined."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places.google.test_compute import GPUS, TERMS, WORK, cloud

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.boot import docker_words
from tonnage.places.google import machine
from tonnage.places.google.checks import quotas_of
from tonnage.places.google.gpudirect import OF_TYPES, READY, machine_lines
from tonnage.places.google.machine import machine_names
from tonnage.places.google.schema import check_instances
from tonnage.places.states import Phase
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.http_service import HTTPAnswer, times

pytestmark = pytest.mark.heavy
MEGA = {**GPUS, "instance_type": "a3-megagpu-8g", "gpu_subnets": [f"g{one}" for one in range(8)]}
HIGH = {**GPUS, "gpu_subnets": [f"g{one}" for one in range(4)]}
NAMES = tuple(f"t-first-0a1b2c3d-0123456789ab-{one:03d}" for one in range(3))


@pytest.fixture(autouse=True)
def nobody_signs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretended machine has no metadata service to ask for a token of the registry."""
    monkeypatch.setattr(machine, "login", lambda _: ())


FORMS: list[dict[str, Any]] = [
    {}, {"spot": True, "grace_s": 20}, {**GPUS, "placement_policy": "close"}, HIGH, {**MEGA, "gpudirect": False},
    {**MEGA, "reservation": "mine", "reservation_bound": True}, {"data_disks": ["weights"]},
    {"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4", "gpus": 2},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_all_are_asked_of_one_zone_or_none(form: dict[str, Any]) -> None:
    """One request for each zone, that the discovery document has; types, disks and policies by their names alone."""
    requests = cloud(nodes=3, **form).requests(WORK)
    assert [one.service.partition("?")[0].split("/")[-3] for one in requests] == TERMS["zones"]
    for one in requests:
        check_instances(one.body)
        assert (one.operation, one.body["count"], one.body["minCount"]) == ("instances.bulkInsert", "3", "3")
        assert tuple(one.body["perInstanceProperties"]) == NAMES
        made = one.body["instanceProperties"]
        assert made["machineType"] == form.get("instance_type", "n2-standard-2")
        assert made.get("resourcePolicies") == (["close"] if "placement_policy" in form else None)
        kinds = [disk["initializeParams"]["diskType"] for disk in made["disks"] if "initializeParams" in disk]
        assert kinds == ["pd-balanced"]
        assert [disk["source"] for disk in made["disks"] if "source" in disk] == form.get("data_disks", [])
        assert [card["acceleratorType"] for card in made.get("guestAccelerators", ())] == (
            ["nvidia-tesla-t4"] if "accelerator" in form else []
        )
        assert len(made["networkInterfaces"]) == 1 + len(form.get("gpu_subnets", ()))
        assert {card["nicType"] for card in made["networkInterfaces"]} == {"GVNIC"}
        bound = form.get("reservation_bound", False)
        assert ("maxRunDuration" in made["scheduling"]) == (not bound)
        assert (made["scheduling"]["provisioningModel"] == "RESERVATION_BOUND") == bound
        assert made["labels"]["tonnage-token"] == WORK.token


def test_names_are_short_enough_and_the_same_whoever_sends() -> None:
    """The run's part gives way, never home, token or number."""
    long = replace(WORK, name=f"t-{'r' * 36}-{WORK.home}-{WORK.token}")
    names = machine_names(long, 1000)
    assert {len(one) for one in names} == {63}
    assert len(set(names)) == 1000
    assert all(f"-{WORK.home}-{WORK.token}-" in one for one in names)
    assert machine_names(WORK, 3) == NAMES


def test_a_machine_finds_its_own_name() -> None:
    """All have one script: what one of them deletes at its end is itself."""
    script = machine.end_script(cloud(nodes=2).place, WORK, "us-central1-a")
    assert "instances/$(curl -sf -H Metadata-Flavor:Google http://metadata.google.internal" in script
    assert f"instances/{WORK.name} " in machine.end_script(cloud().place, WORK, "us-central1-a")


REFUSED = [
    ({"flex_start": True, "nodes": 2}, "waits for one machine"), ({"nodes": 0}, "nodes"), ({"nodes": 1001}, "nodes"),
    ({"flex_start": True, "spot": True, "grace_s": 20}, "neither spot nor reserved"),
    ({"flex_start": True, "reservation": "mine"}, "neither spot nor reserved"),
    ({"flex_start": True, "time_limit_minutes": 20_000}, "7 days"), ({"max_wait_minutes": 1}, "max_wait_minutes"),
    ({"reservation_bound": True}, "needs its `reservation`"),
    ({"gpudirect": False, "gpudirect_plugin": "a/b:c"}, "which is off"),
    ({**MEGA, "gpu_subnets": ["g1"]}, "has 8 of these"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_what_does_not_go_together_is_refused_when_the_place_is_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(**changed)


def test_what_the_service_would_refuse_is_refused_before_anything_is_sent() -> None:
    """A patch of the request for all, and one of an instance, which goes into it."""
    with pytest.raises(InputError, match=r"instances\.bulkInsert would refuse the request: minCont: there is no such"):
        cloud(nodes=2, patch={"instances.bulkInsert": {"minCont": "1"}}).requests(WORK)
    patch = {"instances.insert": {"tags": {"items": ["ml"]}}}
    for one in cloud(nodes=2, patch=patch).requests(WORK):
        assert one.body["instanceProperties"]["tags"] == {"items": ["ml"]}


def test_flex_start_waits_for_its_capacity(google: FakeGoogle) -> None:
    """One machine: it is there at once, waiting, and its state says so; the request says how long it may wait."""
    one = cloud(flex_start=True, max_wait_minutes=30, zones=["us-central1-a"])
    [request] = one.requests(WORK)
    assert request.body["params"] == {"requestValidForDuration": {"seconds": "1800"}}
    assert request.body["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert request.body["scheduling"]["provisioningModel"] == "FLEX_START"
    google.flex_s, google.operation_s = 600, 5.0
    made = one.send((request,), WORK.token)
    assert one.view(made).phase is Phase.QUEUED
    google.flex_s = google.boot_s = 0.0
    until = time.monotonic() + 60
    while one.view(made).phase in {Phase.QUEUED, Phase.PROVISIONING}:
        assert time.monotonic() < until
        time.sleep(0.05)


# the service


def test_several_instances_are_one_job(google: FakeGoogle) -> None:
    """Sent twice they are the same; one that spot takes is named while the others work; all are ended together."""
    google.boot_s = 600
    one = cloud(nodes=3)
    made = one.send(one.requests(WORK), WORK.token)
    assert made == ",".join(f"us-central1-a/{name}" for name in NAMES)
    assert (sorted(google.instances), one.send(one.requests(WORK), WORK.token)) == (list(NAMES), made)
    assert one.find(WORK.token) == made
    [job] = one.tagged("0a1b2c3d")
    assert (job.job_id, job.view.phase) == (made, Phase.PROVISIONING)
    google.interrupt(NAMES[1])
    until = time.monotonic() + 60
    while NAMES[1] in google.instances:
        assert time.monotonic() < until
        time.sleep(0.02)
    view = one.view(made)
    assert (view.phase, view.reason) == (Phase.PROVISIONING, f"us-central1-a/{NAMES[1]}: Spot took the machine")
    assert one.find(WORK.token) == made  # the one that is gone belongs to the job
    one.end(made, WORK.token)
    while google.instances:
        assert time.monotonic() < until
        time.sleep(0.02)
    one.end(made, WORK.token)
    assert one.view(made).phase is Phase.GONE


def test_too_few_are_none_and_the_next_zone_is_asked(google: FakeGoogle) -> None:
    """What the first zone had is taken back; the message of each is that of its operations, not of the whole."""
    google.boot_s = 600
    google.has = {"us-central1-a": 2}
    one = cloud(nodes=3)
    made = one.send(one.requests(WORK), WORK.token)
    assert {each.partition("/")[0] for each in made.split(",")} == {"us-central1-b"}
    assert {each.zone for each in google.instances.values()} == {"us-central1-b"}
    google.has |= {"us-central1-b": 0}
    other = replace(WORK, token="ba9876543210", name="t-first-0a1b2c3d-ba9876543210")
    with pytest.raises(TonnageError) as raised:
        one.send(one.requests(other), other.token)
    assert "us-central1-a: ZONE_RESOURCE_POOL_EXHAUSTED: us-central1-a has 2 of 3 now" in raised.value.message
    assert "--on any" in (raised.value.hint or "")


def test_a_quota_that_lacks_is_asked_of_no_second_zone(google: FakeGoogle) -> None:
    google.full = {"us-central1-a": "QUOTA_EXCEEDED"}
    one = cloud(nodes=3)
    with pytest.raises(TonnageError, match="us-central1-a: QUOTA_EXCEEDED") as raised:
        one.send(one.requests(WORK), WORK.token)
    assert "us-central1-b" not in raised.value.message
    assert "places check" in (raised.value.hint or "")


def test_an_answer_that_is_lost_makes_no_second_ones(google: FakeGoogle) -> None:
    """And who asks while they are made learns all of their names."""
    google.boot_s = 600
    google.after.append(times(1, HTTPAnswer(status=503, document={}), "POST", "/bulkInsert"))
    one = cloud(nodes=3)
    made = one.send(one.requests(WORK), WORK.token)
    assert sorted(google.instances) == list(NAMES)
    del google.instances[NAMES[2]]  # not there yet
    assert one.find(WORK.token) == made


def test_names_that_another_has_are_refused(google: FakeGoogle) -> None:
    google.boot_s = 600
    one = cloud(nodes=3)
    one.send(one.requests(WORK), WORK.token)
    google.instances[NAMES[0]].body["labels"]["tonnage-token"] = "ba9876543210"
    google.by_request.clear()
    with pytest.raises(TonnageError, match="already exists"):
        one.send(one.requests(WORK), WORK.token)


def found(kind: str, **changed: Any) -> dict[str, str]:
    """Messages and hints of one kind of finding."""
    return {one.message: one.hint for one in cloud(**changed).questions() if one.kind == kind}


def test_check_asks_for_all_machines(google: FakeGoogle) -> None:
    """Quota, reservation, placement, and a network that lets them meet."""
    h100 = cloud(nodes=4, **HIGH).place
    assert quotas_of(h100, [("nvidia-h100-80gb", 8)]) == {"NVIDIA_H100_GPUS": 32}
    region = "compute/v1/projects/my-project/regions/us-central1"

    assert found("refused", nodes=2, placement_policy="close", reservation="mine") == {}
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"nodes": 3, "reservation": "mine"}, "has 2 machines left: 3 are needed", "nodes = 2"),
        ({"reservation": "none"}, "no reservation none in us-central1-a, us-central1-b", "reservations list"),
        ({"nodes": 2, "placement_policy": "none"}, "no placement policy none", "--collocation=collocated"),
        ({"nodes": 2, "placement_policy": "apart"}, "does not place machines close", "--collocation=collocated"),
    ]  # fmt: skip
    for changed, message, hint in table:
        told = found("refused", **changed)
        assert any(message in said and hint in mends for said, mends in told.items()), (changed, told)
    google.there[f"{region}/resourcePolicies/close"]["groupPlacementPolicy"]["vmCount"] = 4
    assert any("of 4 machines alone" in said for said in found("refused", nodes=2, placement_policy="close"))
    google.rights.discard("compute.resourcePolicies.use")
    assert any("compute.resourcePolicies.use" in said for said in found("refused", placement_policy="close"))
    assert not any("reach each other" in said for said in found("doubtful", nodes=2))
    rule = google.there["compute/v1/projects/my-project/global/firewalls"]["items"][0]
    for broken in ({"disabled": True}, {"sourceRanges": ["192.168.0.0/16"]}, {"direction": "EGRESS"},
                   {"allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}):  # fmt: skip
        kept = dict(rule)
        rule.update(broken)
        told = found("doubtful", nodes=2)
        assert any("lets the machines of default reach each other" in said and "firewall-rules create" in mends
                   for said, mends in told.items()), (broken, told)  # fmt: skip
        assert not any("reach each other" in said for said in found("doubtful"))
        rule.clear()
        rule.update(kept)
    told = found("doubtful", nodes=2, **GPUS)
    assert any("4 cards beside the GPUs of a3-highgpu-8g" in said for said in told), told
    google.there["compute/v1/projects/ml/global/images/family/gpu"]["guestOsFeatures"] = [{"type": "UEFI_COMPATIBLE"}]
    assert any("no driver of gVNIC" in said for said in found("refused"))


# GPUDirect


STUBS = {
    "curl": 'a="$*"; n="${a##*interfaces/}"; [ "$n" != "$a" ] && echo "42:01:0A:00:00:0${n%%/*}"',
    "docker": 'echo "$@" >> "$ROOT/docker"; case "$*" in logs*) cat "$ROOT/said";; inspect*) cat "$ROOT/runs";; esac',
    "iptables": "exit 0", "modprobe": 'echo "$@" > "$ROOT/modprobe"', "mountpoint": "exit 1",
    "mount": 'echo "$@" >> "$ROOT/mounts"', "sleep": "exit 0",
}  # fmt: skip
PATHS = ("/proc/sys/net", "/dev/infiniband", "/var/lib/gib", "/sys/class/net", "/sys/bus/pci", "/dev/aperture_devices",
         "/opt/tonnage", "/var/lib/tcpxo", "/run/tcpx")  # fmt: skip


def booted(kind: str, root: Path, *, works: bool = True) -> tuple[int, dict[str, str], str]:
    """What a machine's lines do on one that is laid out below a folder: exit code, the container's variables, calls."""
    bin_folder = root / "bin"
    bin_folder.mkdir(parents=True)
    for name, text in STUBS.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_folder / name).chmod(0o755)
    (root / "said").write_text(f"I0000 {READY}.\n" if works else "E0000 no GPU\n")
    (root / "runs").write_text("true\n" if works else "false\n")
    for number in range(9):  # the system's own order is another than the cloud's
        card = root / "sys/class/net" / f"enp{9 - number}s0"
        card.mkdir(parents=True)
        (card / "address").write_text(f"42:01:0a:00:00:0{number}\n")
    for number, device in enumerate(("0x0084", "0x0042")):
        pci = root / "sys/bus/pci/devices" / f"0000:0{number}:00.1"
        pci.mkdir(parents=True)
        (pci / "vendor").write_text("0x1ae0\n")
        (pci / "device").write_text(f"{device}\n")
    (root / "opt/tonnage").mkdir(parents=True)
    (root / "dev/infiniband").mkdir(parents=True)
    (root / "proc/sys/net/ipv4/conf/gpu0rdma0").mkdir(parents=True)
    (root / "proc/sys/net/ipv4/conf/gpu0rdma0/log_martians").write_text("1\n")
    if works:
        (root / "var/lib/gib/scripts").mkdir(parents=True)
        (root / "var/lib/gib/scripts/set_nccl_env.sh").write_text("export NCCL_NET=gIB\n")
    profile = root / "var/lib/tcpxo/lib64/nccl-env-profile.sh"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        'export NCCL_NET_GDR_LEVEL=PIX\nNCCL_FASTRAK_IFNAME=eth1\nOTHER="$LD_LIBRARY_PATH_THAT_IS_NONE"\n'
    )
    found = OF_TYPES[kind]
    script = "\n".join(("set -euo pipefail", *machine_lines(found, plugin=found.plugin, daemon=found.daemon)))
    for path in PATHS:
        script = script.replace(path, f"{root}{path}")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "ROOT": str(root)}
    code = subprocess.run(["bash", "-c", script], env=env, check=False, capture_output=True, text=True)
    variables = root / "opt/tonnage/nccl.env"
    lines = variables.read_text().splitlines() if variables.exists() else []
    calls = (root / "docker").read_text() if (root / "docker").exists() else ""
    return code.returncode, dict(line.split("=", 1) for line in lines), calls + code.stdout + code.stderr


def test_tcpx_names_the_machines_own_cards(tmp_path: Path) -> None:
    """By their addresses; the daemon runs before the container, which gets every variable, each on a line."""
    code, variables, calls = booted("a3-highgpu-8g", tmp_path / "x")
    assert code == 0, calls
    assert variables["NCCL_SOCKET_IFNAME"] == variables["NCCL_GPUDIRECTTCPX_CTRL_DEV"] == "enp9s0"
    assert variables["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] == "enp8s0,enp7s0,enp6s0,enp5s0"
    assert variables["NCCL_GPUDIRECTTCPX_TX_BINDINGS"].startswith(
        "enp8s0:8-21,112-125;enp7s0:8-21,112-125;enp6s0:60-73"
    )
    assert variables["NCCL_GPUDIRECTTCPX_RX_BINDINGS"].endswith("enp5s0:74-87,178-191")
    assert all(" " not in value for value in variables.values())
    install, _, daemon, *_ = calls.splitlines()
    assert install.endswith("nccl-plugin-gpudirecttcpx-dev:v3.1.9 install --install-nccl")
    assert "--gpu_nic_preset a3vm --gpu_shmem_type fd" in daemon
    assert "--cap-add NET_ADMIN" in daemon
    assert "--privileged" not in daemon


def test_tcpxo_takes_googles_profile_and_the_machines_own_cards(tmp_path: Path) -> None:
    """Variables of the profile count, exported or not; names of cards and the place of their memory go before."""
    code, variables, calls = booted("a3-megagpu-8g", tmp_path / "x")
    root = tmp_path / "x"
    assert code == 0, calls
    assert variables["NCCL_FASTRAK_IFNAME"] == ",".join(f"enp{one}s0" for one in range(8, 0, -1))
    assert variables["NCCL_FASTRAK_CTRL_DEV"] == "enp9s0"
    assert variables["NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"] == f"{root}/dev/aperture_devices"
    assert variables["NCCL_NET_GDR_LEVEL"] == "PIX"
    assert "OTHER" not in variables
    mounts = (root / "mounts").read_text().splitlines()
    assert [line.rpartition("/")[2] for line in mounts] == ["0000:00:00.1"]  # the one that is such a card
    assert (root / "modprobe").read_text() == "import-helper\n"
    assert "--num_hops=2" in calls


ULTRA = {
    "instance_type": "a3-ultragpu-8g", "gpus": 8, "gpu": "h200", "gpu_memory_gib": 141, "second_subnet": "second",
    "gpu_subnets": [f"rdma-{at}" for at in range(8)], "zones": ["us-central1-a"],
}  # fmt: skip


def test_rdma_cards_need_the_plugin_alone(tmp_path: Path) -> None:
    """It is laid down, no daemon runs, and the first card carries what NCCL says at the start."""
    for kind in ("a3-ultragpu-8g", "a4-highgpu-8g"):
        root = tmp_path / kind
        code, variables, calls = booted(kind, root)
        assert code == 0, calls
        assert variables == {"NCCL_SOCKET_IFNAME": "enp9s0"}
        [install] = calls.splitlines()
        assert install.endswith("nccl-plugin-gib:v1.0.6 install --install-nccl")
        assert "--entrypoint /scripts/container_entry.sh" in install
        assert (root / "proc/sys/net/ipv4/conf/gpu0rdma0/log_martians").read_text() == "0\n"
    code, variables, calls = booted("a4-highgpu-8g", tmp_path / "none", works=False)
    assert (code, variables) == (1, {})
    assert calls.splitlines()[-1].endswith("scripts/set_nccl_env.sh down")


def test_rdma_machines_have_two_cards_of_google_and_eight_of_rdma(tmp_path: Path) -> None:
    """In the request; the container sees the plugin where its script looks, and reads that script."""
    place = cloud(nodes=2, **ULTRA).place
    body = machine.instance(place, WORK, "us-central1-a")
    cards = [(one["subnetwork"].rpartition("/")[2], one["nicType"]) for one in body["networkInterfaces"]]
    assert cards == [("default", "GVNIC"), ("second", "GVNIC"), *((f"rdma-{at}", "MRDMA") for at in range(8))]
    words = docker_words(place, replace(WORK, command=("sh", "-c", 'echo "$LD_LIBRARY_PATH $NCCL_NET $$"')))
    assert words[words.index("/var/lib/gib:/usr/local/gib:ro") - 1] == "--volume"
    assert not any(word.startswith("/usr/local/gib/lib64:") for word in words)
    assert words[words.index("/dev/infiniband") - 1] == "--device"
    at = words.index(place.image)
    assert words[at - 2 : at] == ("--entrypoint", "/bin/bash")
    script = tmp_path / "set_nccl_env.sh"
    script.write_text("NCCL_NET=gIB\n")
    told = [word.replace("/usr/local/gib/scripts/set_nccl_env.sh", str(script)) for word in words[at + 1 :]]
    with subprocess.Popen(
        ["/bin/bash", *told], env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.read() == f"/usr/local/gib/lib64 gIB {shell.pid}\n"
    requests = cloud(nodes=2, **ULTRA).requests(WORK)  # held to the discovery document
    assert requests == cloud(nodes=2, **ULTRA).requests(WORK)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"second_subnet": None}, "go together"), ({"gpu_subnets": []}, "go together"),
        ({"gpu_subnets": ["a"]}, "a subnet of the one RoCE network"),
        ({"zones": ["us-central1-a", "us-central1-b"]}, "in one zone"), ({"gpudirect_daemon": "x"}, "has none"),
    ],
)  # fmt: skip
def test_an_rdma_place_half_configured_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(nodes=2, **ULTRA | changed)


def test_check_wants_the_profile_of_the_zone(google: FakeGoogle) -> None:
    """A network without it takes no RDMA cards; the second card's network wants large frames."""
    region = "compute/v1/projects/my-project/regions/us-central1"
    roce = f"{google.url}/compute/v1/projects/my-project/global/networks/roce"
    for at in range(8):
        google.there[f"{region}/subnetworks/rdma-{at}"] = {"network": roce}
    google.there[f"{region}/subnetworks/second"] = {"network": roce.replace("roce", "default")}
    google.there["compute/v1/projects/my-project/global/networks/roce"] = {}
    told = found("refused", nodes=2, **ULTRA)
    assert any("has no profile" in said and "us-central1-a-vpc-roce" in mends for said, mends in told.items()), told
    profile = "https://compute.googleapis.com/compute/v1/projects/p/global/networkProfiles/us-central1-a-vpc-roce"
    google.there["compute/v1/projects/my-project/global/networks/roce"] = {"networkProfile": profile}
    assert not any("profile" in said for said in found("refused", nodes=2, **ULTRA))
    assert any("the network of second has an MTU of 1460" in said for said in found("doubtful", nodes=2, **ULTRA))


@pytest.mark.parametrize("kind", ["a3-highgpu-8g", "a3-megagpu-8g"])
def test_a_daemon_that_does_not_work_ends_the_machine_and_is_the_last_that_it_says(kind: str, tmp_path: Path) -> None:
    code, variables, calls = booted(kind, tmp_path / "x", works=False)
    assert code == 1
    assert variables == {}
    assert calls.splitlines()[-2:] == ["E0000 no GPU", f"the daemon of {OF_TYPES[kind].name} does not work"]


def test_the_container_takes_the_plugins_libraries_first_and_becomes_the_work(tmp_path: Path) -> None:
    """What the image names stays behind them; the work is the container's first process, which gets signals."""
    place = cloud(nodes=2, **MEGA).place
    words = docker_words(place, replace(WORK, command=("sh", "-c", 'echo "$LD_LIBRARY_PATH $1 $$"', "x", "a b")))
    at = words.index(place.image)
    assert words[at - 2 : at] == ("--entrypoint", "/bin/sh")
    for folder in ("/var/lib/tcpxo/lib64:/var/lib/tcpxo/lib64:ro", "/dev/aperture_devices:/dev/aperture_devices"):
        assert words[words.index(folder) - 1] == "--volume"
    assert words[words.index("/opt/tonnage/nccl.env") - 1] == "--env-file"
    assert "IPC_LOCK" in words
    for before, after in ((None, ""), ("/usr/local/cuda", ":/usr/local/cuda")):
        env = {"PATH": "/usr/bin:/bin", **({} if before is None else {"LD_LIBRARY_PATH": before})}
        with subprocess.Popen(["/bin/sh", *words[at + 1 :]], env=env, stdout=subprocess.PIPE, text=True) as shell:
            assert shell.stdout is not None
            assert shell.stdout.read() == f"/var/lib/tcpxo/lib64{after} a b {shell.pid}\n"
    (tmp_path / "first").write_text(machine.instance(place, WORK, "us-central1-a")["metadata"]["items"][0]["value"])
    subprocess.run(["bash", "-n", str(tmp_path / "first")], check=True)


def test_a_machine_alone_has_none_of_it() -> None:
    """Nor have several without cards beside their GPUs, whose NCCL keeps to the first card."""
    assert cloud(**MEGA).place.direct is None
    one = docker_words(cloud(**MEGA).place, WORK)
    assert one[one.index("--entrypoint") + 1] == "sleep"
    several = docker_words(cloud(nodes=2, **GPUS).place, WORK)
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth" in several
    assert not any("nccl.env" in word for word in several)
