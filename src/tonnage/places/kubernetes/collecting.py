"""What a run has made comes here: from its pod while it runs, else through a pod that only holds its volume."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.contract import read_tag
from tonnage.places.kubernetes.client import ApiError, KubernetesClient
from tonnage.places.kubernetes.mirror import merge_whole
from tonnage.places.kubernetes.names import HELPER, HOME, MANAGED, TAG, TOKEN, label_value, path_of
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.pod_template import ACCOUNT, CONTAINED, CONTAINER, POD_PROGRAM, claim_name, security
from tonnage.places.kubernetes.rendering import folder_there
from tonnage.places.kubernetes.streams import run_in_pod
from tonnage.places.record import PlaceRecord
from tonnage.runs.folder import RunFolder

Document = dict[str, Any]
START_TIMEOUT_S: Final = 300.0
TICK_S: Final = 0.5
SPOOL_BYTES: Final = 64 << 20
HELPER_MEMORY: Final = "512Mi"
HELPER_LIFE_S: Final = 3600


def bring(
    client: KubernetesClient, place: KubernetesPlace, record: PlaceRecord, folder: RunFolder,
    running: Mapping[str, Any] | None,
    path: Callable[[Mapping[str, Any]], str],
) -> None:  # fmt: skip
    """Unpack the run's files into the folder here. TonnageError where no pod can reach them."""
    pod = running
    helper = None if pod is not None else _helper(client, place, record)
    try:
        target = path(pod) if pod is not None else _started(client, place, helper)
        _unpack(client, place, record, target, folder)
    finally:
        if helper is not None:
            client.delete(path_of("v1", "Pod", place.namespace, helper["metadata"]["name"]), grace_s=1)


def _unpack(client: KubernetesClient, place: KubernetesPlace, record: PlaceRecord, pod: str, folder: RunFolder) -> None:
    import tarfile
    import tempfile

    run = str(folder_there(place, folder).path)
    said: list[bytes] = []
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as archive:
        argv = [place.python, "-m", POD_PROGRAM, "--pack", "--run", run]
        code = run_in_pod(client, pod, argv, out=archive.write, err=said.append)
        if code:
            last = b"".join(said).decode(errors="replace").strip().splitlines()[-1:]
            raise TonnageError(f"the run's files cannot be packed: {' '.join(last)}", hint=f"`tonnage show {run}`")
        archive.seek(0)
        with tarfile.open(fileobj=archive) as members:
            members.extractall(folder.path, filter="data")
    merge_whole(folder, record.token, Path(run))


def _helper(client: KubernetesClient, place: KubernetesPlace, record: PlaceRecord) -> Document:
    """A pod with the run's volume and nothing to do. It says whose it is, so that `orphans` finds it."""
    tag = read_tag(record.tag)
    assert tag is not None
    claim = place.volume or claim_name(label_value(record.place), tag[0])
    amounts = {"cpu": "1", "memory": HELPER_MEMORY}
    labels = {MANAGED: "tonnage", HOME: tag[0], TOKEN: record.token, HELPER: "collect", **place.labels}
    container = {
        "name": CONTAINER, "image": place.image, "command": [place.python, "-m", POD_PROGRAM, "--wait"],
        "resources": {"requests": amounts, "limits": amounts}, "securityContext": CONTAINED,
        "volumeMounts": [{"name": "work", "mountPath": place.mount}],
    }  # fmt: skip
    spec: Document = {
        "serviceAccountName": place.service_account or ACCOUNT, "automountServiceAccountToken": False,
        "restartPolicy": "Never", "activeDeadlineSeconds": HELPER_LIFE_S, "securityContext": security(place),
        "containers": [container], "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": claim}}],
    }  # fmt: skip
    if place.pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": place.pull_secret}]
    name = f"collect-{record.token}"
    head = {"name": name, "labels": labels, "annotations": {TAG: record.tag}}
    pod: Document = {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}
    try:
        return client.create(path_of("v1", "Pod", place.namespace), pod)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return pod


def _started(client: KubernetesClient, place: KubernetesPlace, pod: Document | None) -> str:
    assert pod is not None
    path = path_of("v1", "Pod", place.namespace, pod["metadata"]["name"])
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        there = client.get(path)
        phase = "gone" if there is None else (there.get("status") or {}).get("phase")
        if phase == "Running":
            return path
        if phase in {"Failed", "Succeeded", "gone"} or time.monotonic() > until:
            hint = f"`kubectl -n {place.namespace} describe pod {pod['metadata']['name']}`"
            raise TonnageError(f"the pod that brings the run's files is {phase}", hint=hint)
        time.sleep(TICK_S)
