"""What training programs do: one table of documented defaults, for users' files and for measured rows alike.

A `Program` is values only: what the physics of time and memory depends on, feature by feature. `None` (or an empty
tuple) is «not stated»; `documented` gives what a named program says of itself, and what is stated goes before it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final, Literal, get_args

from tonnage.values import dataclass

ProgramName = Literal[
    "transformers", "torchtune", "torchtitan", "nemo", "megatron", "litgpt", "axolotl", "unsloth", "deepspeed",
    "llm-foundry", "megatron-deepspeed", "lightning", "nanogpt", "pytorch", "tensorflow", "jax", "mxnet", "paddle",
    "oneflow", "tonnage",
]  # fmt: skip
Kernels = Literal["separate", "fused"]  # of element-wise work: each operation its own, or merged by hand
State = Literal["autocast", "cast-model", "megatron"]
SixteenBit = Literal["mixed", "true"]  # what «bf16» means: fp32 weights and 16-bit products, or 16-bit weights too
Loss = Literal["plain", "chunked", "fused", "in-place", "one-kernel", "half"]
Selective = Literal["scores", "per-op"]
OffloadPart = Literal["optimizer", "parameters", "activations"]
Reading = Literal["allocated", "reserved", "device"]
AdapterTargets = Literal["attention", "all-linear"]
Attention = Literal["eager", "sdpa", "flash"]
Optimizer = Literal["adamw", "adamw-8bit", "sgd", "adafactor"]
Recompute = Literal["none", "selective", "full"]

# Programs that run tensor and pipeline parallelism as they come (Megatron-LM and NeMo arguments; torchtitan
# `tensor_parallel_degree`, `pipeline_parallel_degree`; OneFlow's GPT).
SPLITTING: Final[tuple[ProgramName, ...]] = ("nemo", "megatron", "megatron-deepspeed", "torchtitan", "oneflow")
PROGRAMS: Final[tuple[ProgramName, ...]] = get_args(ProgramName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a training program does. None: not stated, and not documented.

    `state`: autocast keeps fp32 weights and 16-bit copies; a cast model is 16-bit with fp32 masters beside; megatron
    adds fp32 main gradients. `loss`: `chunked` makes the logits part by part, `fused` computes it in one kernel with no
    copy, `in-place` overwrites the logits with their gradient, `one-kernel` reads 16-bit logits in one kernel forward
    and one backward (flash-attn), `half` is a plain loss over 16-bit logits that nothing casts. `clustered`: XLA merges
    clusters of a TensorFlow graph. `selective`: what selective recomputation makes again: the attention scores
    (Korthikanti et al. 2022), or every operation but attention and every second matrix product.
    `offload`: what stays in host memory. `half_residual`: 16-bit training keeps the residual stream in 16 bit.
    `wide_adapters`: those of a 16-bit base are held in fp32. `tensor_overlap`: all-reduces of tensor parallelism run
    beside products, piece by piece. `data_overlap`: gradients and gathered weights cross the wire layer by layer beside
    the products. `fused_accumulation`: products add weights' gradients to the sum of earlier micro-batches as they make
    them. `planned_memory`: a compiler lays buffers out before the run. `primitive_graph`: activations are kept per
    primitive. `fused_norms`: an RMS norm is one operation, of primitives otherwise.
    `repeated_kv`: keys and values are repeated for grouped queries. `whole_gradients`: accumulation under FSDP skips
    the reduction. `keeps_gathered`: FSDP leaves frozen weights gathered. `wide_base`: mixed precision over a frozen
    base means 32-bit weights of it. `half_tables`: those of a 4-bit base are held in 16 bit. `adapter_dropout`: on the
    input of each. `quantised_inputs`: 4-bit products keep their inputs, in the graph itself, which the loss of the step
    before holds until the next one is there. `quantised_head`: the head is a 4-bit layer too. `single_scales`: scales
    of a 4-bit base are not quantised again. `flat_gradients`: those of a rank's share are
    laid end to end before they are widened. `tables_apart`: FSDP gathers embedding and head only while they are used.
    `separate_gathers`: ZeRO-3 gathers tensor by tensor. `lists_when_sharded`: a fused optimizer steps lists of tensors
    where weights are shared out. `wide_gathers`: autocast over weights that are shared out in 32 bit, so that they are
    gathered so and their 16-bit copies stay whole from forward to backward. `keeps_outputs`: a stage of a pipeline
    keeps its share of what it handed on until backward. `early_modules`: every kernel of its libraries is on the device
    from the start, as before CUDA 11.7 (May 2022).
    """

    name: ProgramName | None = None
    version: str = ""
    kernels: Kernels | None = None
    state: State | None = None
    sixteen_bit: SixteenBit | None = None
    attention: Attention | None = None
    compile: bool | None = None
    recompute: Recompute | None = None
    selective: Selective | None = None
    loss: Loss | None = None
    optimizer: Optimizer | None = None
    optimizer_fused: bool | None = None
    optimizer_in_backward: bool | None = None
    offload: tuple[OffloadPart, ...] | None = None
    channels_last: bool | None = None
    half_residual: bool | None = None
    sequence_parallel: bool | None = None
    planned_memory: bool | None = None
    primitive_graph: bool | None = None
    clustered: bool | None = None
    adapter_targets: AdapterTargets | None = None
    fused_norms: bool | None = None
    repeated_kv: bool | None = None
    whole_gradients: bool | None = None
    keeps_gathered: bool | None = None
    wide_base: bool | None = None
    half_tables: bool | None = None
    adapter_dropout: bool | None = None
    quantised_inputs: bool | None = None
    quantised_head: bool | None = None
    single_scales: bool | None = None
    wide_adapters: bool | None = None
    tensor_overlap: bool | None = None
    data_overlap: bool | None = None
    fused_accumulation: bool | None = None
    flat_gradients: bool | None = None
    tables_apart: bool | None = None
    separate_gathers: bool | None = None
    lists_when_sharded: bool | None = None
    wide_gathers: bool | None = None
    wide_reduction: bool | None = None
    optimizer_by_tensor: bool | None = None
    standing_gradients: bool | None = None
    early_modules: bool | None = None
    layers_compiled: bool | None = None
    keeps_outputs: bool | None = None

    def over(self, base: Program) -> Program:
        """These values where they are stated, else those of `base`.

        >>> Program(loss="plain").over(Program(loss="chunked", state="autocast")).loss
        'plain'
        """
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(base, **{name: value for name, value in stated.items() if value not in (None, "")})

    def stated(self) -> dict[str, Any]:
        """Feature -> value, of those stated; without the name."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return {name: value for name, value in values.items() if value not in (None, "", ())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """Defaults of a program, with where they are documented; adapters and lone GPUs have configurations of their own.

    `earlier`: what differed before a version, the newest first. `compiled`: what the program compiles beside the model
    where it is asked to compile, from version `compiled_since` on. `reading`: the figure its log calls the peak memory.
    """

    usual: Program
    source: str
    reading: Reading | None = None
    earlier: tuple[tuple[str, Program], ...] = ()
    adapters: Program = Program()
    quantised: Program = Program()  # adapters on a 4-bit base
    one_gpu: Program = Program()  # all weights trained on one GPU
    compiled: Program = Program()
    compiled_since: str = ""


_PLAIN: Final = Program(attention="sdpa", compile=False, recompute="none", loss="plain", optimizer="adamw")
_MEGATRON: Final = Program(
    kernels="fused", state="megatron", loss="in-place", optimizer_fused=True, half_residual=True,
    selective="scores", whole_gradients=False,
)  # fmt: skip

DOCUMENTED: Final[dict[ProgramName, Documented]] = {
    "transformers": Documented(
        usual=replace(_PLAIN, whole_gradients=True),
        adapters=Program(adapter_targets="attention", wide_adapters=True, adapter_dropout=False),
        quantised=Program(recompute="full", half_tables=False),
        earlier=(
            ("4.36", Program(attention="eager")),
            ("4.32", Program(optimizer_by_tensor=True)),
            ("4.28", Program(standing_gradients=True, early_modules=True)),
        ),
        source="huggingface/transformers training_args.py (gradient_checkpointing False, AdamW) and release 4.36 (SDPA "
        "by default), trainer.py (accumulation under accelerator.no_sync); huggingface/peft "
        "prepare_model_for_kbit_training: use_gradient_checkpointing=True, 32-bit tables; autocast_adapter_dtype=True; "
        "pull request 25109, in 4.32: adamw_torch in place of adamw_hf, which steps one tensor after another. Before "
        "4.28 it ran on PyTorch 1, whose zero_grad filled gradients with zeros (release notes of 2.0: set_to_none), "
        "and on CUDA without lazy loading",
    ),
    "torchtune": Documented(
        usual=Program(
            sixteen_bit="true",
            attention="sdpa",
            recompute="full",
            loss="chunked",
            optimizer="adamw",
            optimizer_fused=True,
            half_residual=True,
            repeated_kv=True,
            whole_gradients=False,
        ),
        adapters=Program(adapter_targets="all-linear", wide_adapters=False, half_tables=True),
        earlier=(("0.3", Program(loss="plain", adapter_targets="attention")),),
        one_gpu=Program(optimizer="adamw-8bit", optimizer_in_backward=True, offload=("optimizer",)),
        source="pytorch/torchtune recipes/configs/llama3_1: 8B_full_single_device (PagedAdamW8bit, optimizer_in_bwd), "
        "8B_lora_single_device, 8B_qlora_single_device, 70B_full: dtype bf16, CEWithChunkedOutputLoss, "
        "enable_activation_checkpointing",
    ),
    "torchtitan": Documented(
        usual=Program(
            sixteen_bit="mixed",
            attention="sdpa",
            compile=False,
            recompute="selective",
            selective="per-op",
            loss="plain",
            optimizer="adamw",
            optimizer_fused=True,
            half_residual=True,
            whole_gradients=False,
            wide_reduction=True,
            layers_compiled=True,
        ),
        compiled=Program(loss="one-kernel"),
        compiled_since="0.1",
        source="pytorch/torchtitan train_configs/llama3_8b.toml: selective_ac_option 'op', compile false; FSDP2 with "
        "bf16 parameters and fp32 reduction; metrics.py logs max reserved memory; components/loss.py: training.compile "
        "takes the cross entropy too, which then reads 16-bit logits and writes their gradient (0.1, June 2025)",
        reading="reserved",
    ),
    "nemo": Documented(
        usual=replace(
            _MEGATRON,
            attention="flash",
            compile=False,
            recompute="none",
            tensor_overlap=True,
            data_overlap=True,
            fused_accumulation=True,
        ),
        adapters=Program(adapter_targets="attention", wide_adapters=False),
        source="NVIDIA/NeMo llm recipes on Megatron Core and Transformer Engine: fused kernels, distributed optimizer, "
        "ub_tp_comm_overlap; lora_tuning.target_modules [attention_qkv]. Megatron's FSDP scatters the gradients of "
        "every micro-batch (megatron_fsdp.fully_shard: sync_model_each_microbatch); data-parallel messages are cut by "
        "layers, all but one of which run beside products (docs.nvidia.com/nemo/megatron-bridge, communication "
        "overlap)",
    ),
    "megatron": Documented(
        usual=replace(_MEGATRON, compile=False, recompute="none", fused_accumulation=True),
        earlier=(("3.0", Program(early_modules=True, fused_accumulation=False)),),
        source="NVIDIA/Megatron-LM arguments.py: bias-GELU, bias-dropout and masked-softmax fusion on by default, fp32 "
        "main gradients, in-place vocabulary-parallel cross entropy; products add to the main gradients themselves "
        "since v3.0 of May 2022 (gradient_accumulation_fusion)",
    ),
    "megatron-deepspeed": Documented(
        usual=replace(_MEGATRON, compile=False, recompute="none", flat_gradients=True, keeps_outputs=True),
        earlier=(("0.7", Program(early_modules=True)), ("0.6", Program(separate_gathers=True))),
        source="microsoft/Megatron-DeepSpeed: Megatron-LM's model and kernels under DeepSpeed's ZeRO and pipeline; its "
        "versions are meant: before 0.6 ZeRO-3 gathered parameters one by one (runtime/zero/stage3.py)",
    ),
    "litgpt": Documented(
        usual=replace(_PLAIN, whole_gradients=True),
        adapters=Program(
            adapter_targets="attention",
            wide_adapters=False,
            half_tables=True,
            wide_base=True,
            adapter_dropout=True,
            keeps_gathered=True,
            quantised_inputs=True,
            quantised_head=True,
            single_scales=True,
        ),
        source="Lightning-AI/litgpt finetune/lora.py, full.py, adapter.py: scaled_dot_product_attention, AdamW, "
        "lora_dropout 0.05, cross entropy in parts that all keep their softmax, bitsandbytes 0.41 (autograd/"
        "_functions.py: `ctx.tensors = (A, B)`, which no backward frees; `loss` lives to the next one); lightning/"
        "fabric/plugins/precision/bitsandbytes.py: every `torch.nn.Linear`, bnb.nf4 with compress_statistics=False; "
        "activation checkpointing with FSDP only (tutorials/oom.md); «Memory used» is max_memory_allocated",
        reading="allocated",
    ),
    "axolotl": Documented(
        usual=Program(
            sixteen_bit="mixed",
            attention="flash",
            recompute="full",
            loss="plain",
            optimizer="adamw-8bit",
            whole_gradients=False,
        ),
        adapters=Program(adapter_targets="all-linear", wide_adapters=True, adapter_dropout=True, half_tables=False),
        source="axolotl examples/llama-3: gradient_checkpointing true, flash_attention true, optimizer adamw_bnb_8bit; "
        "examples/gpt-oss: FSDP2, whose 46 GiB with accumulation leave no room for whole gradients",
    ),
    "unsloth": Documented(
        usual=Program(
            kernels="fused",
            attention="flash",
            recompute="full",
            loss="fused",
            optimizer="adamw-8bit",
            offload=("activations",),
            half_residual=True,
        ),
        adapters=Program(adapter_targets="all-linear", half_tables=True),
        source="unslothai/unsloth README: use_gradient_checkpointing='unsloth' (recomputes, inputs of layers in host "
        "memory), adamw_8bit, Triton kernels for norm, rotary, SwiGLU and cross entropy; notebooks print "
        "max_memory_reserved",
        reading="reserved",
    ),
    "deepspeed": Documented(
        usual=Program(
            state="cast-model",
            optimizer="adamw",
            optimizer_fused=True,
            half_residual=True,
            loss="plain",
            whole_gradients=False,
            flat_gradients=True,
            keeps_outputs=True,
        ),
        earlier=(("0.7", Program(early_modules=True)), ("0.6", Program(separate_gathers=True))),
        source="deepspeed.ai config-json: fp16 and bf16 cast the model, fp32 masters in the optimizer, FusedAdam; "
        "runtime/zero/stage_1_and_2.py, step: flattens a partition's gradients, then makes fp32 ones of them",
    ),
    "llm-foundry": Documented(
        usual=Program(
            sixteen_bit="mixed",
            attention="flash",
            compile=False,
            loss="one-kernel",
            optimizer="adamw",
            half_residual=True,
            whole_gradients=False,
        ),
        source="mosaicml/llm-foundry scripts/train/yamls/pretrain/mpt-7b.yaml: amp_bf16, FSDP mixed_precision PURE, "
        "decoupled_adamw, low-precision layer norm; models/mpt/modeling_mpt.py: loss_fn fused_crossentropy by default",
    ),
    "lightning": Documented(
        usual=Program(compile=False, recompute="none", loss="plain", channels_last=False, whole_gradients=True),
        adapters=Program(wide_base=True),
        source="lightning.ai docs, Trainer: precision 32-true unless set; nothing is recomputed or merged by default",
    ),
    "nanogpt": Documented(
        usual=Program(
            sixteen_bit="mixed",
            attention="sdpa",
            compile=True,
            recompute="none",
            loss="plain",
            optimizer="adamw",
            optimizer_fused=True,
        ),
        source="karpathy/nanoGPT train.py: compile True, autocast, fused AdamW, scaled_dot_product_attention",
    ),
    "pytorch": Documented(
        usual=Program(channels_last=False, fused_norms=True),
        source="pytorch.org docs: nothing is merged, compiled or recomputed unless asked for; images in NCHW; "
        "torch.nn.RMSNorm in one operation",
    ),
    "tensorflow": Documented(
        usual=Program(channels_last=True, half_residual=False, primitive_graph=True),
        source="tensorflow.org guides: images in NHWC; tf.gradients keeps the output of every primitive; Grappler",
    ),
    "jax": Documented(
        usual=Program(compile=True, channels_last=True), source="docs.jax.dev: jit through XLA; convolutions in NHWC"
    ),
    "mxnet": Documented(usual=Program(channels_last=False), source="mxnet.apache.org: layout NCHW unless stated"),
    "paddle": Documented(
        usual=Program(channels_last=True), source="PaddlePaddle static graph: layout autotune puts AMP in NHWC"
    ),
    "oneflow": Documented(
        usual=replace(_MEGATRON, planned_memory=True),
        source="Yuan et al. 2021, arXiv:2110.15032: memory planned at compile time; fused kernels of its GPT",
    ),
    "tonnage": Documented(
        usual=replace(
            _PLAIN,
            optimizer_fused=True,
            lists_when_sharded=True,
            wide_gathers=True,
            wide_reduction=True,
            whole_gradients=False,
            channels_last=False,
        ),
        adapters=Program(adapter_targets="attention", wide_adapters=True, adapter_dropout=True),
        quantised=Program(half_tables=False),
        source="tonnage/recipes: models and losses of transformers under autocast; engine.py (AdamW fused unless "
        "weights are shared out), sharding.py (`fully_shard` without a mixed-precision policy, gradients reduced each "
        "micro-batch), tasks/models.py (peft adapters in 32 bit with dropout, a 4-bit base with 32-bit tables)",
    ),
}


def documented(
    name: ProgramName | None,
    *,
    method: str = "full",
    gpus: int | None = None,
    version: str = "",
    compiled: bool | None = None,
) -> Program:
    """What a program does by default, for a method and (where known) a number of GPUs, a version, and whether it is
    asked to compile (None: as it does by itself).

    >>> documented("torchtune", gpus=1).offload, documented("torchtune", method="lora", gpus=1).offload
    (('optimizer',), None)
    >>> documented("transformers").attention, documented("transformers", version="4.30").attention
    ('sdpa', 'eager')
    >>> documented("torchtitan", compiled=True).loss, documented("torchtitan", version="0.0.2", compiled=True).loss
    ('one-kernel', 'plain')
    """
    if name is None:
        return Program()
    entry = DOCUMENTED[name]
    found = entry.usual
    if method != "full":
        found = entry.adapters.over(found)
    if method == "qlora":
        found = entry.quantised.over(found)
    if method == "full" and gpus == 1:
        found = entry.one_gpu.over(found)
    for before, differed in entry.earlier:
        if _older(version, before):
            found = differed.over(found)
    if (found.compile if compiled is None else compiled) and not _older(version, entry.compiled_since):
        found = entry.compiled.over(found)
    return replace(found, name=name, version=version)


def documents_memory(name: ProgramName | None) -> bool:
    """Whether a program documents what its memory rests on: how it holds its loss, and its optimizer. A framework that
    leaves both to the author of the loop does not.

    >>> documents_memory("torchtune"), documents_memory("pytorch"), documents_memory(None)
    (True, False, False)
    """
    if name is None:
        return False
    usual = DOCUMENTED[name].usual
    return usual.loss is not None and (usual.optimizer is not None or bool(usual.optimizer_fused))


def _older(version: str, than: str) -> bool:
    return bool(version and than) and _number(version) < _number(than)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
