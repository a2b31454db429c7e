"""What a layer keeps for backward: against a published formula, and against what autograd saves in real models."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from tonnage.sizing.kept_activations import AdapterStoring, Storing, layer_kept
from tonnage.sizing.operators import Pass
from tonnage.workload.known import find_model
from tonnage.workload.shapes import ModelShape

# GPT-like shapes of Korthikanti et al. 2022 (arXiv:2205.05198), table 3.
MEGATRON = [
    ("22b", 48, 6144, 64),
    ("175b", 96, 12288, 96),
    ("530b", 105, 20480, 128),
    ("1t", 128, 25600, 160),
]


@pytest.mark.parametrize(("name", "layers", "hidden", "heads"), MEGATRON)
def test_fused_kernels_keep_what_korthikanti_counts(name: str, layers: int, hidden: int, heads: int) -> None:
    """A layer in 16 bit keeps s·b·h·(34 + 5·a·s/h) bytes with stored scores (eq. 2); a fused one drops 5·a·s/h.

    Within 3 %: the fused kernel also keeps a log-sum a row, which the paper leaves out.
    """
    s, b = 2048, 4
    shape = ModelShape(
        name="gpt", architecture="decoder", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=4 * hidden, vocab=51200, max_positions=2048,
    )  # fmt: skip
    span = Pass(batch=float(b), query=float(s), keys=float(s), attention="eager")
    eager = float(layer_kept(shape, span, Storing(kernels="fused")).total)
    fused = float(layer_kept(shape, replace(span, attention="flash"), Storing(kernels="fused")).total)
    assert eager == pytest.approx(s * b * hidden * (34 + 5 * heads * s / hidden), rel=0.03), name
    assert fused == pytest.approx(s * b * hidden * 34, rel=0.03), name


def test_per_op_checkpointing_keeps_every_second_product() -> None:
    """torchtitan's selective checkpointing of Llama 3 8B keeps 15.5 bytes for each of a layer's 4,096 channels: its
    input, the attention output, and the products q, v, gate and down (log-sums of attention apart)."""
    shape = find_model("llama-3-8b")
    span = Pass(batch=1.0, query=8192.0, keys=8192.0, residual_bytes=2.0)
    kept = float(layer_kept(shape, span, Storing()).per_op) / 8192 - 4 * shape.heads
    assert kept == pytest.approx(15.5 * shape.hidden)


TINY = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176}
SHAPE = ModelShape(
    name="tiny", architecture="decoder", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=176, vocab=1000,
    gated_mlp=True, norm="rms", positions="rotary",
)  # fmt: skip
BATCH, LENGTH = 2, 24
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PEFT = AdapterStoring(copy_bytes=4.0, every=True, copied=True)
# precision, adapters, how it is stored; what autograd saves is counted by the test.
SAVED = [
    ("fp32", False, Storing()),
    ("bf16-true", False, Storing()),
    ("bf16", False, Storing(casts=True)),
    ("fp32", True, Storing(adapters=replace(PEFT, copied=False))),
    ("bf16-true", True, Storing(adapters=PEFT)),
    ("bf16", True, Storing(adapters=replace(PEFT, copy_bytes=2.0), casts=True)),
]


@pytest.mark.parametrize(("precision", "adapters", "how"), SAVED)
def test_eager_layers_keep_what_autograd_saves(precision: str, adapters: bool, how: Storing) -> None:
    """A Llama layer of transformers keeps, to 1 %, the bytes that autograd saves for it: full training and LoRA (peft),
    in 32 bit, under autocast and in 16 bit. Casts of weights count as weights; ranks of adapters are left out."""
    pytest.importorskip("transformers")
    element = 4.0 if precision == "fp32" else 2.0
    wide = 4.0 if precision == "bf16" else element
    span = Pass(batch=float(BATCH), query=float(LENGTH), keys=float(LENGTH), element_bytes=element, residual_bytes=wide)
    saved = (_saved_bytes(4, precision, adapters) - _saved_bytes(2, precision, adapters)) / 2
    assert float(layer_kept(SHAPE, span, how).total) == pytest.approx(saved, rel=0.01)


def _saved_bytes(layers: int, precision: str, adapters: bool, make: Any = None) -> float:
    """Bytes of activations that a forward pass saves: whole storages, each once."""
    torch = pytest.importorskip("torch")
    model = (make or _model)(layers, precision, adapters)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = (storage, tensor.shape)
        return tensor

    ids = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    cast = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), cast:
        output = model(input_ids=ids)  # held: the graph keeps storages apart
    assert output is not None
    tokens = (BATCH, LENGTH, BATCH * LENGTH, BATCH * SHAPE.heads)
    return float(sum(s.nbytes() for s, shape in found.values() if shape[0] in tokens and 8 not in shape))


def _model(layers: int, precision: str, adapters: bool) -> Any:
    import torch
    import transformers

    config = transformers.LlamaConfig(**TINY, num_hidden_layers=layers, vocab_size=1000, attn_implementation="sdpa")
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to(torch.bfloat16) if precision == "bf16-true" else model
    if adapters:
        peft = pytest.importorskip("peft")
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=EVERY, task_type="CAUSAL_LM"))
    return model.train()


SCALED = AdapterStoring(copy_bytes=4.0, every=False, copied=False, low_rank=False, scaled=True)


def test_scaled_outputs_are_kept_as_autograd_saves_them() -> None:
    """LLaMA-Adapter V2 on a Llama layer keeps, to 1 %, what autograd saves where every linear layer gives
    scale · (W x + offset) and norms are trained: the output of each linear layer, and the normalised values."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")

    class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.linear = linear
            self.offset = torch.nn.Parameter(torch.zeros(linear.out_features))
            self.scale = torch.nn.Parameter(torch.ones(linear.out_features))

        def forward(self, x: Any) -> Any:
            return self.scale * (self.linear(x) + self.offset)

    def adapted(layers: int, precision: str, adapters: bool) -> Any:
        model = _model(layers, precision, adapters).requires_grad_(False)
        for name, module in list(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and "layers" in name:
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, Scaled(module))
            if name.endswith("norm"):
                module.requires_grad_(True)
        return model

    span = Pass(batch=float(BATCH), query=float(LENGTH), keys=float(LENGTH), element_bytes=4.0, residual_bytes=4.0)
    saved = (_saved_bytes(4, "fp32", False, adapted) - _saved_bytes(2, "fp32", False, adapted)) / 2
    assert float(layer_kept(SHAPE, span, Storing(adapters=SCALED)).total) == pytest.approx(saved, rel=0.01)


