"""A Helm chart (apiVersion v2) of the objects of the plain manifests, with what differs between clusters as values.

Every template is an object of `manifests` with some of its leaves replaced by expressions: values are written as JSON,
which YAML contains, so nothing depends on an indent. With the values as they are written, a release of the
deployment's own name is the plain manifests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import yaml

from tonnage.deployment.described import VERSION, Deployed, dockerfile
from tonnage.deployment.manifests import config_key, manifests

OPEN, CLOSE = "<<{{", "}}>>"  # around an expression until the text is written
FULL_NAME: Final = 'printf "tonnage-%s" .Release.Name'
INSTANCE: Final = "app.kubernetes.io/instance"
VERSION_LABEL: Final = "app.kubernetes.io/version"
OPTIONAL: Final = ("imagePullSecrets", "nodeSelector", "tolerations")  # of a pod: left out where they are empty


def helm_files(what: Deployed) -> dict[str, str]:
    """Name -> text of the chart; its templates are in `templates/`, the files of the command in `files/`."""
    files = {
        "Chart.yaml": _dumped(_chart(what)),
        "values.yaml": _dumped(values(what)),
        "values.schema.json": json.dumps(schema(what), indent=2) + "\n",
        "templates/NOTES.txt": _NOTES,
    }
    for one in manifests(what):
        files[f"templates/{one['kind'].lower()}.yaml"] = _template(what, one)
    if what.port is not None:
        files["templates/tests/check.yaml"] = _template(what, _check(what))
    return files if what.image is not None else files | {"Dockerfile": dockerfile(what)}


def _chart(what: Deployed) -> dict[str, Any]:
    found = VERSION.fullmatch(what.version)
    assert found is not None
    release = [*found["release"].split("."), "0", "0"][:3]
    rest = what.version.removeprefix(found["release"]).strip(".-+").replace("+", "-")
    return {
        "apiVersion": "v2", "name": f"tonnage-{what.name}", "type": "application",
        "description": f"tonnage {what.verb} ({what.name})",
        "version": ".".join(release) + (f"-{rest}" if rest else ""), "appVersion": what.version,
    }  # fmt: skip


def values(what: Deployed) -> dict[str, Any]:
    """What may be changed at an installation, as the plain manifests have it."""
    repository, _, tag = what.image_name.rpartition(":")
    pod = _object(what, "Deployment")["spec"]["template"]["spec"]
    found: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "args": list(what.in_container()), "resources": pod["containers"][0]["resources"],
        "storage": {"size": f"{what.storage_gib}Gi", "className": ""},
        "terminationGracePeriodSeconds": pod["terminationGracePeriodSeconds"],
        "imagePullSecrets": [], "nodeSelector": {}, "tolerations": [],
    }  # fmt: skip
    if what.port is not None:
        found["service"] = {"type": "ClusterIP", "port": what.port}
        found["networkPolicy"] = {"enabled": True, "from": [{"podSelector": {}}]}
    return found


def schema(what: Deployed) -> dict[str, Any]:
    """JSON Schema (draft 7) of the values: Helm refuses others before it asks the cluster."""
    port = {"type": "integer", "minimum": 1, "maximum": 65_535}
    quantity = {"type": "string", "pattern": r"^\d+(\.\d+)?([KMGTP]i?|m)?$"}
    objects = {"type": "array", "items": {"type": "object"}}
    quantities = {"type": "object", "additionalProperties": {"anyOf": [quantity, {"type": "integer", "minimum": 0}]}}
    known: dict[str, Any] = {
        "image": _closed(repository={"type": "string", "minLength": 1},
                         tag={"type": "string", "minLength": 1, "not": {"const": "latest"}},
                         pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]}),
        "args": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "resources": _closed(requests=quantities, limits=quantities),
        "storage": _closed(size=quantity, className={"type": "string"}),
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 1},
        "imagePullSecrets": objects, "nodeSelector": {"type": "object"}, "tolerations": objects,
        "service": _closed(type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, port=port),
        "networkPolicy": _closed(enabled={"type": "boolean"}, **{"from": objects}),
    }  # fmt: skip
    own = {name: known[name] for name in values(what)}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(**own | {"global": {"type": "object"}}),
            "required": list(own)}  # fmt: skip


def _closed(**properties: Any) -> dict[str, Any]:
    """An object of these keys alone; Helm itself adds `global` at the top."""
    needed = [name for name in properties if name != "global"]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _object(what: Deployed, kind: str) -> dict[str, Any]:
    return next(one for one in manifests(what) if one["kind"] == kind)


def _check(what: Deployed) -> dict[str, Any]:
    """`helm test`: the release is asked, through its Service, until it is well."""
    container = {
        "name": "check", "image": what.image_name, "args": ["deploy", "check", _CHECKED],
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], "env": [{"name": "TONNAGE_HOME", "value": "/tmp/home"}],
    }  # fmt: skip
    meta = {"name": _CHECK_NAME, "labels": {"app.kubernetes.io/name": "tonnage-check"},
            "annotations": {"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation"}}  # fmt: skip
    spec = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container],
        "securityContext": _object(what, "Deployment")["spec"]["template"]["spec"]["securityContext"],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _expression(code: str) -> str:
    return f"{OPEN} {code} | toJson {CLOSE}"


_CHECKED: Final = _expression('printf "http://tonnage-%s:%v" .Release.Name .Values.service.port')
_CHECK_NAME: Final = _expression('printf "tonnage-%s-check" .Release.Name')
_NOTES: Final = """\
{{ .Chart.Description }}, version {{ .Chart.AppVersion }}, as release {{ .Release.Name }}.
kubectl --namespace {{ .Release.Namespace }} rollout status deployment/tonnage-{{ .Release.Name }}
"""


def _template(what: Deployed, manifest: dict[str, Any]) -> str:
    text = _dumped(_replaced(manifest, (manifest["kind"],), _leaves(what)))
    text = text.replace(f"'{OPEN}", "{{").replace(f"{CLOSE}'", "}}").replace(OPEN, "{{").replace(CLOSE, "}}")
    if manifest["kind"] == "Deployment":
        before = "      terminationGracePeriodSeconds:"
        more = "".join(f"{{{{- with .Values.{one} }}}}\n      {one}: {{{{ toJson . }}}}\n{{{{- end }}}}\n"
                       for one in OPTIONAL)  # fmt: skip
        text = text.replace(before, more + before)
    if manifest["kind"] == "PersistentVolumeClaim":
        name = "{{- with .Values.storage.className }}\n  storageClassName: {{ toJson . }}\n{{- end }}\n"
        text = text.replace("  resources:", name + "  resources:")
    if manifest["kind"] == "NetworkPolicy":
        text = "{{- if .Values.networkPolicy.enabled }}\n" + text + "{{- end }}\n"
    return text


Leaf = Callable[[tuple[str, ...], Any], str | None]


def _leaves(what: Deployed) -> Leaf:
    """The expression in the place of what is at a path of the objects; None: it stays."""
    image = _expression('printf "%s:%s" .Values.image.repository .Values.image.tag')
    fixed: dict[tuple[str, ...], str] = {
        ("Deployment", "spec", "template", "spec", "terminationGracePeriodSeconds"): "terminationGracePeriodSeconds",
        ("PersistentVolumeClaim", "spec", "resources", "requests", "storage"): "storage.size",
        ("Service", "spec", "type"): "service.type",
        ("NetworkPolicy", "spec", "ingress", "0", "from"): "networkPolicy.from",
    }
    files = {config_key(number, path): path for number, (path, _) in enumerate(what.files)}

    def leaf(path: tuple[str, ...], value: Any) -> str | None:
        last = path[-1]
        if path in fixed:
            return _expression(f".Values.{fixed[path]}")
        if "containers" in path and last == "image":
            return image
        if path[0] == "Deployment" and "containers" in path and last in ("args", "resources", "imagePullPolicy"):
            return _expression(f".Values.{'image.pullPolicy' if last == 'imagePullPolicy' else last}")
        if path[:4] == ("Service", "spec", "ports", "0") and last == "port":
            return _expression(".Values.service.port")
        if path[:2] == ("ConfigMap", "data") and last in files:
            return _expression(f".Files.Get {_literal(f'files/{files[last]}')}")
        if last == INSTANCE:
            return _expression(".Release.Name")
        if last == VERSION_LABEL:
            return _expression('.Chart.AppVersion | replace "+" "_"')
        if value == f"tonnage-{what.name}":
            return _expression(FULL_NAME)
        return (
            _expression(_literal(value))
            if isinstance(value, str) and "{{" in value and not value.startswith(OPEN)
            else None
        )

    return leaf


def _literal(text: str) -> str:
    """A text within an expression; YAML would double a quote."""
    return json.dumps(text).replace("'", "\\u0027")


def _replaced(value: Any, path: tuple[str, ...], leaf: Leaf) -> Any:
    found = leaf(path, value)
    if found is not None:
        return found
    if isinstance(value, dict):
        inner = {key: _replaced(one, (*path, key), leaf) for key, one in value.items()}
        if path[0] == "Deployment" and "containers" in path and "image" in inner:
            inner["imagePullPolicy"] = leaf((*path, "imagePullPolicy"), None)
        if path == ("Service", "spec"):
            inner["type"] = leaf((*path, "type"), None)
        return inner
    if isinstance(value, list):
        return [_replaced(one, (*path, str(at)), leaf) for at, one in enumerate(value)]
    return value


def _dumped(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1000)
