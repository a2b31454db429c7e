"""Low-rank adapters (LoRA): how many parameters they add to a shape."""

from __future__ import annotations

from typing import Literal

from tonnage.errors import WorkloadError
from tonnage.workload.shapes import ModelShape

Targets = Literal["attention", "all-linear"]
Matrices = list[tuple[int, int, int]]  # width in, width out, how many of them


def lora_parameters(shape: ModelShape, rank: int, targets: Targets) -> int:
    """Trainable parameters of LoRA adapters of `rank` on `shape`.

    Each adapted matrix of a x b adds rank·(a + b) (Hu et al. 2021, arXiv:2106.09685, section 4.1).
    `attention` is what PEFT adapts unless told otherwise: the query and the value projection of every
    attention block, or the one fused query-key-value matrix where the model has it (Phi-1.5 and Phi-2, where
    PEFT adds the MLP, excepted). `all-linear` is PEFT's shorthand of that name: every linear layer, experts
    and router included, but neither the vocabulary projection nor the classification layer.

    >>> gpt2 = ModelShape(name="gpt2", architecture="decoder", layers=12, hidden=768, heads=12, kv_heads=12,
    ...                   head_dim=64, ffn=3072, vocab=50257, max_positions=1024, fused_qkv=True)
    >>> lora_parameters(gpt2, 8, "attention")  # PEFT prints 294,912 trainable parameters
    294912
    """
    if rank < 1:
        raise WorkloadError(f"a LoRA rank of {rank} adapts nothing; expected 1 or more", key="rank")
    if shape.architecture == "convolution":
        raise WorkloadError(
            f"{shape.name} has no linear layers that LoRA adapts",
            hint="train it with `method: full`",
            key="method",
        )
    return rank * sum((inputs + outputs) * count for inputs, outputs, count in adapted_matrices(shape, targets))


def adapter_parameters(shape: ModelShape, *, kind: str, rank: int, targets: Targets, tokens: int) -> int:
    """Trainable parameters of adapters of any kind.

    DoRA adds a magnitude for each output of an adapted matrix (Liu et al. 2024, arXiv:2402.09353). A prefix has keys
    and values of its virtual tokens in every layer (Li and Liang 2021, arXiv:2101.00190; without the network that makes
    them), LLaMA-Adapter a prompt and a gate a head in all layers but the first two (Zhang et al. 2023,
    arXiv:2303.16199, litgpt's `adapter_start_layer`), prompt tuning one at the input (Lester et al. 2021,
    arXiv:2104.08691).

    >>> from tonnage.workload.known import find_model
    >>> llama = find_model("llama-2-7b")  # litgpt prints 1,229,760
    >>> adapter_parameters(llama, kind="llama-adapter", rank=0, targets="attention", tokens=10)
    1229760
    """
    if kind == "prompt":
        return tokens * shape.embedding_width
    if kind == "prefix":
        return tokens * 2 * shape.layers * shape.kv_heads * shape.head_dim
    if kind == "llama-adapter":
        return max(shape.layers - 2, 1) * (tokens * shape.hidden + shape.heads)
    found = lora_parameters(shape, rank, targets)
    if kind == "dora":
        found += sum(outputs * count for _, outputs, count in adapted_matrices(shape, targets))
    return found


def adapted_matrices(shape: ModelShape, targets: Targets) -> list[tuple[int, int, int]]:
    """(inputs, outputs, how many) of the matrices that carry adapters, over all layers."""
    return list(_attention_targets(shape) if targets == "attention" else _linear_layers(shape))


def _stored_layers(shape: ModelShape) -> int:
    return 1 if shape.shared_layers else shape.layers


def _attention_blocks(shape: ModelShape) -> int:
    """Self-attention of every stored layer, and cross-attention of every decoder layer behind an encoder."""
    crossed = shape.layers if shape.architecture == "encoder-decoder" else 0
    return _stored_layers(shape) + shape.encoder_layers + crossed


def _attention_targets(shape: ModelShape) -> Matrices:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    blocks = _attention_blocks(shape)
    if shape.kv_latent:
        return _latent_up(shape)
    if shape.fused_qkv:
        return [(shape.hidden, query + 2 * key, blocks)]
    return [(shape.hidden, query, blocks), (shape.hidden, key, blocks)]


def _latent_up(shape: ModelShape) -> Matrices:
    """Latent attention: the matrices up to the heads, of queries and of keys with values."""
    blocks, query = _attention_blocks(shape), shape.heads * shape.head_dim
    lifted = shape.heads * (shape.head_dim - shape.rotary_dim + shape.value_width)
    return [(shape.query_latent or shape.hidden, query, blocks), (shape.kv_latent, lifted, blocks)]


def _linear_layers(shape: ModelShape) -> Matrices:
    hidden, query, key = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    blocks = _attention_blocks(shape)
    matrices: Matrices = [(shape.heads * shape.value_width, hidden, blocks)]
    if shape.kv_latent:
        matrices += [*_latent_up(shape), (hidden, shape.kv_latent + shape.rotary_dim, blocks)]
        if shape.query_latent:
            matrices.append((hidden, shape.query_latent, blocks))
    elif shape.fused_qkv:
        matrices.append((hidden, query + 2 * key, blocks))
    else:
        matrices += [(hidden, query, blocks), (hidden, key, 2 * blocks)]
    if shape.relative_projections:
        matrices.append((hidden, query, 2 * blocks))
    return matrices + _mlp_layers(shape) + _outer_layers(shape)


def _mlp_layers(shape: ModelShape) -> Matrices:
    per_mlp = 3 if shape.gated_mlp else 2
    sparse = _stored_layers(shape) - shape.dense_layers if shape.experts else 0
    dense = shape.encoder_layers + (0 if shape.experts else _stored_layers(shape))
    matrices: Matrices = [
        (shape.hidden, shape.ffn, per_mlp * (dense + sparse * shape.experts)),
        (shape.hidden, shape.dense_ffn, per_mlp * shape.dense_layers),
        (shape.hidden, shape.experts, sparse),
    ]
    if shape.shared_expert_ffn:
        matrices.append((shape.hidden, shape.shared_expert_ffn, per_mlp * sparse))
    if shape.shared_expert_gate:
        matrices.append((shape.hidden, 1, sparse))
    return matrices


def _outer_layers(shape: ModelShape) -> Matrices:
    """Linear layers outside the stack: around factorised embeddings, the pooler, the masked-LM transform."""
    width, hidden = shape.embedding_width, shape.hidden
    factorised = (1 if shape.embedding_projection == "after-norm" else 2) if width != hidden else 0
    return [
        (width, hidden, factorised),
        (hidden, hidden, int(shape.pooler)),
        (hidden, width, int(shape.mlm_transform)),
    ]
