"""What is sent to a cluster: every form of run on every kind of cluster is one that a real API server takes."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.places.contract import Submission
from tonnage.places.file import read_places
from tonnage.places.kubernetes.checking.judging import judge
from tonnage.places.kubernetes.clouds import ClusterKind
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.manifest import read_manifest
from tonnage.places.kubernetes.place import Form, KubernetesPlace
from tonnage.runs import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec, RunSpec

IMAGE = "registry.example/ml/tonnage@sha256:" + "0" * 64
FOLDER = RunFolder(Path("/home/me/runs/My_run.1"))
SPEC = RunSpec(
    name="My_run.1", task="mlp", data=DataSpec(train=DataSource(location="/data/rows.csv", format="csv")),
    guard=GuardSpec(max_cost_usd=40.0),
)  # fmt: skip
TORCHRUN = Job(runner="torchrun", argv=("python", "-m", "torch.distributed.run", "--standalone", "--nnodes", "1",
                                        "--nproc-per-node", "8", "-m", "work"), processes=8)  # fmt: skip


def place(**given: Any) -> KubernetesPlace:
    terms: dict[str, Any] = {
        "kind": "kubernetes", "context": "train", "namespace": "ml", "image": IMAGE, "cores": 8, "memory_gib": 64,
        "gpus": 8, "gpu": "h100", "gpu_memory_gib": 80, "time_limit_minutes": 60, "volume": "runs",
        "data_volume": "rows",
    }  # fmt: skip
    return KubernetesPlace(**(terms | given))


def sent(asked: KubernetesPlace, *, job: Job = TORCHRUN, number: int = 1) -> Submission:
    return Kubernetes(name="train", place=asked, owner="me@example.org").render(SPEC, job, FOLDER, number=number)


def objects(asked: KubernetesPlace, **given: Any) -> dict[str, dict[str, Any]]:
    """What is sent, by kind."""
    return {one["kind"]: one for one in read_manifest(sent(asked, **given).script)}


def pod_of(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = found["Job"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("form", "cluster", "nodes"), list(itertools.product(get_args(Form), get_args(ClusterKind), (1, 2)))
)  # fmt: skip
def test_a_server_takes_it(form: Form, cluster: ClusterKind, nodes: int) -> None:
    """With and without Kueue, whole GPUs, parts of them, and device claims."""
    for more in (
        {}, {"queue": "research", "priority": "high", "topology": "cloud.google.com/gce-topology-block"},
        {"mig": "1g.10gb", "spot": cluster != "doks", "storage_gib": 100, "storage_class": "fast", "volume": None},
        {"device_class": "gpu.nvidia.com", "priority_class": "high", "runtime_class": "nvidia"},
    ):  # fmt: skip
        if form == "rayjob" and nodes > 1 and more.get("storage_gib"):
            continue
        for one in read_manifest(sent(place(form=form, cluster=cluster, nodes=nodes, **more)).script):
            verdict = judge(one, namespace="ml")
            assert verdict.refusals == (), one["kind"]
            assert verdict.unchecked == ()


def test_the_same_bytes_for_the_same_run() -> None:
    """Twice; another submission of it has other names, and the same storage."""
    asked = place(volume=None, storage_gib=10)
    assert sent(asked) == sent(asked)
    first, second = objects(asked), objects(asked, number=2)
    assert first["Job"]["metadata"]["name"] != second["Job"]["metadata"]["name"]
    assert first["PersistentVolumeClaim"] == second["PersistentVolumeClaim"]
    assert len(first["Job"]["metadata"]["name"]) + len("-99-abcde") <= 63


def test_what_spends_comes_last() -> None:
    """A client that dies before has started nothing."""
    for form in get_args(Form):
        kinds = [one["kind"] for one in read_manifest(sent(place(form=form, nodes=2)).script)]
        assert kinds[-1] == {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "rayjob": "RayJob"}[form]
        assert ("Service" in kinds) == (form == "job")  # the others make their own


def test_the_end_of_a_run_ends_its_job() -> None:
    """Saved because the machine goes: again, uncounted. Ended: not again. A crash without a word: so often."""
    spec = objects(place(retries=3))["Job"]["spec"]
    rules = {tuple(rule["onExitCodes"]["values"]): rule["action"] for rule in spec["podFailurePolicy"]["rules"][:2]}
    assert rules == {(75,): "Ignore", (1, 2, 76): "FailJob"}
    [pod_taken] = [rule for rule in spec["podFailurePolicy"]["rules"] if "onPodConditions" in rule]
    assert (pod_taken["action"], pod_taken["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (3, 3600)


def test_a_pod_has_no_rights() -> None:
    """Not root, no token of the API, nothing added, a file system that cannot be written, reached by its own only."""
    found = objects(place())
    pod = pod_of(found)
    [container] = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    [peer] = found["NetworkPolicy"]["spec"]["ingress"]
    assert peer["from"][0]["podSelector"] == found["NetworkPolicy"]["spec"]["podSelector"]


@pytest.mark.parametrize("form", ["job", "jobset", "trainjob"])
def test_several_pods_share_the_processes_and_meet_at_the_first(form: Form) -> None:
    """Each starts its part of them; where they meet is in variables, by a name that is there before a pod is ready."""
    asked = sent(place(nodes=4, form=form))
    argv = asked.job.argv
    assert argv[argv.index("--nproc-per-node") + 1] == "2"
    assert {"--standalone", "--nnodes"}.isdisjoint(argv)
    assert asked.job.signal_to == "nobody"  # workers are asked by the folder that the pods share
    started = [text for text in yaml.safe_load_all(asked.script) if text["kind"] not in {"ConfigMap", "NetworkPolicy"}]
    words = next(found for one in started if (found := words_of(one)))
    told = dict(itertools.pairwise(words))
    assert (told["--nodes"], told["--port"], told["--token"]) == ("4", "29500", asked.token)
    name = started[-1]["metadata"]["name"]
    assert told["--host"] == (f"{name}-0.{name}" if form == "job" else f"{name}-node-0-0.{name}")


def words_of(value: Any) -> list[str]:
    """The command of the run's supervisor, wherever it is in an object."""
    if isinstance(value, list):
        if "tonnage.supervisor.pod" in value and "--run" in value:
            return value
        return next((found for one in value if (found := words_of(one))), [])
    return words_of(list(value.values())) if isinstance(value, dict) else []


