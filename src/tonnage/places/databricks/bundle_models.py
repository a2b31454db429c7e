"""The models of databricks-bundles, by the kind of a resource."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from tonnage.errors import MissingExtra

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
