"""A graph in fewer bits: fp16; int8 with scales found batch by batch (each text is then computed alone), or fixed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tonnage.errors import MissingExtra


def quantise(graph: Path, file: Path) -> None:
    """Write `graph` with its matrix products in 8 bits (ONNX Runtime's dynamic quantisation), weights in 7 of them:
    processors without VNNI add pairs of products in 16 bits, which 8 would overflow."""
    library = _quantization()
    library.quantize_dynamic(
        str(graph), str(file), weight_type=library.QuantType.QInt8, per_channel=True, reduce_range=True
    )


def quantise_static(graph: Path, file: Path, fed: Iterator[Mapping[str, Any]]) -> None:
    """Write `graph` with the products by its weights in 8 bits, their scales those of the inputs `fed`.

    Weights use 7 of the 8 bits, as in `quantise`. Products of two activations (attention) stay as they are, and those
    that narrow: what comes into them has passed an activation, and its few large values would take most of one scale
    (MiniLM's vectors have a cosine of 0.990 with those in fp32 so, of 0.930 with all products in 8 bits).
    """
    library = _quantization()

    class BatchReader(library.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> Mapping[str, Any] | None:
            return next(fed, None)

    library.quantize_static(
        str(graph), str(file), BatchReader(), quant_format=library.QuantFormat.QDQ, op_types_to_quantize=["MatMul"],
        per_channel=True, reduce_range=True, activation_type=library.QuantType.QUInt8,
        weight_type=library.QuantType.QInt8, extra_options={"MatMulConstBOnly": True},
        nodes_to_exclude=_narrowing_products(graph),
    )  # fmt: skip


def _narrowing_products(graph: Path) -> list[str]:
    """The names of the products by weights with more rows than columns."""
    onnx: Any = importlib.import_module("onnx")
    made = onnx.load(str(graph)).graph
    shapes = {one.name: tuple(one.dims) for one in made.initializer}
    products = ((one.name, shapes.get(one.input[1], ())) for one in made.node if one.op_type == "MatMul")
    return [name for name, shape in products if len(shape) == 2 and shape[0] > shape[1]]


def _quantization() -> Any:
    try:
        library: Any = importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise MissingExtra("quantising a model", "serve") from error
    logging.getLogger("root").setLevel(logging.ERROR)  # it advises a pre-processing step on every call
    return library


def halve(graph: Path, file: Path) -> None:
    """Write `graph` with weights and products in fp16; what it takes and gives stays as it is."""
    try:
        library: Any = importlib.import_module("onnxruntime.transformers.float16")
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtra("a model in 16 bits", "serve") from error
    onnx.save(library.convert_float_to_float16(onnx.load(str(graph)), keep_io_types=True), str(file))
