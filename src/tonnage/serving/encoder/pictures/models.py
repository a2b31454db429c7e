"""A model of pictures opened: one ONNX graph, or PyTorch; logits of classes, or one vector a picture."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError, MissingExtra
from tonnage.features.tables import softmax
from tonnage.serving.encoder.batching import Compute
from tonnage.serving.encoder.export import adapted, digest_of_folders, kept_graph, loaded, narrowed
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.pictures.folders import PictureFolder, read_pictures
from tonnage.serving.encoder.pictures.reading import Picture, PictureReader
from tonnage.serving.encoder.runtimes import open_session
from tonnage.serving.encoder.service import EncoderService

SIZES: Final = (1, 2, 4, 8, 16, 32)
INPUT: Final = "pixel_values"
OPSET: Final = 18


def open_pictures(service: EncoderService) -> Opened:
    """The model of a folder. InputError for a number format in which pictures are not computed."""
    folder = read_pictures(Path(service.model), task=service.task)
    if service.weights == "int8" or (service.weights == "bf16" and service.runtime == "onnx"):
        raise InputError(f"pictures are not computed in {service.weights} here", hint="--dtype fp32 or fp16")
    digest = digest_of_folders(folder.path, folder.base)
    model = _GraphModel(folder, digest, service) if service.runtime == "onnx" else _TorchModel(folder, service)
    rows, columns = folder.view.size
    return Opened(
        kind="images", folder=folder, digest=digest, runtime=service.runtime, device=model.device,
        reader=PictureReader(folder.view, most_pixels=service.picture_pixels, most_waiting=service.queue_items),
        compute=_computing(folder, model), example=Picture(np.zeros((3, rows, columns), dtype=np.uint8)), sizes=SIZES,
        request_items=min(service.request_items, service.queue_items), settings=service.runtime,
    )  # fmt: skip


def _computing(folder: PictureFolder, model: _GraphModel | _TorchModel) -> Compute[Any]:
    """Pictures to the probabilities of all classes, or to vectors."""

    def compute(items: Sequence[Picture]) -> Sequence[Any]:
        found = model.outputs(folder.view.values(np.stack([one.seen for one in items])))
        return [row.copy() for row in (softmax(found) if folder.task == "image-classification" else found)]

    return compute


class _GraphModel:
    """ONNX Runtime."""

    def __init__(self, folder: PictureFolder, digest: str, service: EncoderService) -> None:
        cache, name = Path(service.exports), folder.task
        graph = kept_graph(cache, digest, f"{name}-fp32", lambda file: _export(folder, file))
        if service.weights != "fp32":
            whole = graph
            graph = kept_graph(cache, digest, f"{name}-{service.weights}",
                               lambda file: narrowed(whole, file, service.weights))  # fmt: skip
        self._session, self.device = open_session(graph, threads=service.threads)

    def outputs(self, values: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self._session.run(None, {INPUT: values})[0]
        return found


class _TorchModel:
    """PyTorch: on a GPU where there is one."""

    def __init__(self, folder: PictureFolder, service: EncoderService) -> None:
        model = _outputs(folder)
        import torch

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(service.threads)
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(service.weights, torch.float32)
        self._torch, self._model = torch, model.to(self.device, self._dtype)

    def outputs(self, values: NDArray[Any]) -> NDArray[Any]:
        torch = self._torch
        with torch.inference_mode():
            found: NDArray[Any] = (
                self._model(torch.from_numpy(values).to(self.device, self._dtype)).float().cpu().numpy()
            )
        return found


def _outputs(folder: PictureFolder) -> Any:
    """The model as a module of one input and one output.

    A vector of a picture is: of a model of texts and pictures its projected features, which are compared with those of
    texts; of a transformer with a token for the whole picture that token; else the mean over all places.
    """
    model = _loaded(folder)
    import torch

    class PictureOutputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, pixel_values: Any) -> Any:
            if folder.task == "image-classification":
                return self.inner(pixel_values=pixel_values).logits
            if hasattr(self.inner, "get_image_features"):
                found = self.inner.get_image_features(pixel_values=pixel_values)
                return found if isinstance(found, torch.Tensor) else found.pooler_output
            hidden = self.inner(pixel_values=pixel_values).last_hidden_state
            if hidden.dim() == 4:
                return hidden.mean(dim=(2, 3))
            return hidden[:, 0] if _has_token_of_all(self.inner) else hidden.mean(dim=1)

    return PictureOutputs().eval()


def _has_token_of_all(model: Any) -> bool:
    names = ("cls_token", "class_embedding")
    return any(name.rpartition(".")[2] in names for name, _ in model.named_parameters())


def _loaded(folder: PictureFolder) -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise MissingExtra("reading a model's weights", "train") from error
    transformers.utils.logging.disable_progress_bar()
    kind = "AutoModelForImageClassification" if folder.task == "image-classification" else "AutoModel"
    made = getattr(transformers, kind)
    if folder.base is not None:
        base = folder.base
        return loaded(lambda: adapted(folder.path, base, made, transformers).eval().float(), folder.path)
    return loaded(lambda: made.from_pretrained(str(folder.path), local_files_only=True).eval().float(), folder.path)


def _export(folder: PictureFolder, file: Path) -> None:
    import warnings

    model = _outputs(folder)
    import torch

    rows, columns = folder.view.size
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.zeros((2, 3, rows, columns)),), str(file), input_names=[INPUT], output_names=["output"],
            dynamic_axes={INPUT: {0: "batch"}, "output": {0: "batch"}}, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
