"""A finished model into MLflow's registry: with a signature, an example of its input, and an alias."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunStatus
from tonnage.values import dataclass

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SERVED: Final = Path(__file__).with_name("served_model.py")  # travels with the model: loading needs no tonnage
_TEXTS: Final[dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]] = {  # task: inputs, outputs
    "sequence-classification": (("text",), (("label", "string"), ("score", "double"))),
    "token-classification": (("text",), (("entities", "string"),)),
    "question-answering": (("question", "context"), (("answer", "string"), ("score", "double"))),
    "causal-lm": (("prompt",), (("text", "string"),)),
    "sequence-to-sequence": (("source",), (("text", "string"),)),
}
_EXAMPLE: Final = {
    "text": "The delivery came two days late.",
    "question": "When did the delivery come?",
    "context": "The delivery came two days late.",
    "prompt": "The delivery came",
    "source": "The delivery came two days late.",
}
DIGEST: Final = "tonnage.model_sha256"
_REQUIREMENTS: Final = ("torch", "transformers", "peft", "pandas")
_PICTURES: Final = ("pillow", "torchvision")  # what transformers prepares images with


def register(client: MlflowClient, run_id: str, folder: RunFolder, spec: RunSpec, *, known: str | None) -> str | None:
    """The version in the registry, new or known; None where none is asked for or there is no model."""
    name = spec.tracking.register_as
    if name is None or not folder.model.is_dir() or folder.state().state is not RunStatus.SUCCEEDED:
        return known
    if known is None:
        return put(client, run_id, folder, spec, name=name).version
    if spec.tracking.alias:
        client.set_registered_model_alias(name, spec.tracking.alias, known)
    return known


@dataclass(frozen=True, slots=True)
class Registered:
    """A version in the registry, and whether it was made now."""

    version: str
    new: bool


def put(client: MlflowClient, run_id: str, folder: RunFolder, spec: RunSpec, *, name: str) -> Registered:
    """The model of a run under a name: the version whose files are the same, else a new one; with the alias asked for.

    The digest finds a version too that was made in a sync which did not get to its note.
    """
    digest = model_digest(folder.model)
    version = _version_of(client, name, digest)
    new = version is None
    if version is None:
        version = _new_version(client, run_id, folder, spec, name, digest)
        folder.record(EventKind.REGISTERED, who="tracker", model=name, version=version, alias=spec.tracking.alias)
    if spec.tracking.alias:
        client.set_registered_model_alias(name, spec.tracking.alias, version)
    return Registered(version, new)


def model_digest(path: Path) -> str:
    """sha256 over the names and contents of a model's files."""
    whole = hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        whole.update(f"{file.relative_to(path).as_posix()} {digest}\n".encode())
    return whole.hexdigest()


def _version_of(client: MlflowClient, name: str, digest: str) -> str | None:
    """The newest version under a name whose files have this digest."""
    found, token = [], None
    while True:
        page = client.search_model_versions(f"name = '{name}'", page_token=token)
        found += [int(one.version) for one in page if one.tags.get(DIGEST) == digest]
        token = page.token
        if not token:
            return str(max(found)) if found else None


def _new_version(client: MlflowClient, run_id: str, folder: RunFolder, spec: RunSpec, name: str, digest: str) -> str:
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(dir=folder.path) as place:  # on the same disk: models are large
        save_model(folder, spec, Path(place) / "model")
        client.log_artifacts(run_id, str(Path(place) / "model"), "model")
    try:
        client.create_registered_model(name, description=f"from `tonnage run`, {spec.task}")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    source = f"{client.get_run(run_id).info.artifact_uri}/model"
    tags = {"task": spec.task, "tonnage.run": spec.name, DIGEST: digest}
    return str(client.create_model_version(name, source, run_id, tags=tags).version)


def save_model(folder: RunFolder, spec: RunSpec, path: Path) -> None:
    """The model as MLflow's own format: loaded by `mlflow.pyfunc`, a table in, a table out."""
    from mlflow import pyfunc

    pyfunc.save_model(
        path=str(path),
        loader_module=_SERVED.stem,
        code_paths=[str(_SERVED)],
        data_path=str(folder.model),
        model_config={"task": spec.task},
        pip_requirements=[*_REQUIREMENTS, *(_PICTURES if spec.task == "image-classification" else ())],
        **_signed(spec),
    )


def _signed(spec: RunSpec) -> dict[str, Any]:
    """Signature and example, of images without one. A table of features whose names the run does not know has none."""
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    if spec.task in _TEXTS:
        inputs, outputs = _TEXTS[spec.task]
        signature = ModelSignature(
            inputs=Schema([ColSpec("string", name) for name in inputs]),
            outputs=Schema([ColSpec(kind, name) for name, kind in outputs]),
        )
        return {"signature": signature, "input_example": pd.DataFrame([{name: _EXAMPLE[name] for name in inputs}])}
    if spec.task == "image-classification":
        signature = ModelSignature(
            inputs=Schema([ColSpec("binary", "image")]),
            outputs=Schema([ColSpec("string", "label"), ColSpec("double", "score")]),
        )
        return {"signature": signature}
    if spec.data.features:
        signature = ModelSignature(
            inputs=Schema([ColSpec("double", name) for name in spec.data.features]),
            outputs=Schema([ColSpec("double", "prediction")]),
        )
        return {"signature": signature, "input_example": pd.DataFrame([dict.fromkeys(spec.data.features, 0.0)])}
    return {}
