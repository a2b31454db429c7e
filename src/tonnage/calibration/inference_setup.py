"""The setup that a measured row names: engine, number format, model, links and ranks of its devices."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tonnage.calibration.efficientnet import efficientnet_shape
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.errors import TonnageError
from tonnage.sizing.decoder_curves import L2_OVER_MEMORY
from tonnage.sizing.devices import usable_bytes
from tonnage.sizing.engines import engine_class
from tonnage.sizing.served_formats import FORMATS, ServedFormat
from tonnage.workload.families import complete_shape
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

_SIZE = re.compile(r"^(\d+(\.\d+)?[bmkld]|a\d+(\.\d+)?b|base|large|small|tiny|xl|xxl|huge|b\d+|l\d+|h\d+|\d{2,4}|v\d)$")
WEIGHTS_ROOM: Final = 0.6  # of a device's memory that weights may take where a row states no tensor parallelism


def model_family(name: str) -> str:
    """The name without its size: what is left out together.

    >>> [model_family(name) for name in ("bert-6l-768d", "gpt-j-6b", "llama3.1-70b", "resnet50", "vit-b16-224")]
    ['bert', 'gpt-j', 'llama3.1', 'resnet', 'vit']
    """
    parts = [part for part in name.casefold().split("/")[-1].split("-") if not _SIZE.match(part)]
    stem = "-".join(parts) or name.casefold()
    return re.sub(r"(?<=[a-z])\d{2,}$", "", stem)


def row_engine(row: InferenceRow) -> str:
    """Engine class; how the graph is run counts where it is stated."""
    name = row.engine
    if row.traced == "y" and "pytorch" in name:
        name += "-torchscript"
    if row.compiled == "y":
        name += "-xla"
    if row.front_end == "python" and name == "trtllm":
        name += "-serve"
    kind = engine_class(name, generates=row.kind == "decoder")
    if kind in ("converted", "fused") and row.native:
        return "fused" if row.native == "y" else "converted"
    return kind


def row_format(row: InferenceRow, accelerator: Accelerator) -> ServedFormat:
    """Number format: weights as stored, the rate they multiply at (fp8 weights on a device without fp8: 16 bit)."""
    quant = row.weights_quant.casefold()
    weights = next((key for key in ("int4", "int8", "fp8") if key in quant), row.precision)
    if weights not in FORMATS or row.precision not in FORMATS:
        raise TonnageError(f"no number format is known for precision '{row.precision}', weights '{row.weights_quant}'")
    served, base = FORMATS[weights], FORMATS[row.precision]
    weight_only = weights == "int8" and row.precision != "int8"
    if weight_only or (weights == "fp8" and accelerator.dense_fp8_tflops is None) or weights == "int4":
        served = replace(base, weight_bytes=served.weight_bytes)
    stated = row.kv_cache == "fp8"
    # TensorRT-LLM's fp8 recipe quantises weights, activations and the cache together.
    recipe = served.compute == "fp8" and row.engine.casefold().startswith(("trtllm", "trt-llm", "tensorrt"))
    return replace(served, kv_bytes=1.0) if stated or recipe else served


def rereading(served: ServedFormat, shape: ModelShape, row: InferenceRow) -> ServedFormat:
    """The format with what a step reads of the cache where each query head reads for itself: from memory once, the
    others from the L2 cache."""
    shared = shape.heads / shape.kv_heads if shape.kv_heads and row.rereads == "y" else 1.0
    return replace(served, cache_readings=max(1.0, shared / L2_OVER_MEMORY))


def row_shape(row: InferenceRow) -> ModelShape:
    """The known model of that name, else the shape in the columns, gated or plain as the parameter count says."""
    efficient = re.search(r"efficientnet.*b([0-7])", row.model.casefold())
    if efficient:
        return efficientnet_shape(int(efficient[1]))
    try:
        return find_model(row.model)
    except TonnageError:
        if not (row.n_layers and row.d_model and row.n_heads) or row.kind == "vision":
            raise
    sizes = {
        "name": row.model, "source": row.source, "layers": row.n_layers, "hidden": row.d_model, "heads": row.n_heads,
        "kv_heads": row.n_kv_heads or row.n_heads, "ffn": row.d_ff or 4 * row.d_model, "vocab": row.vocab or 30522,
    }  # fmt: skip
    options = [complete_shape(family, sizes) for family in (("bert",) if row.kind == "encoder" else ("gpt2", "llama"))]
    params = row.params
    if params is None:
        return options[0]
    return min(options, key=lambda shape: abs(count_parameters(shape).total - params))


def copy_rate(row: InferenceRow, accelerator: Accelerator, catalog: Catalog) -> float:
    """Bytes a second from the host to the device, where a pass waits for its inputs; 0 where it does not, or where no
    generation of PCIe is known."""
    if row.staged != "n" or not accelerator.pcie_generation:
        return 0.0
    link = catalog.link(f"pcie{accelerator.pcie_generation}")
    return ((link and link.bus_bandwidth_gb_per_s) or 0.0) * 1e9


def fewest_ranks(row: InferenceRow, shape: ModelShape, accelerator: Accelerator, served: ServedFormat) -> int:
    """The smallest group of devices, a power of two, whose memory holds a decoder's weights and leaves room beside."""
    ranks, room = 1, WEIGHTS_ROOM * usable_bytes(accelerator)
    if row.kind == "decoder":
        weights = count_parameters(shape).total * served.weight_bytes
        while weights / ranks > room and ranks < (row.n_gpus or 1):
            ranks *= 2
    return ranks


def device_link(accelerator: Accelerator, ranks: int, *, switched: bool = True) -> str:
    """The link in links.csv between devices of one node: NVLink where the device has it, else PCIe. Of four that are
    joined without a switch, two share a third of their links; all four use all."""
    found = re.search(r"NVLink(\d)", accelerator.interconnect)
    if ranks < 2:
        return ""
    if found and not switched and ranks == 2:
        return f"nvlink{found.group(1)}-mesh-pair"
    if found:
        return f"nvlink{found.group(1)}"
    return f"pcie{accelerator.pcie_generation}" if accelerator.pcie_generation else ""
