"""Images into classes: found, seen, learned, saved, asked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `train`")
pytest.importorskip("PIL", reason="the extra `train`")

from PIL import Image

from tonnage.errors import DataError, InputError
from tonnage.recipes.answering import make_answerer
from tonnage.recipes.data.images import Pixels, pixels_of, see
from tonnage.recipes.starters.models import image_encoder
from tonnage.recipes.starters.rows import PICTURE, as_png, pictures
from tonnage.recipes.tasks.image_classification import judge, prepare, read
from tonnage.recipes.tasks.models import IMAGES, load_trained
from tonnage.recipes.trained import TrainedModel
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, TrainingSpec
from tonnage.workload.jobs import Lora

RESNET = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
    "image_size": PICTURE, "num_channels": 3,
}  # fmt: skip
Make = Callable[..., RunSpec]


@pytest.fixture
def make_spec(tmp_path: Path) -> Make:
    """A run over 120 small pictures in a folder for each class."""
    for path, content in pictures(120, Random(0)).items():
        place = tmp_path / "data" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (tmp_path / "model").mkdir()

    def make(config: dict[str, Any] | None = None, **training: Any) -> RunSpec:
        said = image_encoder(PICTURE)["config.json"] if config is None else json.dumps(config)
        (tmp_path / "model" / "config.json").write_text(said)
        return RunSpec(
            name="test", task="image-classification", config=str(tmp_path / "model"),
            data=DataSpec(
                train=DataSource(location=str(tmp_path / "data" / "*" / "*.png"), format="images"),
                columns=(("image", "image"), ("label", "label")), validation_fraction=0.25,
            ),
            training=TrainingSpec(**{"global_batch": 16, "precision": "fp32", **training}),
        )  # fmt: skip

    return make


def test_a_folder_is_a_class(make_spec: Make) -> None:
    """Files by a pattern: the folder's name is the label; both splits have every class, no image is in both."""
    splits = read(make_spec())
    assert set(splits.train.column("label", "label")) == {"disc", "cross", "frame"}
    assert set(splits.validation.column("label", "label")) == {"disc", "cross", "frame"}
    assert not set(splits.train.column("image", "image")) & set(splits.validation.column("image", "image"))


def test_rows_name_images_from_their_file(tmp_path: Path, make_spec: Make) -> None:
    """A JSONL beside the images; a path that leads nowhere is told with file and line."""
    rows = [{"photo": f"data/{name}", "kind": name.split("/")[0]} for name in pictures(120, Random(0))]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = make_spec()
    columns = (("image", "photo"), ("label", "kind"))
    spec = replace(spec, data=replace(spec.data, train=DataSource(location=str(file), format="jsonl"), columns=columns))
    assert len(prepare(spec).train) + len(prepare(spec).validation) == 120
    file.write_text(file.read_text() + json.dumps({"photo": "data/none.png", "kind": "disc"}) + "\n")
    with pytest.raises(DataError, match=r"rows.jsonl:121: there is no image .*data/none.png"):
        prepare(spec)


def test_an_image_is_seen_as_its_centre(tmp_path: Path) -> None:
    """A wide picture is scaled by its shorter side and cut at both ends; grey ones have three equal channels; bytes are
    as good as a path; what is no image is named."""
    wide = Image.new("RGB", (40, 20))
    wide.paste((255, 0, 0), (10, 0, 30, 20))
    wide.save(tmp_path / "wide.png")
    seen = see(str(tmp_path / "wide.png"), "here:1", 10)
    assert seen.shape == (3, 10, 10)
    assert seen[0, :, 1:-1].min() > 250
    assert seen[1:].max() == 0
    Image.new("L", (8, 8), 7).save(tmp_path / "grey.png")
    assert see((tmp_path / "grey.png").read_bytes(), "here:2", 4).tolist() == [[[7] * 4] * 4] * 3
    (tmp_path / "no.png").write_bytes(b"text")
    with pytest.raises(DataError, match=r"here:3: .*no.png cannot be read"):
        see(str(tmp_path / "no.png"), "here:3", 4)


def test_the_starters_pictures_are_pictures() -> None:
    """What the starter writes by hand, a library reads."""
    red = as_png(bytes([255, 0, 0] * 9), 3)
    assert see(red, "x", 3).tolist() == [[[255] * 3] * 3, [[0] * 3] * 3, [[0] * 3] * 3]


def test_mean_and_side_are_the_weights_own(tmp_path: Path) -> None:
    """From the settings beside the weights; without a side anywhere the hint says where to put it."""

    class Config:
        num_channels = 3

    with pytest.raises(InputError, match="how large an image is"):
        pixels_of(Config(), None)
    Pixels(side=32, mean=(0.1, 0.2, 0.3), sd=(0.4, 0.5, 0.6)).save(tmp_path)
    assert pixels_of(Config(), str(tmp_path)) == Pixels(side=32, mean=(0.1, 0.2, 0.3), sd=(0.4, 0.5, 0.6))


@pytest.mark.parametrize(
    ("config", "training"),
    [(None, {}), (RESNET, {}), (None, {"method": "lora", "lora": Lora(rank=4, targets="all-linear")})],
    ids=["vit", "resnet", "vit with adapters"],
)
def test_learned_saved_and_asked_again(
    make_spec: Make, tmp_path: Path, train_a_little: Any, config: Any, training: dict[str, Any]
) -> None:
    """The loss falls; the saved folder gives the same figures again, and answers rows."""
    spec = make_spec(config, **training)
    if training:
        whole = prepare(make_spec())
        whole.save(whole.model, tmp_path / "base")
        spec = replace(spec, weights=str(tmp_path / "base"), config=None)
    prepared = prepare(spec)
    losses = train_a_little(prepared, steps=8, batch=len(prepared.train), learning_rate=3e-3)
    assert losses[-1] < losses[0]
    prepared.model.eval()
    found = prepared.evaluate(prepared.model, prepared.validation, 8)
    assert set(found.metrics) == {"accuracy", "macro_f1"}
    assert {"majority_accuracy", "thumbnail_logistic_accuracy"} < set(prepared.baseline().metrics)  # type: ignore[misc]
    (tmp_path / "saved").mkdir()
    prepared.save(prepared.model, tmp_path / "saved")
    model = load_trained(spec, tmp_path / "saved", IMAGES, padding=None).eval()
    trained = TrainedModel(
        spec=spec, model=model, tokenizer=None, longest=0, device="cpu", precision="fp32",
        pixels=pixels_of(model.config, str(tmp_path / "saved")),
    )  # fmt: skip
    splits = read(spec)
    assert judge(trained, splits.validation, 5).metrics == pytest.approx(dict(found.metrics), abs=0.04)
    paths = splits.validation.column("image", "image")[:3]
    told = make_answerer(trained).answer([(f"{path}, row 1", {"image": path}) for path in paths], 2)
    assert all(one["label"] in trained.labels.names and 1 / 3 <= one["probability"] <= 1 for one in told)
