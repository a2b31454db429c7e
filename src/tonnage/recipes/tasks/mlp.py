"""A multi-layer perceptron over a table, for the training loop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tonnage.features.tables import TableCoder
from tonnage.recipes.task import Evaluation, Item, Items, Prepared
from tonnage.recipes.tasks.tables import TableSplit, judge, load_table, table_baseline
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.nn import Module

WEIGHTS: Final = "model.safetensors"
SETTINGS: Final = "mlp.json"


class _TableItems:
    """Rows by position, as numbers."""

    def __init__(self, coder: TableCoder, part: TableSplit) -> None:
        self.rows, self.labels = coder.scaled(part.rows.columns), part.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> Item:
        return {"row": self.rows[position], "label": self.labels[position]}


def prepare(spec: RunSpec) -> Prepared:
    """Role: `label`; `features` as named, or all other columns."""
    import torch

    table = load_table(spec)
    coder = table.coder
    train, validation = (_TableItems(coder, part) for part in (table.train, table.validation))
    test = None if table.test is None else _TableItems(coder, table.test)
    torch.manual_seed(spec.training.seed)
    outputs = len(coder.classes) or 1
    mean, spread = float(table.train.labels.mean()), float(table.train.labels.std()) or 1.0
    scale = (0.0, 1.0) if coder.classes else (mean, spread)
    settings = {
        "inputs": train.rows.shape[1],
        "hidden_layers": list(spec.tabular.hidden_layers),
        "outputs": outputs,
        "scale": list(scale),
    }
    model = build_network(settings)
    return Prepared(
        model=model,
        train=train,
        validation=validation,
        test=test,
        collate=partial(_collate, classes=bool(coder.classes)),
        longest=lambda items: range(len(items)),
        tokens=lambda _: 0,
        evaluate=partial(_evaluate, coder=coder),
        save=partial(_save, coder=coder, settings=settings),
        baseline=partial(table_baseline, table),
        shape={"params": sum(one.numel() for one in model.parameters())},
    )


def build_network(settings: Mapping[str, Any]) -> Module:
    """Linear layers with ReLU between; called with rows and labels it gives `loss` and `logits`.

    For values `scale` (mean, spread) is what the outputs are measured in, so that the network learns around 0.
    """
    import torch
    from torch import nn

    class Network(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            widths = [settings["inputs"], *settings["hidden_layers"]]
            layers: list[nn.Module] = []
            for width, following in pairwise(widths):
                layers += [nn.Linear(width, following), nn.ReLU()]
            self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], settings["outputs"]))
            self.register_buffer("scale", torch.tensor(settings["scale"], dtype=torch.float32))

        def forward(self, rows: Tensor, labels: Tensor) -> SimpleNamespace:
            found = self.layers(rows)
            if settings["outputs"] > 1:
                return SimpleNamespace(loss=nn.functional.cross_entropy(found, labels), logits=found)
            mean, spread = self.scale
            loss = nn.functional.mse_loss(found[:, 0], (labels - mean) / spread)
            return SimpleNamespace(loss=loss, logits=found[:, 0] * spread + mean)

    return Network()


def _collate(items: Sequence[Item], *, classes: bool) -> dict[str, Tensor]:
    import numpy as np
    import torch

    labels = torch.tensor([item["label"] for item in items], dtype=torch.long if classes else torch.float32)
    return {"rows": torch.from_numpy(np.stack([item["row"] for item in items])), "labels": labels}


def _evaluate(model: Module, items: Items, batch_size: int, *, coder: TableCoder) -> Evaluation:
    import numpy as np
    import torch

    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    output, labels = [], []
    with torch.inference_mode():
        for start in range(0, len(items), batch_size):
            some = [items[at] for at in range(start, min(start + batch_size, len(items)))]
            batch = _collate(some, classes=bool(coder.classes))
            found = model(**{name: value.to(device) for name, value in batch.items()})
            output.append(found.logits.float().cpu().numpy())
            labels.append(batch["labels"].numpy())
    model.train(was_training)
    return judge(coder, np.concatenate(labels), np.concatenate(output))


def load_network(folder: Path) -> Module:
    """The finished network of a run."""
    from safetensors.torch import load_file

    model = build_network(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model


def predict_rows(model: Module, coder: TableCoder, columns: Mapping[str, Sequence[Any]]) -> NDArray[Any]:
    """A value for each row, or a logit for each class."""
    import torch

    device = next(model.parameters()).device
    rows = torch.from_numpy(coder.scaled(columns)).to(device)
    labels = torch.zeros(len(rows), dtype=torch.long if coder.classes else torch.float32, device=device)
    with torch.inference_mode():
        found: NDArray[Any] = model(rows=rows, labels=labels).logits.float().cpu().numpy()
    return found


def _save(model: Module, folder: Path, *, coder: TableCoder, settings: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous().cpu() for name, value in model.state_dict().items()}, folder / WEIGHTS)
    (folder / SETTINGS).write_text(json.dumps(dict(settings), indent=1) + "\n", encoding="utf-8")
    coder.save(folder)
