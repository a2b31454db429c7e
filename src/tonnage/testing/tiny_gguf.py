"""A llama model of a quarter of a megabyte with random weights, as a GGUF file: enough for a real server to answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 64, 2, 4, 2, 128, 4096
CONTROL = ("<|bos|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (Radford et al. 2019, GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def write_tiny_gguf(path: Path, *, seed: int = 0) -> Path:
    """Write the model in 16 bits: one token a byte, no merges but one, a chat template."""
    import gguf

    letters = byte_letters()
    tokens = [*letters, "th", *CONTROL]
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([normal] * (len(tokens) - len(CONTROL)) + [control] * len(CONTROL))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(tokens.index("<|bos|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)
    _add_weights(writer, len(tokens), np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_weights(writer: object, vocabulary: int, random: np.random.Generator) -> None:
    def matrix(name: str, rows: int, columns: int) -> None:
        values = random.standard_normal((rows, columns)) / np.sqrt(columns)
        writer.add_tensor(name, values.astype(np.float16))  # type: ignore[attr-defined]

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))  # type: ignore[attr-defined]

    keys = WIDTH // HEADS * KV_HEADS
    matrix("token_embd.weight", vocabulary, WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        for name, rows, columns in (("attn_q", WIDTH, WIDTH), ("attn_k", keys, WIDTH), ("attn_v", keys, WIDTH),
                                    ("attn_output", WIDTH, WIDTH), ("ffn_gate", FFN, WIDTH), ("ffn_up", FFN, WIDTH),
                                    ("ffn_down", WIDTH, FFN)):  # fmt: skip
            matrix(f"{block}{name}.weight", rows, columns)
    ones("output_norm.weight")
    matrix("output.weight", vocabulary, WIDTH)
