"""How a training program does its work, where that differs from program to program and no workload file says it."""

from __future__ import annotations

from typing import Literal

from tonnage.sizing.precision import NF4_BYTES_PER_PARAMETER
from tonnage.values import dataclass

State = Literal["autocast", "cast-model", "megatron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProfile:
    """Habits of a training program. The defaults are those of PyTorch with transformers or Lightning.

    `fused`: hand-written kernels merge element-wise work (Megatron, Transformer Engine, TensorRT-like); what a
    compiler merges follows the job's `compile`.
    `cached_tokens`: earlier tokens each segment also attends to (Transformer-XL). `target_tokens`: decoder length of
    an encoder-decoder (0: as the encoder's). `document_tokens`: of documents packed into a sequence,
    each attending to itself alone (0: none). `logit_share`: positions that go through the vocabulary projection
    (masked positions only: about 0.15). `interleave`: model chunks per pipeline stage (Narayanan et al. 2021).
    `state`: autocast keeps fp32 weights and 16-bit copies; a cast
    model is 16-bit with fp32 masters beside; megatron adds fp32 main gradients. `reduce_bytes`: gradient element on
    the wire (0: as the precision says). `optimizer_passes`: traffic over AdamW's (LAMB reads state twice).
    `sequence_parallel`: tensor-parallel ranks share norms and residual adds (Korthikanti et al. 2022); before, each did
    all of them. `thin_residual`: the residual stream is 16-bit too (cast models, FSDP mixed precision, Megatron).
    `channels_last`: images are laid out as tensor cores want them (NHWC); otherwise 16-bit convolutions turn their
    input and output round.
    `loss_bytes`: bytes a logit takes at the start of backward (0: the assumption). `loss_parts`: logits are made in so
    many. `loss_moved_bytes`: what the loss moves for a logit forward, half of what backward moves (0: a plain loss).
    `rare_words`: clusters of an adaptive softmax beyond its head, the share of tokens that each takes and its words.
    `optimizer_kernels`: launched one by one for each tensor (a trust ratio of its own), not over lists of tensors.
    `exchanges`: data-parallel ranks sum their gradients. `primitives`: kernels are launched and activations kept per
    primitive. `clustered`: a compiler merges clusters of operations of such a graph.

    What memory alone asks. `norm_copies`: RMS norms are made of primitives, which keep copies (transformers, torchtune,
    litgpt); `torch.nn.RMSNorm` and hand-written kernels keep their input. `repeats_kv`: keys and values are repeated
    for grouped queries. `no_sync`: accumulation under FSDP
    skips the reduction, so that gradients of all weights are kept. `keeps_gathered`: FSDP leaves frozen weights
    gathered (its first version). `frozen_bytes`: a frozen weight (0: as the precision says; 4: «mixed» over a 32-bit
    base). `table_bytes`: embeddings and head of a 4-bit base. `adapter_dropout`: on the input of each adapter.
    `keeps_quantised_inputs`: 4-bit products keep their inputs (bitsandbytes before 0.43), those of the step before too
    until its loss is replaced. `four_bit_bytes`: a 4-bit weight with its scales. `quantised_head`: the head is one.
    `separate_gathers`: ZeRO-3 gathers each tensor of a layer by itself, not a layer at a time.
    `flat_gradients`: 16-bit gradients are copied end to end before 32-bit ones are made of them (DeepSpeed's ZeRO).
    `tables_apart`: embedding and head are units of FSDP of their own, not part of the model's, which stays gathered.
    `lists_when_sharded`: the optimizer steps lists of tensors where weights are shared out. `wide_gathers`: 32-bit
    weights that are shared out are gathered so, and their 16-bit copies are held whole (autocast over FSDP).
    `wide_reduction`: FSDP sums 16-bit gradients in 32 bit. `optimizer_by_tensor`: no list of temporaries while it
    steps. `standing_gradients`: zeroed between steps, never freed. `early_modules`: every kernel is loaded at first.
    `layers_compiled`: a compiler takes the layers one by one, the loss not with them. `keeps_outputs`: a stage of a
    pipeline keeps its share of what it handed on until backward (DeepSpeed).
    """

    fused: bool = False
    cached_tokens: int = 0
    target_tokens: int = 0
    document_tokens: int = 0
    logit_share: float = 1.0
    interleave: int = 1
    state: State = "autocast"
    reduce_bytes: float = 0.0
    optimizer_passes: float = 1.0
    loss_bytes: float = 0.0
    loss_parts: int = 1
    loss_moved_bytes: float = 0.0
    rare_words: tuple[tuple[float, float], ...] = ()
    optimizer_kernels: float = 0.0
    exchanges: bool = True
    primitives: bool = False
    clustered: bool = False
    kept_factor: float = 1.0  # activations kept over those of PyTorch (graphs that break activations into primitives)
    planned_memory: bool = False  # buffers are laid out before the run: nothing fragments
    optimizer_fused: bool = False  # one kernel steps all tensors
    offloaded_optimizer: bool = False
    offloaded_state: bool = False  # weights and gradients too
    offloaded_activations: bool = False
    gradients_in_backward: bool = False  # each gradient is applied and freed as it comes (fused optimizer step)
    adapter_bytes: float = 0.0  # of an element of adapters (0: as products); peft holds those of a 16-bit base in fp32
    tensor_overlap: bool = False  # all-reduces of tensor parallelism run beside the products they belong to
    data_overlap: bool = False  # messages of data parallelism are cut by layers and run beside the products
    fused_accumulation: bool = False  # products add weights' gradients to the sum themselves
    sequence_parallel: bool = True
    thin_residual: bool = False
    channels_last: bool = True
    norm_copies: bool = True
    repeats_kv: bool = False
    no_sync: bool = True
    keeps_gathered: bool = False
    frozen_bytes: float = 0.0
    table_bytes: float = 4.0
    adapter_dropout: bool = False
    keeps_quantised_inputs: bool = False
    four_bit_bytes: float = NF4_BYTES_PER_PARAMETER
    quantised_head: bool = False
    flat_gradients: bool = False
    tables_apart: bool = False
    separate_gathers: bool = False
    lists_when_sharded: bool = False
    wide_gathers: bool = False
    wide_reduction: bool = False
    optimizer_by_tensor: bool = False
    standing_gradients: bool = False
    early_modules: bool = False
    layers_compiled: bool = False
    keeps_outputs: bool = False


PLAIN = TrainerProfile()
