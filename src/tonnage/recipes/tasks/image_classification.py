"""Images sorted into classes, by any classifier of images that transformers has: ViT, ResNet, ConvNeXt, Swin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.recipes.data.images import Images, Pixels, find_images, pixels_of
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Item, Items, Prepared
from tonnage.recipes.tasks.items import answers
from tonnage.recipes.tasks.labels import find_labels, number_trained
from tonnage.recipes.tasks.metrics import classification_metrics
from tonnage.recipes.tasks.models import load_model, save_whole, shape_of
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel

THUMBNAIL: Final = 8  # pixels a side: what the linear baseline sees
MOST_IMAGES: Final = 20_000  # it learns from


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `image` (a path, or bytes), `label`. Images are seen as they are: nothing is turned or cut at random."""
    splits = read(spec)
    label = spec.column("label") or "label"
    labels = find_labels(splits, label)
    model = load_model(spec, "AutoModelForImageClassification", padding=None, **labels.config())
    pixels = pixels_of(model.config, spec.weights)
    train, validation, *test = (_images(rows, spec, labels.number(rows, label), pixels) for rows in splits)
    see_batch = partial(collate, pixels=pixels)
    return Prepared(
        model=model,
        train=train,
        validation=validation,
        test=test[0] if test else None,
        collate=see_batch,
        longest=in_order,
        tokens=_no_tokens,
        evaluate=partial(_evaluate, collate=see_batch),
        save=partial(_save, pixels=pixels),
        baseline=partial(_baseline, train, test[0] if test else validation),
        shape={**shape_of(model), "image_side": pixels.side},
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run; the same image under one name stays on one side of the split."""
    return load_splits(spec.data, roles=("image", "label"), stratify="label", same=("image",))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on labelled images."""
    assert trained.pixels is not None
    label = trained.spec.column("label") or "label"
    numbers = number_trained(trained.labels.names, rows, label)
    items = _images(rows, trained.spec, numbers, trained.pixels)
    return _evaluate(trained.model, items, batch, collate=partial(collate, pixels=trained.pixels))


def _images(rows: DatasetRows, spec: RunSpec, labels: Sequence[int], pixels: Pixels) -> Images:
    return Images(*find_images(rows, spec.column("image") or "image"), labels, pixels)


def collate(items: Sequence[Item], *, pixels: Pixels) -> dict[str, Tensor]:
    """A batch as the model sees it: values from 0 to 1, less the mean, over the spread."""
    import numpy as np
    import torch

    seen = torch.from_numpy(np.stack([item["pixel_values"] for item in items])).float() / 255
    mean, sd = (torch.tensor(one).view(1, 3, 1, 1) for one in (pixels.mean, pixels.sd))
    return {"pixel_values": (seen - mean) / sd, "labels": torch.tensor([item["labels"] for item in items])}


def in_order(items: Items) -> Sequence[int]:
    """All images are of one size."""
    return range(len(items))


def _no_tokens(batch: Mapping[str, Tensor]) -> int:  # noqa: ARG001
    return 0


def _evaluate(model: Module, items: Items, batch_size: int, *, collate: Any) -> Evaluation:
    said: list[int] = []
    true: list[int] = []
    for _, batch, output in answers(model, items, batch_size, collate, order=in_order(items)):
        said += output.logits.argmax(dim=-1).tolist()
        true += batch["labels"].tolist()
    return Evaluation(metrics=classification_metrics(true, said), samples=len(true))


def _save(model: Module, folder: Path, *, pixels: Pixels) -> None:
    save_whole(model, folder)
    pixels.save(folder)


def _baseline(train: Images, judged: Images) -> Evaluation:
    """The commonest class, and logistic regression on thumbnails: `majority_...`, `thumbnail_logistic_...`."""
    from sklearn.linear_model import LogisticRegression

    true = list(judged.labels)
    commonest = Counter(train.labels).most_common(1)[0][0]
    shown = range(min(len(train), MOST_IMAGES))
    model = LogisticRegression(max_iter=500)
    model.fit([_thumbnail(train[at]) for at in shown], [train.labels[at] for at in shown])
    guessed = [int(one) for one in model.predict([_thumbnail(judged[at]) for at in range(len(judged))])]
    figures = {
        f"{name}_{key}": value
        for name, answers in (("majority", [commonest] * len(true)), ("thumbnail_logistic", guessed))
        for key, value in classification_metrics(true, answers).items()
    }
    return Evaluation(metrics=figures, samples=len(true))


def _thumbnail(item: Item) -> Any:
    """Means of squares of the image, so many a side, each channel."""
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    return adaptive_avg_pool2d(torch.from_numpy(item["pixel_values"]).float() / 255, THUMBNAIL).flatten().numpy()
