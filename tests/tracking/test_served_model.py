"""A model of the registry answers as MLflow loads it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs import RunFolder
from tonnage.runs.spec import Task
from tonnage.testing import run_spec

transformers = pytest.importorskip("transformers", reason="the extra `train`")
mlflow = pytest.importorskip("mlflow", reason="the extra `train`")
pandas = pytest.importorskip("pandas", reason="the extra `train`")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of MLflow and pandas

from tonnage.recipes.data.images import Pixels  # noqa: E402
from tonnage.recipes.starters.models import encoder_decoder, image_encoder  # noqa: E402
from tonnage.recipes.starters.rows import PICTURE, pictures  # noqa: E402
from tonnage.tracking.registering import save_model  # noqa: E402


def loaded(folder: RunFolder, task: Task, files: Mapping[str, str], auto: Any, place: Path) -> Any:
    """A new model of a config, as a run of a task leaves it, saved for the registry and loaded by MLflow."""
    folder.model.mkdir(parents=True)
    for name, content in files.items():
        (folder.model / name).write_text(content)
    model = auto.from_config(transformers.AutoConfig.from_pretrained(folder.model))
    model.save_pretrained(folder.model)
    if task == "image-classification":
        Pixels(side=PICTURE).save(folder.model)
    save_model(folder, replace(run_spec("one"), task=task), place)
    return mlflow.pyfunc.load_model(str(place))


def test_an_encoder_decoder_writes(tmp_path: Path) -> None:
    """A text for each source, of at most so many tokens; its signature names the columns."""
    texts = ["red ball", "green hat", "blue door"]
    found = loaded(
        RunFolder(tmp_path / "run"), "sequence-to-sequence", encoder_decoder(texts),
        transformers.AutoModelForSeq2SeqLM, tmp_path / "saved",
    )  # fmt: skip
    said = found.predict(pandas.DataFrame({"source": texts}))
    assert list(said.columns) == ["text"]
    assert len(said) == 3
    assert all(isinstance(text, str) for text in said["text"])
    assert found.metadata.signature.inputs.input_names() == ["source"]


def test_images_have_classes(tmp_path: Path) -> None:
    """The bytes of each image have a label and its score."""
    found = loaded(
        RunFolder(tmp_path / "run"), "image-classification", image_encoder(PICTURE),
        transformers.AutoModelForImageClassification, tmp_path / "saved",
    )  # fmt: skip
    content = list(pictures(2, random.Random(0)).values())
    said = found.predict(pandas.DataFrame({"image": content}))
    assert list(said.columns) == ["label", "score"]
    assert set(said["label"]) <= {"LABEL_0", "LABEL_1"}
    assert all(0.5 <= score <= 1 for score in said["score"])
