"""A registered model is served: the files of its version, by number or alias, from the registry that the run used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tonnage.api.served_models import model_folder
from tonnage.errors import FetchError
from tonnage.runs import RunFolder
from tonnage.serving.encoder.folders import read_folder
from tonnage.settings import current_settings
from tonnage.testing.tiny_encoders import write_tiny_encoder
from tonnage.tracking import Tracker

pytest.importorskip("torch")
pytest.importorskip("mlflow")


def test_a_version_is_found_by_number_and_alias(
    folder: RunFolder, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lead to the same files, which are the run's; one that there is not is named."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    shutil.rmtree(folder.model)
    write_tiny_encoder(folder.model, "classification")
    tracker = Tracker(folder.spec(), folder, uri)
    tracker.sync()
    tracker.register("reviews", "champion")
    settings = current_settings()
    found, _ = model_folder("models:/reviews@champion", settings)
    assert found == model_folder("models:/reviews/1", settings)[0]
    assert read_folder(found).task == "classification"
    assert (found / "model.safetensors").read_bytes() == (folder.model / "model.safetensors").read_bytes()
    with pytest.raises(FetchError, match="models:/reviews/9 cannot be read"):
        model_folder("models:/reviews/9", settings)
