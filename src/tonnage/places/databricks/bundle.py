"""A Databricks Asset Bundle of a workload: its job with cluster, pool and policy, and what it reads and makes. Pure.

What places.toml names (policy, secret scope, volume) is there already; what it does not name the bundle makes. The
endpoint is a bundle of its own: it can be made only once the job has registered a version of the model.
Sources: databricks-bundles 1.22 (its models of resources); Databricks, «Asset Bundles: resources», «Pools».
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.places.bucket.cloud import Body, Work
from tonnage.places.databricks.jobs import cluster
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.values import dataclass

ENTRY_POINT: Final = "tonnage-verb"  # of the package: pyproject.toml
KEPT: Final = "TONNAGE_KEEP_IN"  # a folder of a volume, for `supervisor/wheel_task.py`
MODEL: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
IDLE_MINUTES: Final = 15  # of a pool's machine: it costs the cloud's price, no units
TARGET: Final = "prod"  # no other: names of development have a prefix, and a run registers its model by its name
WORKED: Final = 0.95  # of a job's time; what is left is for the last checkpoint and the copy of what was made
FILES: Final = "${workspace.file_path}"
RUN: Final = "{{job.run_id}}"
POOLED: Final = frozenset({"availability", "first_on_demand", "zone_id", "ebs_volume_type", "ebs_volume_count",
                           "ebs_volume_size"})  # fmt: skip
# attributes that are the pool's own, of a cluster whose machines come from one


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """What a bundle is made of."""

    place: DatabricksPlace
    run: str  # the name of the run
    file: str  # of the workload, in the bundle
    model: str | None  # CATALOG.SCHEMA.NAME that the run registers; None: none is registered
    work: Work  # its cluster's tags, variables and secrets
    served_on: str = "CPU"  # workload_type of the endpoint

    @property
    def key(self) -> str:
        """Of resources.

        A name such as `BERT base.2` has the key `bert_base_2`.
        """
        return re.sub(r"[^a-z0-9]+", "_", self.run.lower()).strip("_") or "run"

    @property
    def volume(self) -> tuple[str, str, str]:
        """Catalog, schema and volume that runs are kept in."""
        _, _, catalog, schema, volume, *_ = self.place.bucket.split("/")
        return catalog, schema, volume


def bundle_of(one: Bundled) -> dict[str, Body]:
    """The file of each bundle: `databricks.yml`, and where a model is registered that of its endpoint.

    InputError where the place keeps runs in no volume, or the model's name is not one of Unity Catalog.
    """
    if not one.place.bucket.startswith("/Volumes/"):
        raise InputError(f"a bundle keeps runs in a volume, not in {one.place.bucket}",
                         hint="places.NAME.bucket = \"/Volumes/CATALOG/SCHEMA/VOLUME/FOLDER\"")  # fmt: skip
    if one.model is not None and not MODEL.fullmatch(one.model):
        raise InputError(f"'{one.model}' is not a name of a model in Unity Catalog",
                         hint="`run.tracking.register_as: CATALOG.SCHEMA.NAME`")  # fmt: skip
    files = {"databricks.yml": _bundle(one)}
    if one.model is not None:
        files["serving/databricks.yml"] = _serving(one, one.model)
    return files


def _bundle(one: Bundled) -> Body:
    workspace = {} if one.place.profile is None else {"workspace": {"profile": one.place.profile}}
    run_as = {} if one.place.run_as is None else {"run_as": {"service_principal_name": one.place.run_as}}
    return {
        "bundle": {"name": one.key},
        **workspace,
        "targets": {TARGET: {"default": True, **run_as}},
        "resources": {kind: made for kind, made in _resources(one) if made},
    }


def _resources(one: Bundled) -> Iterator[tuple[str, Body]]:
    """By kind, what nothing else needs first."""
    catalog, schema, _ = one.volume
    yield "experiments", {one.key: {"name": f"/Shared/{one.key}"}}
    if one.model is not None:
        names = dict(zip(("catalog_name", "schema_name", "name"), one.model.split("."), strict=True))
        yield "registered_models", {one.key: {**names, "comment": f"made by the job {one.run}"}}
    yield "volumes", {one.key: {"catalog_name": catalog, "schema_name": schema, "name": f"{one.key}_runs",
                                "volume_type": "MANAGED", "comment": f"what runs of {one.run} have made"}}  # fmt: skip
    if one.work.secrets and one.place.secret is None:
        yield "secret_scopes", {one.key: {"name": one.key}}
    yield "instance_pools", {one.key: _pool(one)}
    if one.place.policy is None:
        yield "cluster_policies", {one.key: {"name": one.key, "definition": _policy(one)}}
    yield "jobs", {one.key: _job(one)}


def _pool(one: Bundled) -> Body:
    """Machines that wait for the next run for a while; none where nothing runs."""
    made = cluster(one.place, one.work)
    attributes: Body = {
        key: {name: value for name, value in made[key].items() if name in {"availability", "zone_id"}}
        for key in ("aws_attributes", "azure_attributes") if key in made
    }  # fmt: skip
    aws = attributes.get("aws_attributes", {})
    if aws.get("availability") == "SPOT_WITH_FALLBACK":
        aws["availability"] = "SPOT"  # pools know no way back to on-demand
    if aws.get("zone_id") == "auto":
        del aws["zone_id"]  # clusters may choose one, pools have one
    return {
        "instance_pool_name": f"{one.key}-pool", "node_type_id": one.place.instance_type,
        "min_idle_instances": 0, "idle_instance_autotermination_minutes": IDLE_MINUTES, "enable_elastic_disk": True,
        "preloaded_spark_versions": [one.place.runtime], "custom_tags": {"tonnage-run": one.run}, **attributes,
    }  # fmt: skip


def _policy(one: Bundled) -> str:
    """What a cluster of the policy may be: this runtime, this pool, one node."""
    fixed = {
        "spark_version": one.place.runtime, "num_workers": 0, "data_security_mode": "SINGLE_USER",
        "enable_local_disk_encryption": True,
    }  # fmt: skip
    rules = {key: {"type": "fixed", "value": value} for key, value in fixed.items()}
    return json.dumps(rules, sort_keys=True)


def _job(one: Bundled) -> Body:
    limit_s = one.place.time_limit_minutes * 60
    libraries = [
        *({"whl": name} for name in one.place.wheels), *({"pypi": {"package": name}} for name in one.place.packages),
    ]  # fmt: skip
    task: Body = {
        "task_key": "run", "job_cluster_key": "machine",
        "python_wheel_task": {
            "package_name": "tonnage", "entry_point": ENTRY_POINT,
            "parameters": ["run", f"{FILES}/{one.file}", "--name", f"{one.key}-{RUN}", "--yes",
                           "--max-hours", f"{one.place.time_limit_minutes / 60 * WORKED:g}"],
        },
        "timeout_seconds": limit_s,
    }  # fmt: skip
    return {
        "name": one.run, "max_concurrent_runs": 1, "timeout_seconds": limit_s, "queue": {"enabled": True},
        "tags": {"tonnage-run": one.key},
        "job_clusters": [{"job_cluster_key": "machine", "new_cluster": _cluster(one)}],
        "tasks": [{**task, **({"libraries": libraries} if libraries else {})}],
    }  # fmt: skip


def _cluster(one: Bundled) -> Body:
    """That of a submission, with machines of the pool and variables of its own."""
    made = cluster(one.place, one.work)
    del made["node_type_id"]
    for key in ("aws_attributes", "azure_attributes", "gcp_attributes"):
        left = {name: value for name, value in made.pop(key, {}).items() if name not in POOLED}
        if left:
            made[key] = left
    catalog, schema, _ = one.volume
    variables = {name: value for name, value in made["spark_env_vars"].items() if name != "TONNAGE_TAG"}
    scope = one.place.secret or f"${{resources.secret_scopes.{one.key}.name}}"
    secrets = {name: f"{{{{secrets/{scope}/{name}}}}}" for name in one.work.secrets}
    pool = f"${{resources.instance_pools.{one.key}.id}}"
    return {
        **made, "instance_pool_id": pool, "driver_instance_pool_id": pool,
        "policy_id": one.place.policy or f"${{resources.cluster_policies.{one.key}.id}}",
        "custom_tags": {"ResourceClass": "SingleNode", "tonnage-run": one.run},
        "spark_env_vars": {
            **variables, **secrets, "MLFLOW_TRACKING_URI": "databricks", "MLFLOW_REGISTRY_URI": "databricks-uc",
            KEPT: f"/Volumes/{catalog}/{schema}/${{resources.volumes.{one.key}.name}}",
        },
    }  # fmt: skip


def _serving(one: Bundled, model: str) -> Body:
    """The endpoint of one version. What it is asked and answers goes to a Delta table; at rest it costs nothing."""
    catalog, schema, _ = model.split(".")
    endpoint: Body = {
        "name": one.key.replace("_", "-"),
        "config": {
            "served_entities": [{
                "name": "model", "entity_name": model, "entity_version": "${var.model_version}",
                "workload_type": one.served_on, "workload_size": "Small", "scale_to_zero_enabled": True,
            }],
            "traffic_config": {"routes": [{"served_model_name": "model", "traffic_percentage": 100}]},
        },
        "ai_gateway": {"inference_table_config": {
            "enabled": True, "catalog_name": catalog, "schema_name": schema, "table_name_prefix": f"{one.key}_served",
        }},
        "tags": [{"key": "tonnage-run", "value": one.key}],
    }  # fmt: skip
    workspace = {} if one.place.profile is None else {"workspace": {"profile": one.place.profile}}
    return {
        "bundle": {"name": f"{one.key}_serving"},
        **workspace,
        "variables": {"model_version": {"description": "the version that the job has registered"}},
        "targets": {TARGET: {"default": True}},
        "resources": {"model_serving_endpoints": {one.key: endpoint}},
    }


def bundle_faults(files: Mapping[str, Body]) -> Iterator[str]:
    """What Databricks' own models of resources do not know: names, missing members, values of their enums.

    MissingExtra where databricks-bundles is not installed.
    """

    for file, content in files.items():
        for kind, made in content["resources"].items():
            for key, one in made.items():
                try:
                    model_of(kind).from_dict(one)
                except (ValueError, TypeError) as error:
                    yield f"{file}: resources.{kind}.{key}: {error}"


MODELS: Final = {
    "cluster_policies": "ClusterPolicy", "experiments": "MlflowExperiment", "instance_pools": "InstancePool",
    "jobs": "Job", "model_serving_endpoints": "ModelServingEndpoint", "registered_models": "RegisteredModel",
    "secret_scopes": "SecretScope", "volumes": "Volume",
}  # fmt: skip


def model_of(kind: str) -> Any:
    """The class of a kind of resource. MissingExtra where the package is not installed."""
    try:
        module = import_module(f"databricks.bundles.{kind}")
    except ImportError as error:
        raise MissingExtra("a bundle held to Databricks' models", "databricks") from error
    return getattr(module, MODELS[kind])
