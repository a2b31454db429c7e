"""The kubeconfig: where a context's API server is, and who asks. Own code, since the official client is large: it reads
every API into memory (0.2 s to import), while seven requests are made here.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from tonnage.errors import InputError, TonnageError, UnknownName, did_you_mean, nearest
from tonnage.values import dataclass

PLUGIN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a context leads, and by which user."""

    context: str
    server: str
    ca: str | None  # PEM; None: the system's
    verified: bool
    server_name: str | None
    user: Mapping[str, Any]
    folder: Path  # of the file, from which relative paths start


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request carries."""

    token: str | None = None
    certificate: str | None = None  # PEM
    key: str | None = None
    basic: tuple[str, str] | None = None
    expires_at: datetime | None = None


def kubeconfig_files(given: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Those of the place, else of KUBECONFIG, else of the home folder."""
    names = given or environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return tuple(Path(name).expanduser() for name in names.split(os.pathsep) if name)


def read_cluster(context: str, files: tuple[Path, ...]) -> Cluster:
    """What the files say of a context. UnknownName lists the contexts there are."""
    found: dict[str, dict[str, tuple[Any, Path]]] = {"contexts": {}, "clusters": {}, "users": {}}
    for file in files:
        for kind, name, value in _entries(file):
            found[kind].setdefault(name, (value, file.parent))  # the first file that says it
    contexts = found["contexts"]
    if context not in contexts:
        where = ", ".join(map(str, files))
        known = f"contexts: {', '.join(contexts)}" if contexts else f"{where} has none: `kubectl config get-contexts`"
        near = nearest(context, contexts)
        raise UnknownName(f"no context is named '{context}'", suggestions=near, hint=did_you_mean(near, known))
    terms, _ = contexts[context]
    try:
        cluster, folder = found["clusters"][terms["cluster"]]
        user, user_folder = found["users"][terms["user"]] if terms.get("user") else ({}, folder)
    except KeyError as error:
        raise InputError(
            f"the context '{context}' names {error}, which is not in the kubeconfig", hint="`kubectl config view`"
        ) from error
    return Cluster(
        context=context, server=str(cluster["server"]).rstrip("/"), user=user or {}, folder=user_folder,
        ca=_text(cluster, "certificate-authority", folder), verified=not cluster.get("insecure-skip-tls-verify"),
        server_name=cluster.get("tls-server-name"),
    )  # fmt: skip


def _entries(file: Path) -> list[tuple[str, str, Any]]:
    try:
        read = yaml.load(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        singular = {"contexts": "context", "clusters": "cluster", "users": "user"}
        return [(kind, one["name"], one[word]) for kind, word in singular.items() for one in read.get(kind) or ()]
    except FileNotFoundError:
        return []
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is not a kubeconfig: {error}", hint="`kubectl config view`") from error


def _text(given: Mapping[str, Any], key: str, folder: Path) -> str | None:
    """A PEM that is in the file, or in one beside it."""
    if given.get(f"{key}-data"):
        return base64.b64decode(given[f"{key}-data"]).decode()
    if not given.get(key):
        return None
    path = folder / str(given[key])
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint="`kubectl config view`") from error


def credentials(cluster: Cluster) -> Credentials:
    """Of the context's user, made again: a plugin is asked each time. TonnageError where it gives none."""
    user = cluster.user
    if "exec" in user:
        return _by_plugin(cluster, user["exec"])
    if "auth-provider" in user:
        raise InputError("the kubeconfig has an `auth-provider`, which Kubernetes no longer knows",
                         hint="have it written again: `gcloud container clusters get-credentials`")  # fmt: skip
    token = user.get("token") or _text(user, "tokenFile", cluster.folder)
    basic = (str(user["username"]), str(user.get("password", ""))) if user.get("username") else None
    return Credentials(
        token=token.strip() if token else None, certificate=_text(user, "client-certificate", cluster.folder),
        key=_text(user, "client-key", cluster.folder), basic=basic,
    )  # fmt: skip


def _by_plugin(cluster: Cluster, plugin: Mapping[str, Any]) -> Credentials:
    command = str(plugin["command"])
    path = str(cluster.folder / command) if os.sep in command and not command.startswith(os.sep) else command
    asked = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    given = {one["name"]: str(one["value"]) for one in plugin.get("env") or ()}
    try:
        done = subprocess.run(
            [path, *(plugin.get("args") or ())], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)}, timeout=PLUGIN_TIMEOUT_S,
        )  # fmt: skip
    except FileNotFoundError as error:
        hint = plugin.get("installHint") or f"install {command}, or have the kubeconfig written again"
        raise TonnageError(f"the kubeconfig signs in by {command}, which is not here", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        hint = f"run {command} by hand"
        raise TonnageError(f"{command} has given no credentials in {PLUGIN_TIMEOUT_S:g} s", hint=hint) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise TonnageError(f"{command} gives no credentials: {last}", hint=f"sign in again; run {command} by hand")
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise TonnageError(f"{command} has not answered with an ExecCredential", hint=f"run {command}") from error
    until = status.get("expirationTimestamp")
    return Credentials(
        token=status.get("token"), certificate=status.get("clientCertificateData"), key=status.get("clientKeyData"),
        expires_at=datetime.fromisoformat(until).astimezone(UTC) if until else None,
    )  # fmt: skip
