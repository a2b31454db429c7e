"""Makes src/tonnage/places/kubernetes/checking/data/schemas.json: the types that objects are checked against.

    python benchmarks/kubernetes_schemas.py --definitions _definitions.json --crds FOLDER

`--definitions`: the definitions of the built-in kinds, from Kubernetes' own OpenAPI (as kubernetes-validate carries
them, v1.36.0-local). `--crds`: a folder of CustomResourceDefinitions. Descriptions go; what is written twice is kept
once.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import yaml

TARGET: Final = Path(__file__).parents[1] / "src/tonnage/places/kubernetes/checking/data/schemas.json"
SHORT: Final = 40  # characters: a schema shorter than this is written where it is used
WORDS: Final = frozenset(
    [
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "format",
        "nullable",
        "default",
        "oneOf",
        "anyOf",
        "allOf",
        "not",
        "multipleOf",
        "uniqueItems",
        "x-kubernetes-validations",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
    ]
)
# group/version -> part of the definition's name, kinds
BUILT_IN: Final = {
    "v1": (
        "core.v1",
        "Pod Service ServiceAccount ConfigMap Secret PersistentVolumeClaim ResourceQuota LimitRange Namespace",
    ),
    "batch/v1": ("batch.v1", "Job"),
    "apps/v1": ("apps.v1", "Deployment StatefulSet"),
    "autoscaling/v2": ("autoscaling.v2", "HorizontalPodAutoscaler"),
    "policy/v1": ("policy.v1", "PodDisruptionBudget"),
    "networking.k8s.io/v1": ("networking.v1", "NetworkPolicy Ingress"),
    "rbac.authorization.k8s.io/v1": ("rbac.v1", "Role RoleBinding"),
    "resource.k8s.io/v1": ("resource.v1", "ResourceClaim ResourceClaimTemplate DeviceClass"),
    "scheduling.k8s.io/v1": ("scheduling.v1", "PriorityClass"),
    "admissionregistration.k8s.io/v1": ("admissionregistration.v1", "ValidatingAdmissionPolicy"),
}  # fmt: skip
CLUSTER_SCOPED: Final = {"Namespace", "DeviceClass", "PriorityClass", "ValidatingAdmissionPolicy"}


class Interned:
    """Schemas, each once; others name it by its number."""

    def __init__(self) -> None:
        self.schemas: list[Any] = []
        self._numbers: dict[str, int] = {}

    def of(self, schema: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for word, value in schema.items():
            if word == "properties":
                made[word] = {name: self.of(one) for name, one in value.items()}
            elif word in {"items", "additionalProperties", "not"}:
                made[word] = self.of(value) if isinstance(value, dict) else value
            elif word in {"oneOf", "anyOf", "allOf"}:
                made[word] = [self.of(one) for one in value]
            elif word in WORDS:
                made[word] = value
        text = json.dumps(made, sort_keys=True)
        if len(text) < SHORT:
            return made
        if text not in self._numbers:
            self._numbers[text] = len(self.schemas)
            self.schemas.append(made)
        return {"$": self._numbers[text]}


def built_in(name: str, definitions: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """A definition with those it names in place."""
    short = name.rsplit("/", 1)[-1]
    if short.endswith(".Quantity"):
        return {"format": "quantity"}
    if short.endswith(".IntOrString"):
        return {"x-kubernetes-int-or-string": True}
    if depth > 30 or short.endswith((".JSON", ".FieldsV1", ".RawExtension", ".JSONSchemaProps")):
        return {"x-kubernetes-preserve-unknown-fields": True}
    return _plain(definitions[short], definitions, depth)


def _plain(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> dict[str, Any]:
    if "$ref" in schema:
        return built_in(schema["$ref"], definitions, depth + 1)
    made: dict[str, Any] = {}
    kind = schema.get("type")
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind] if kind else []
    if kinds:
        made["type"] = kinds[0]
    if "properties" in schema:
        made["properties"] = {name: _plain(one, definitions, depth) for name, one in schema["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            made[word] = _plain(schema[word], definitions, depth)
    for word in ("required", "format"):
        if word in schema:
            made[word] = schema[word]
    return made


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--definitions", type=Path, required=True)
    asked.add_argument("--crds", type=Path, required=True)
    given = asked.parse_args()
    definitions = json.loads(given.definitions.read_text())["$defs"]
    interned, kinds = Interned(), {}
    for version, (part, names) in BUILT_IN.items():
        for kind in names.split():
            schema = built_in(f"io.k8s.api.{part}.{kind}", definitions)
            scope = "Cluster" if kind in CLUSTER_SCOPED else "Namespaced"
            kinds[f"{version}/{kind}"] = {"scope": scope, "schema": interned.of(schema)}
    for file in sorted(given.crds.glob("*.yaml")):
        spec = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
        for version in spec["versions"]:
            if version["served"]:
                name = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
                own = interned.of(version["schema"]["openAPIV3Schema"])
                kinds[name] = {"scope": spec["scope"], "custom": True, "schema": own}
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps({"schemas": interned.schemas, "kinds": kinds}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
