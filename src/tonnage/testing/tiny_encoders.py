"""Tiny BERT models with random weights in folders, as `save_pretrained` writes them: enough for a server to answer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

WORDS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "film", "was", "who", "wrote", "it", "anna")
HEADS: Final = {
    "classification": "BertForSequenceClassification", "reranking": "BertForSequenceClassification",
    "token-classification": "BertForTokenClassification", "question-answering": "BertForQuestionAnswering",
    "embedding": "BertModel",
}  # fmt: skip
_LABELS: Final = {"classification": ("neg", "pos", "none"), "reranking": ("LABEL_0",),
                  "token-classification": ("O", "PER")}  # fmt: skip


def write_tiny_encoder(
    folder: Path, task: str, *, seed: int = 0, hidden: int = 32, layers: int = 2, heads: int = 2, positions: int = 64
) -> Path:
    """A model of two layers and 32 wide (or as asked) for `task`, with a tokenizer of a few words. Needs the extra
    `train`."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(seed)
    labels = _LABELS.get(task, ())
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=64 if hidden == 32 else 4 * hidden, max_position_embeddings=positions,
        id2label=dict(enumerate(labels)) or None,
        label2id={name: at for at, name in enumerate(labels)} or None,
    )  # fmt: skip
    getattr(transformers, HEADS[task])(config).eval().save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    tokenizers: Any = importlib.import_module("tokenizers")
    numbers = {word: at for at, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(folder / "tokenizer.json"))
