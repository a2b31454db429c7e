"""A batch of token numbers through the model: ONNX Runtime or PyTorch, each safe to call from several threads."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError, MissingExtra
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.export import INPUTS, exported, load_torch
from tonnage.serving.encoder.folders import ModelFolder
from tonnage.serving.encoder.service import EncoderService

Array = NDArray[Any]


class Model(Protocol):
    """Computes batches."""

    @property
    def device(self) -> str: ...

    def outputs(self, ids: Array, mask: Array, segments: Array) -> Array:
        """(texts, tokens) in; (texts, labels) or (texts, tokens, width) out, as float32."""


def padded(texts: Sequence[EncodedText], *, padding: int) -> tuple[Array, Array, Array]:
    """Token numbers, mask and segments of a batch, as long as its longest text."""
    longest = max(len(text.ids) for text in texts)
    ids = np.full((len(texts), longest), padding, dtype=np.int64)
    mask, segments = np.zeros_like(ids), np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = text.ids
        mask[row, : len(text.ids)] = 1
        if text.segments is not None:
            segments[row, : len(text.ids)] = text.segments
    return ids, mask, segments


def open_session(graph: Path, *, threads: int) -> tuple[Any, str]:
    """A session of ONNX Runtime and its device. Its threads do not spin: beside other workers they would take the cores
    from them. InputError for a file that is no graph."""
    try:
        library: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtra("serving with ONNX Runtime", "serve") from error
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = [one for one in ("CUDAExecutionProvider", "CPUExecutionProvider")
                 if one in library.get_available_providers()]  # fmt: skip
    try:
        session = library.InferenceSession(str(graph), options, providers=providers)
    except Exception as error:  # the library's own exceptions have no common base but this
        raise InputError(f"{graph} is not a graph that ONNX Runtime can load: {error}") from error
    return session, "cuda" if "CUDAExecutionProvider" in session.get_providers() else "cpu"


class OnnxModel:
    """ONNX Runtime."""

    def __init__(self, graph: Path, *, threads: int) -> None:
        self._session, self.device = open_session(graph, threads=threads)
        self._takes = [one.name for one in self._session.get_inputs()]
        if not set(self._takes) <= set(INPUTS):
            raise InputError(f"{graph} takes {', '.join(self._takes)}, expected {', '.join(INPUTS)}")

    def outputs(self, ids: Array, mask: Array, segments: Array) -> Array:
        given = dict(zip(INPUTS, (ids, mask, segments), strict=True))
        found: Array = self._session.run(None, {name: given[name] for name in self._takes})[0]
        return found


class TorchModel:
    """PyTorch: on a GPU where there is one. `threads` are those of every worker together."""

    def __init__(self, folder: ModelFolder, *, threads: int, weights: str) -> None:
        model = load_torch(folder)
        import torch

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(threads)
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(weights, torch.float32)
        self._torch, self._task = torch, folder.task
        self._model = model.to(self.device, dtype)
        self._segments = getattr(model.config, "type_vocab_size", 0) > 1

    def compile(self) -> None:
        """Batches run compiled from now on, whatever their size; the first ones take the compilation's time."""
        self._model.compile(dynamic=True)

    def outputs(self, ids: Array, mask: Array, segments: Array) -> Array:
        torch = self._torch
        given = {"input_ids": ids, "attention_mask": mask, **({"token_type_ids": segments} if self._segments else {})}
        with torch.inference_mode():
            found = self._model(**{name: torch.from_numpy(value).to(self.device) for name, value in given.items()})
            if self._task == "embedding":
                output = found.last_hidden_state
            elif self._task == "question-answering":
                output = torch.stack((found.start_logits, found.end_logits), dim=-1)
            else:
                output = found.logits
            made: Array = output.float().cpu().numpy()
        return made


def open_model(folder: ModelFolder, service: EncoderService, cache: Path, *, threads: int) -> Model:
    """The model as the service asks. InputError for a number format that its runtime does not compute in."""
    if service.runtime == "onnx":
        if service.weights == "bf16":
            raise InputError("ONNX Runtime serves fp32, fp16 and int8 here, not bf16",
                             hint="--runtime torch --dtype bf16")  # fmt: skip
        return OnnxModel(exported(folder, cache, weights=service.weights), threads=threads)
    if service.weights == "int8":
        raise InputError("PyTorch serves fp32, bf16 and fp16 here, not int8", hint="--runtime onnx --dtype int8")
    return TorchModel(folder, threads=threads, weights=service.weights)