def test_the_service_of_several_pods_names_them_before_they_are_ready() -> None:
    found = {one["kind"]: one for one in read_manifest(sent(place(nodes=4)).script)}
    name = found["Job"]["metadata"]["name"]
    assert found["Service"]["metadata"]["name"] == pod_of(found)["subdomain"] == name
    assert found["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert (found["Job"]["spec"]["completions"], found["Job"]["spec"]["parallelism"]) == (4, 4)


def test_processes_that_pods_cannot_share_are_refused() -> None:
    """So is a program of one machine."""
    with pytest.raises(InputError, match="8 processes cannot be shared out evenly over 3 machines"):
        sent(place(nodes=3))
    with pytest.raises(InputError, match="works on one machine"):
        sent(place(nodes=2), job=Job(runner="local", argv=("python", "-m", "work")))


@pytest.mark.parametrize(
    ("cluster", "spot", "label", "taints"),
    [
        ("gke", True, ("cloud.google.com/gke-spot", "true"), 2), ("gke", False, None, 1),
        ("eks", True, ("eks.amazonaws.com/capacityType", "SPOT"), 1),
        ("karpenter", False, ("karpenter.sh/capacity-type", "on-demand"), 1),
        ("aks", True, ("kubernetes.azure.com/scalesetpriority", "spot"), 3),
        ("aks", False, ("kubernetes.azure.com/accelerator", "nvidia"), 2),
        ("doks", False, ("doks.digitalocean.com/gpu-brand", "nvidia"), 1),
        ("gke-flex-start", False, ("cloud.google.com/gke-flex-start", "true"), 1),
    ],
)  # fmt: skip
def test_nodes_as_each_cluster_names_them(
    cluster: ClusterKind, spot: bool, label: tuple[str, str] | None, taints: int
) -> None:
    """The type of GPU, how it is bought, the taints that come with it."""
    pod = pod_of(objects(place(cluster=cluster, spot=spot, node_labels={"pool": "a"})))
    assert "h100" in pod["nodeSelector"].values()
    assert pod["nodeSelector"]["pool"] == "a"
    assert label is None or label in pod["nodeSelector"].items()
    assert len(pod["tolerations"]) == taints


def test_pools_of_aks_and_digitalocean_as_they_are_tainted_and_labelled() -> None:
    """Spot's taint, NVIDIA's and the one of AKS's own page are borne; DigitalOcean has no spot nodes."""
    borne = pod_of(objects(place(cluster="aks", spot=True)))["tolerations"]
    assert {(one["key"], one.get("value")) for one in borne} == {
        ("nvidia.com/gpu", None), ("sku", "gpu"), ("kubernetes.azure.com/scalesetpriority", "spot")
    }  # fmt: skip
    assert {one["effect"] for one in borne} == {"NoSchedule"}
    pod = pod_of(objects(place(cluster="doks", gpu="h100", spot=False)))
    assert pod["nodeSelector"]["doks.digitalocean.com/gpu-model"] == "h100"
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu"]
    with pytest.raises(ValueError, match="doks has no nodes that may be taken away"):
        place(cluster="doks", spot=True)


def test_devices_by_claim_or_by_resource() -> None:
    """Never both."""
    by_claim = objects(place(device_class="gpu.nvidia.com"))
    [container] = pod_of(by_claim)["containers"]
    assert container["resources"]["claims"] == [{"name": "devices"}]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    [asked] = by_claim["ResourceClaimTemplate"]["spec"]["spec"]["devices"]["requests"]
    assert asked["exactly"] == {"deviceClassName": "gpu.nvidia.com", "count": 8}
    [part] = pod_of(objects(place(mig="2g.20gb")))["containers"]
    assert part["resources"]["limits"]["nvidia.com/mig-2g.20gb"] == "8"


def test_secrets_are_named_never_written() -> None:
    """By a key of a Secret that the cluster has; a run that needs one is refused without, with the command for it."""
    needs = replace(SPEC, data=DataSpec(train=DataSource(location="s3://${BUCKET_KEY}@b/rows.csv", format="csv")))
    job = replace(TORCHRUN, secrets=("HF_TOKEN", "BUCKET_KEY"))
    executor = Kubernetes(name="train", place=place(), owner="me")
    with pytest.raises(InputError, match="BUCKET_KEY") as refused:
        executor.render(needs, job, FOLDER, number=1)
    assert "kubectl create secret generic" in (refused.value.hint or "")
    pod = pod_of(objects(place(secret="keys"), job=job))
    env = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in pod["containers"][0]["env"] if "valueFrom" in one}
    assert env == {
        "HF_TOKEN": {"name": "keys", "key": "HF_TOKEN", "optional": True},  # set here, perhaps not needed
        "BUCKET_KEY": {"name": "keys", "key": "BUCKET_KEY"},
    }
    assert all("valueFrom" not in one for one in pod_of(objects(place(), job=job))["containers"][0]["env"])


