"""A folder's weights as one ONNX graph, made once and kept by the digest of what it was made from; and the graph in
fewer bits: fp16; int8 with scales found batch by batch (each text is then computed alone), or fixed.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from tonnage.errors import InputError, MissingExtra
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.workload.encoder_terms import Number

OPSET: Final = 17
LAYOUT: Final = "3"  # of the graph that is written here: another number is another file
ADVICE: Final = ("Please consider to run pre-processing before quant", "Please consider pre-processing before quant")
INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_CLASSES: Final = {
    "classification": "AutoModelForSequenceClassification", "reranking": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification", "question-answering": "AutoModelForQuestionAnswering",
    "embedding": "AutoModel",
}  # fmt: skip


def exported(folder: ModelFolder, cache: Path, *, weights: Number) -> Path:
    """The graph's file; a `model.onnx` that lies in the folder is taken as it is. MissingExtra without torch."""
    if weights == "fp32" and (folder.path / "model.onnx").is_file():
        return folder.path / "model.onnx"

    def write(file: Path) -> None:
        if weights == "fp32":
            _export(folder, file)
        else:
            narrowed(exported(folder, cache, weights="fp32"), file, weights)

    return kept_graph(cache, digest_of(folder), f"{folder.task}-{weights}", write)


def kept_graph(cache: Path, digest: str, name: str, write: Callable[[Path], None]) -> Path:
    """The graph that was made before of what has this digest, else written now; by one process at a time, and whole."""
    kept = cache / digest / f"{name}.onnx"
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{kept}.lock"):
        if not kept.is_file():
            part = kept.with_suffix(".part.onnx")
            write(part)
            os.replace(part, kept)
    return kept


def narrowed(graph: Path, file: Path, weights: Number) -> None:
    """Write a graph of fp32 in fewer bits."""

    (quantise if weights == "int8" else halve)(graph, file)


def digest_of(folder: ModelFolder) -> str:
    """Of the names and bytes of everything in the folder, and in that of its base where it has adapters alone."""
    return digest_of_folders(folder.path, folder.base)


def digest_of_folders(path: Path, base: str | None) -> str:
    """The same, of a folder and the one its adapters were trained on."""
    bases = [Path(base)] if base is not None and Path(base).is_dir() else []
    return digest_of_files(sorted(file for place in (path, *bases) for file in place.rglob("*")))


def digest_of_files(files: Iterable[Path]) -> str:
    """Of their names and bytes, in the order given."""
    made = hashlib.blake2b(LAYOUT.encode(), digest_size=16)
    for file in files:
        if file.is_file():
            made.update(file.name.encode() + b"\0")
            with file.open("rb") as content:
                while block := content.read(1 << 20):
                    made.update(block)
    return made.hexdigest()


def load_torch(folder: ModelFolder) -> Any:
    """The model in evaluation mode, on the CPU in fp32. InputError for weights that cannot be read."""
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise MissingExtra("reading a model's weights", "train") from error
    transformers.utils.logging.disable_progress_bar()
    made = getattr(transformers, _CLASSES[folder.task if folder.task == "embedding" else folder.head])
    if folder.base is not None:
        base = folder.base
        return loaded(lambda: adapted(folder.path, base, made, transformers).eval().float(), folder.path)
    return loaded(lambda: made.from_pretrained(str(folder.path), local_files_only=True).eval().float(), folder.path)


def loaded(load: Callable[[], Any], path: Path) -> Any:
    """What `load` gives; InputError for weights of `path` that cannot be read."""
    try:
        return load()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(f"the weights of {path} cannot be read: {error}") from error
    except Exception as error:  # safetensors raises an exception of its own for a file that is cut short
        if type(error).__module__.startswith("safetensors"):
            raise InputError(f"the weights of {path} cannot be read: {error}") from error
        raise


def adapted(path: Path, base: str, made: Any, transformers: Any) -> Any:
    """Adapters added into the weights of the base that they were trained on."""
    try:
        peft: Any = importlib.import_module("peft")
    except ImportError as error:
        raise MissingExtra("adapters", "train") from error
    config = transformers.AutoConfig.from_pretrained(str(path), local_files_only=True)
    under = made.from_pretrained(base, config=config)
    return peft.PeftModel.from_pretrained(under, str(path)).merge_and_unload()


def quantise(graph: Path, file: Path) -> None:
    """Write `graph` with its matrix products in 8 bits (ONNX Runtime's dynamic quantisation), weights in 7 of them:
    processors without VNNI add pairs of products in 16 bits, which 8 would overflow."""
    library = _quantization()
    with _without_advice():
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

    with _without_advice():
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
    return library


@contextmanager
def _without_advice() -> Iterator[None]:
    """ONNX Runtime advises a pre-processing step on every call, through the root logger: its other records, and those
    of other threads, are passed on."""
    advice = _Advice()
    logging.root.addFilter(advice)
    try:
        yield
    finally:
        logging.root.removeFilter(advice)


class _Advice(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is passed on."""
        return not str(record.msg).startswith(ADVICE)


def halve(graph: Path, file: Path) -> None:
    """Write `graph` with weights and products in fp16; what it takes and gives stays as it is."""
    try:
        library: Any = importlib.import_module("onnxruntime.transformers.float16")
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtra("a model in 16 bits", "serve") from error
    onnx.save(library.convert_float_to_float16(onnx.load(str(graph)), keep_io_types=True), str(file))


def _export(folder: ModelFolder, file: Path) -> None:
    import warnings

    import torch

    model = load_torch(folder)

    class TaskOutputs(torch.nn.Module):
        """The outputs of the task alone, in a fixed order."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            given = {"input_ids": input_ids, "attention_mask": attention_mask}
            if getattr(self.inner.config, "type_vocab_size", 0) > 1:
                given["token_type_ids"] = token_type_ids
            found = self.inner(**given)
            if folder.task == "embedding":
                return found.last_hidden_state
            if folder.task == "question-answering":
                return torch.stack((found.start_logits, found.end_logits), dim=-1)
            return found.logits

    example = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in INPUTS)
    axes = {name: {0: "batch", 1: "tokens"} for name in INPUTS}
    flat = folder.task in ("classification", "reranking")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            TaskOutputs(model).eval(), example, str(file), input_names=list(INPUTS), output_names=["output"],
            dynamic_axes={**axes, "output": {0: "batch"} if flat else {0: "batch", 1: "tokens"}},
            opset_version=OPSET, dynamo=False,
        )  # fmt: skip
