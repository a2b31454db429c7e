"""Where the model of an encoder server comes from: a folder, a run, a hub, a registry."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.home_runs import find_run, run_names
from tonnage.errors import FetchError, InputError, MissingExtra
from tonnage.http.urls import without_secrets

if TYPE_CHECKING:
    from tonnage.settings import Settings

_OF_RUNS: Final = {  # the task of a run: what its model answers (None: its folder says); classifiers of one label rank
    "sequence-classification": None, "token-classification": "token-classification",
    "question-answering": "question-answering", "boosted-trees": None, "mlp": None,
    "image-classification": None,
}  # fmt: skip
_COLUMNS: Final = {  # roles of the texts that a run's model reads
    "sequence-classification": ("text", "text_pair"), "token-classification": ("tokens",),
    "question-answering": ("question", "context"),
}  # fmt: skip
MOST_ROWS: Final = 512  # of a run, to calibrate with
REGISTRY: Final = "models:/"


def model_folder(target: str, settings: Settings) -> tuple[Path, str | None]:
    """A folder, a file of trees; a run's finished model, with its task; a model of a hub, downloaded into the hub's own
    cache; `models:/NAME/VERSION` or `models:/NAME@ALIAS` of MLflow's registry (MLFLOW_TRACKING_URI, else the home's).

    Raises InputError for what is none of them, FetchError for a hub or registry that does not give it.
    """
    if Path(target).exists():
        return Path(target).resolve(), None
    if target.startswith(REGISTRY):
        return _registered(target, settings), None
    if target.startswith("hf://"):
        return _downloaded(target.removeprefix("hf://")), None
    if target not in run_names(settings.home):
        raise InputError(f"{target} is no workload file, no folder or file of a model and no run",
                         hint="tonnage ps --all lists runs; hf://org/name is a model on the hub")  # fmt: skip
    folder = find_run(settings, target)
    task, model = folder.spec().task, folder.path / "model"
    if task not in _OF_RUNS:
        raise InputError(f"'{target}' is of the task {task}, which is not served",
                         hint=f"{', '.join(_OF_RUNS)} are; tonnage predict {target} answers rows")  # fmt: skip
    if not model.is_dir():
        raise InputError(f"the run {target} has no finished model", hint=f"tonnage show {target}")
    return model, _OF_RUNS[task]


def calibration_texts(said: str, target: str, settings: Settings, folder: Path) -> str:
    """The file of texts that int8 is calibrated with; `run`: the first of the run's own rows, written to `folder`."""
    if said != "run":
        if not Path(said).is_file():
            raise InputError(f"{said} is no file of texts", hint="--calibrate FILE, or --calibrate run")
        return str(Path(said).resolve())
    from tonnage.recipes.data.reading import stream_rows

    if target not in run_names(settings.home):
        raise InputError(f"{target} is no run: it has no rows of its own", hint="--calibrate FILE")
    spec = find_run(settings, target).spec()
    if spec.task not in _COLUMNS:
        raise InputError(f"rows of the task {spec.task} are no texts", hint="leave --calibrate out")
    columns = [spec.column(role) or (role if role != "text_pair" else None) for role in _COLUMNS[spec.task]]
    names = [one for one in columns if one is not None]
    rows = (row for _, row in islice(stream_rows(spec.data.train), MOST_ROWS))
    texts = [[_words(row[name]) for name in names] for row in rows if all(row.get(name) for name in names)]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "calibration.jsonl"
    lines = [json.dumps(one[0] if len(one) == 1 else one, ensure_ascii=False) + "\n" for one in texts]
    file.write_text("".join(lines), encoding="utf-8")
    return str(file)


def _words(value: Any) -> str:
    """A text; that of a list of words."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _downloaded(repository: str) -> Path:
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise MissingExtra("a model of the hub", "fetch") from error
    wanted = ["*.json", "*.txt", "*.safetensors", "model.onnx", "1_Pooling/*", "*.ubj"]
    try:
        return Path(hub.snapshot_download(repository, allow_patterns=wanted))
    except Exception as error:  # the hub's own exceptions, and those of the library under it
        raise FetchError(f"{repository} cannot be read from the hub: {error}", hint="name a folder") from error


def _registered(target: str, settings: Settings) -> Path:
    """The files of a version, kept at home under its number: versions do not change."""
    import yaml

    try:
        mlflow: Any = importlib.import_module("mlflow")
    except ImportError as error:
        raise MissingExtra("a registered model", "train") from error
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(settings.home / 'mlflow.db').as_posix()}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
        name, version = _version_of(client, target.removeprefix(REGISTRY))
        kept = settings.home / "registered" / name / version
        if not kept.is_dir():  # made by a rename, so it is whole
            _download(mlflow, client.get_model_version_download_uri(name, version), uri, kept)
    except mlflow.exceptions.MlflowException as error:
        raise FetchError(
            f"{target} cannot be read from {without_secrets(uri)}: {error}",
            hint="models:/NAME/VERSION or models:/NAME@ALIAS; MLFLOW_TRACKING_URI names the server",
        ) from error
    place = next((file.parent for file in sorted(kept.rglob("MLmodel"))), None)
    flavour = {} if place is None else yaml.safe_load((place / "MLmodel").read_text(encoding="utf-8"))
    data = (flavour.get("flavors", {}).get("python_function", {}) or {}).get("data")
    if place is None or data is None:
        raise InputError(f"{target} was not registered by a run", hint="name its folder as save_pretrained wrote it")
    return place / str(data)


def _download(mlflow: Any, source: str, uri: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as place:
        files = Path(place) / "files"
        files.mkdir()
        mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=str(files), tracking_uri=uri)
        files.rename(kept)


def _version_of(client: Any, said: str) -> tuple[str, str]:
    name, at, alias = said.partition("@")
    if at:
        return name, str(client.get_model_version_by_alias(name, alias).version)
    name, _, version = said.partition("/")
    return name, version
