"""A graph in fewer bits: fp16, and int8, whose answers depend on batch-mates, so that each text is computed alone."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

from tonnage.errors import MissingExtra


def quantise(graph: Path, file: Path) -> None:
    """Write `graph` with its matrix products in 8 bits (ONNX Runtime's dynamic quantisation)."""
    try:
        library: Any = importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise MissingExtra("quantising a model", "serve") from error
    logging.getLogger("root").setLevel(logging.ERROR)  # it advises a pre-processing step on every call
    library.quantize_dynamic(str(graph), str(file), weight_type=library.QuantType.QInt8)


def halve(graph: Path, file: Path) -> None:
    """Write `graph` with weights and products in fp16; what it takes and gives stays as it is."""
    try:
        library: Any = importlib.import_module("onnxruntime.transformers.float16")
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtra("a model in 16 bits", "serve") from error
    onnx.save(library.convert_float_to_float16(onnx.load(str(graph)), keep_io_types=True), str(file))