def test_who_and_how_much_stands_on_everything() -> None:
    """Run, owner, token and budget are on each object that only this submission needs."""
    asked = sent(place())
    for one in read_manifest(asked.script):
        if one["kind"] != "ServiceAccount":
            head = one["metadata"]
            assert head["labels"]["tonnage.dev/token"] == asked.token
            assert (head["labels"]["tonnage.dev/owner"], head["labels"]["tonnage.dev/run"]) == (
                "me-example.org",
                "My_run.1",
            )
            assert head["annotations"]["tonnage.dev/max-cost-usd"] == "40"
            assert head["annotations"]["tonnage.dev/tag"] == asked.tag


def test_a_patch_is_merged_and_checked() -> None:
    """What a place adds to an object is in what is sent, and is judged as all of it."""
    patched = objects(place(patch={"Job": {"spec": {"template": {"spec": {"hostIPC": True}}}}}))
    assert pod_of(patched)["hostIPC"] is True
    with pytest.raises(InputError, match=r"Job: spec\.template\.spec\.dnsPolicy: ") as refused:
        sent(place(patch={"Job": {"spec": {"template": {"spec": {"dnsPolicy": "Nope"}}}}}))
    assert "places.train.patch" in (refused.value.hint or "")


def test_files_of_this_machine_are_refused() -> None:
    """A pod has the place's volumes and what lies behind a network."""
    here = replace(SPEC, data=DataSpec(train=DataSource(location="/home/me/rows.csv", format="csv")))
    with pytest.raises(InputError, match="which pods do not see") as refused:
        Kubernetes(name="train", place=place(), owner="me").render(here, TORCHRUN, FOLDER, number=1)
    assert "/data (data_volume)" in (refused.value.hint or "")


def test_the_manifest_is_plain_yaml() -> None:
    """What goes into the pod is read back from it as it was."""
    script = sent(place()).script
    found = {one["kind"]: one for one in yaml.safe_load_all(script)}
    there = json.loads(found["ConfigMap"]["data"]["spec.json"])
    assert (there["name"], there["data"]["prints"]) == ("My_run.1", None)
    assert "&id" not in script


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": "registry.example/ml/tonnage:latest"}, "skopeo inspect"),
        ({"context": None}, "context"),
        ({"namespace": None}, "namespace"),
        ({"volume": None}, "storage_gib"),
        ({"mig": "1g.10gb", "device_class": "gpu.nvidia.com"}, "choose one"),
        ({"priority": "high"}, "needs `queue`"),
    ],
)
def test_a_place_that_is_half_configured(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Each is named with its key, before anything is asked of a cluster."""
    kept = {key: value for key, value in place().model_dump(exclude_defaults=True).items() if key not in given}
    terms = {"kind": "kubernetes"} | kept | {key: value for key, value in given.items() if value is not None}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in terms.items())
    (tmp_path / "places.toml").write_text("[places.train]\n" + lines)
    fault = str(read_places((tmp_path / "places.toml",)).faults["train"])
    assert "places.train" in fault
    assert said in fault
