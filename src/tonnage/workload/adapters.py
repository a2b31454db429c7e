"""Adapters: how many parameters they add to a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tonnage.errors import WorkloadError
from tonnage.workload.jobs import Lora
from tonnage.workload.parameters import count_parameters, relative_ways
from tonnage.workload.shapes import ModelShape

ADAPTER_START = 2  # layers below carry none (Zhang et al. 2023, section 3.1: the top 30 of 32)
Targets = Literal["attention", "all-linear"]
Matrices = list[tuple[int, int, int]]  # width in, width out, how many of them


def lora_parameters(shape: ModelShape, rank: int, targets: Targets) -> int:
    """Trainable parameters of LoRA adapters of `rank` on `shape`.

    Each adapted matrix of a x b adds rank·(a + b) (Hu et al. 2021, arXiv:2106.09685, section 4.1).
    `attention` is what PEFT adapts by default: the query and the value projection of every
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


def adapted_matrices(shape: ModelShape, targets: Targets) -> list[tuple[int, int, int]]:
    """(inputs, outputs, how many) of the matrices that carry adapters, over all layers."""
    return list(_attention_targets(shape) if targets == "attention" else _linear_layers(shape))


def adapter_parameters(shape: ModelShape, adapters: Lora) -> int:
    """Trainable parameters of adapters of any kind on `shape`.

    DoRA adds a magnitude per output of each adapted matrix (Liu et al. 2024, arXiv:2402.09353, section 4.1);
    LLaMA-Adapter tokens and a gate per head in all but the first two layers (Zhang et al. 2023, arXiv:2303.16199, 1.2 M
    for LLaMA-7B); its second version a scale and an offset for each output of every linear layer, the vocabulary
    projection's too, and trains the norms (Gao et al. 2023, arXiv:2304.15010, section 3.1; Lightning-AI/litgpt,
    litgpt/adapter_v2.py); a prefix keys and values of every layer (Li and Liang 2021, arXiv:2101.00190, without its
    reparametrisation); a prompt embeddings only (Lester et al. 2021, arXiv:2104.08691).
    """
    layers = _stored_layers(shape) + shape.encoder_layers
    match adapters.kind:
        case "llama-adapter":
            return max(layers - ADAPTER_START, 1) * (adapters.tokens * shape.hidden + shape.heads)
        case "llama-adapter-v2":
            first = adapter_parameters(shape, replace(adapters, kind="llama-adapter"))
            return first + 2 * (scaled_outputs(shape) + shape.vocab) + count_parameters(shape).norms
        case "prefix":
            return layers * 2 * shape.kv_heads * shape.head_dim * adapters.tokens
        case "prompt":
            return adapters.tokens * shape.hidden
    found = lora_parameters(shape, adapters.rank, adapters.targets)
    if adapters.kind == "lora":
        return found
    matrices = _attention_targets(shape) if adapters.targets == "attention" else _linear_layers(shape)
    return found + sum(outputs * count for _, outputs, count in matrices)


def scaled_outputs(shape: ModelShape) -> int:
    """Outputs of all linear layers of a decoder: what LLaMA-Adapter V2 scales and shifts, beside the logits."""
    listed = sum(outputs * count for _, outputs, count in _linear_layers(shape))
    networks = _stored_layers(shape) * max(shape.experts, 1)
    return listed - networks * (shape.ffn - shape.hidden)  # a network's product back down gives the model's width


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
        matrices.append((hidden, query, relative_ways(shape) * blocks))
    return matrices + _mlp_layers(shape) + _outer_layers(shape)


def _mlp_layers(shape: ModelShape) -> Matrices:
    """All as hidden x width, the products back down too: LoRA adds the same to both."""
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