def test_a_gated_attention_to_learnt_tokens_keeps_its_output() -> None:
    """LLaMA-Adapter keeps, beside what a frozen layer does, the output that its gate multiplies."""
    span = Pass(batch=1.0, query=128.0, keys=128.0, residual_bytes=2.0)
    shape = find_model("llama-2-7b")
    bare, gated = (
        float(layer_kept(shape, span, Storing(adapters=replace(SCALED, scaled=False, prompted=prompted))).total)
        for prompted in (False, True)
    )
    assert gated - bare == pytest.approx(128 * 2 * shape.heads * shape.head_dim)


def test_adapters_of_a_frozen_base_keep_less_than_full_training() -> None:
    """In the base's own width, adapters on q and v keep less than adapters everywhere, these less than full training;
    dropout on their inputs costs a copy and a mask each."""
    span = Pass(batch=1.0, query=128.0, keys=128.0, residual_bytes=2.0)
    shape = find_model("llama-2-7b")
    native = AdapterStoring(copy_bytes=2.0, every=True, copied=False)
    some, every, full = (
        float(layer_kept(shape, span, Storing(adapters=adapters)).total)
        for adapters in (replace(native, every=False), native, None)
    )
    assert some < every < full
    dropped = float(layer_kept(shape, span, Storing(adapters=replace(native, every=False, dropout=True))).total)
    assert dropped - some == pytest.approx(128 * shape.hidden * (2 * 3.0 - 2.0))
