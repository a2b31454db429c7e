"""Models small enough to learn in seconds on a CPU: a shape and a vocabulary, no weights; and one that can speak."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tonnage.errors import MissingExtra

SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
POSITIONS: Final = 128
PIECE: Final = re.compile(r"\w+|[^\w\s]+")  # as the tokenizers library's `Whitespace` cuts


def vocabulary(texts: Iterable[str]) -> tuple[str, ...]:
    """Special tokens, then every word, the commonest first."""
    counted = Counter(piece for text in texts for piece in PIECE.findall(text))
    return (*SPECIAL, *(word for word, _ in sorted(counted.items(), key=lambda item: (-item[1], item[0]))))


def encoder(texts: Iterable[str]) -> Mapping[str, str]:
    """A BERT of two layers, as the files of a model folder."""
    words = vocabulary(texts)
    shape = {"architectures": ["BertModel"], "model_type": "bert", "type_vocab_size": 2, **_shape(words)}
    return {"config.json": _json(shape), **_tokenizer(words, ends=False)}


def decoder(texts: Iterable[str], *, layers: int = 2, hidden: int = 64) -> Mapping[str, str]:
    """A Llama of two layers, as the files of a model folder."""
    words = vocabulary(texts)
    shape = {
        **_shape(words),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    }
    return {"config.json": _json(shape), **_tokenizer(words, ends=True)}


def encoder_decoder(texts: Iterable[str]) -> Mapping[str, str]:
    """A T5 of two layers on each side, as the files of a model folder."""
    words = vocabulary(texts)
    shape = {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 64, "d_kv": 32, "d_ff": 128,
        "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2, "vocab_size": len(words), "pad_token_id": 0,
        "eos_token_id": 3, "decoder_start_token_id": 0, "tie_word_embeddings": True, "is_encoder_decoder": True,
        "feed_forward_proj": "relu", "dropout_rate": 0.0,
    }  # fmt: skip
    return {"config.json": _json(shape), **_tokenizer(words, ends=True)}


def image_encoder(side: int) -> Mapping[str, str]:
    """A vision transformer of two layers, as the files of a model folder."""
    shape = {
        "architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 128, "image_size": side, "patch_size": side // 6,
        "num_channels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    return {"config.json": _json(shape)}


def speaking_decoder(texts: Sequence[str]) -> Mapping[str, str | bytes]:
    """A decoder whose weights hold how often each word follows another in the texts: it speaks without training.

    Words are unit vectors, its one layer adds nothing to them, and the output layer is the table of log-shares.
    """
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise MissingExtra("weights to generate text with", "train") from error
    import numpy as np

    words = vocabulary(texts)
    hidden = len(words) + len(words) % 2
    files = decoder(texts, layers=1, hidden=hidden)
    places = {word: at for at, word in enumerate(words)}
    counts = np.full((len(words), len(words)), 1e-3)
    for text in texts:
        ids = [*(places[piece] for piece in PIECE.findall(text)), 3]
        for before, after in pairwise(ids):
            counts[before, after] += 1
    shares = np.log(counts / counts.sum(axis=1, keepdims=True))
    shape = json.loads(files["config.json"])
    inner, heads, ones = shape["intermediate_size"], (hidden, hidden), np.ones(hidden, dtype=np.float32)
    head = np.zeros((len(words), hidden), dtype=np.float32)
    head[:, : len(words)] = shares.T / np.sqrt(hidden)  # the last norm makes a unit vector that long
    layer = "model.layers.0."
    weights = {
        "model.embed_tokens.weight": np.eye(len(words), hidden, dtype=np.float32),
        "lm_head.weight": head,
        "model.norm.weight": ones,
        **{
            f"{layer}{name}_layernorm.weight": np.ones(hidden, dtype=np.float32) for name in ("input", "post_attention")
        },
        **{f"{layer}self_attn.{name}_proj.weight": np.zeros(heads, dtype=np.float32) for name in "qkvo"},
        **{f"{layer}mlp.{name}_proj.weight": np.zeros((inner, hidden), dtype=np.float32) for name in ("gate", "up")},
        f"{layer}mlp.down_proj.weight": np.zeros((hidden, inner), dtype=np.float32),
    }
    return {**files, "model.safetensors": save(weights, metadata={"format": "pt"})}


def _shape(words: Sequence[str]) -> dict[str, Any]:
    return {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "vocab_size": len(words),
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
    }


def _tokenizer(words: Sequence[str], *, ends: bool) -> Mapping[str, str]:
    """tokenizer.json of whole words, and its settings. `ends`: [SEP] ends a text, nothing is put around it."""
    around = None if ends else _template()
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": at, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
            for at, word in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": around,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(words)}, "unk_token": "[UNK]"},
    }  # fmt: skip
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS, **names}
    return {
        "tokenizer.json": _json(content),
        "tokenizer_config.json": _json({**settings, "eos_token": "[SEP]"} if ends else settings),
    }


def _template() -> dict[str, Any]:
    """[CLS] text [SEP], and with a second text that and [SEP] after it."""

    def special(name: str, part: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": part}}

    def text(name: str, part: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": part}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    known = {name: {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    pair = [*single, text("B", 1), special("[SEP]", 1)]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known}


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
