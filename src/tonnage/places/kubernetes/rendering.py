"""A run as what is sent to a cluster: its work in the pods, its objects, the requests that create them. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.places.contract import Submission, home_mark, tag_of, token_of
from tonnage.places.kubernetes.checking.judging import judge
from tonnage.places.kubernetes.manifest import documents, manifest
from tonnage.places.kubernetes.names import collection_path, names_of
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.kubernetes.pod_template import PodWork
from tonnage.places.record import PlaceRecord
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, across_by_environment
from tonnage.runs.spec import RunSpec


def folder_there(place: KubernetesPlace, folder: RunFolder) -> RunFolder:
    """Where a run lies on the place's volume."""
    return RunFolder(Path(place.mount) / "runs" / home_mark(folder.path.parent) / folder.path.name)


def submission(
    place: KubernetesPlace, spec: RunSpec, job: Job, folder: RunFolder, *, name: str, owner: str, number: int
) -> Submission:
    """`name` is the place's. InputError where the run cannot be sent as the place says."""
    _refuse_local(spec, place, name)
    token, tag = token_of(folder.path, number), tag_of(folder.path, number)
    names = names_of(spec, folder, place, place_name=name, owner=owner, tag=tag, number=number)
    host = first_host(place, names.name)
    job = job if host is None else across_by_environment(job, nodes=place.nodes)
    record = PlaceRecord(place=name, kind="kubernetes", token=token, tag=tag, number=number)
    work = PodWork(names=names, job=job, run=str(folder_there(place, folder).path), host=host)
    found = documents(place, work, spec, record)
    _refuse_refused(found, place, name)
    return Submission(
        place=name, kind="kubernetes", tag=tag, token=token, number=number, script=manifest(found, place.namespace),
        commands=tuple(("POST", collection_path(one, place.namespace), _name(one)) for one in found), job=job,
    )  # fmt: skip


def _refuse_local(spec: RunSpec, place: KubernetesPlace, name: str) -> None:
    """Files of this machine are not sent: a pod has the place's volumes, and what lies behind a network."""
    sources = [one for one in (spec.data.train, spec.data.validation, spec.data.test) if one is not None]
    read = [path for one in sources if one.format not in {"hf", "sql"} for path in (one.location, *one.more)]
    read += [path for path in (spec.weights, spec.config, spec.tokenizer) if path is not None]
    local = [path for path in read if "://" not in path and not place.holds(path)]
    if local:
        mounts = f"{place.mount} (places.{name}.volume)"
        if place.data_volume:
            mounts += f" or {place.data_mount} (data_volume)"
        raise InputError(f"{local[0]} lies on this machine, which pods do not see",
                         hint=f"copy it to {mounts}, or name it behind s3://, gs://, az://, hf://")  # fmt: skip


def _refuse_refused(found: list[dict[str, Any]], place: KubernetesPlace, name: str) -> None:
    """What an API server would not take is refused before one is asked: InputError with kind and field."""
    wrong = [
        f"{one['kind']}: {refusal}" for one in found for refusal in judge(one, namespace=place.namespace).refusals
    ]  # fmt: skip
    if wrong:
        patched = f"; it is patched by places.{name}.patch" if place.patch else ""
        raise InputError(f"a Kubernetes API server would refuse the run: {'; '.join(wrong)}",
                         hint=f"correct places.{name}{patched}")  # fmt: skip


def first_host(place: KubernetesPlace, name: str) -> str | None:
    """The name of pod 0 as the other pods reach it; None where there is no other, or Ray looks after them."""
    if place.nodes == 1 or place.form == "rayjob":
        return None
    return f"{name}-0.{name}" if place.form == "job" else f"{name}-node-0-0.{name}"


def _name(document: dict[str, Any]) -> str:
    name: str = document["metadata"]["name"]
    return name
