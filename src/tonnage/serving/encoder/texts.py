"""A text encoder opened: folder, tokenizer, runtime, and what its batches give."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from tonnage.errors import InputError
from tonnage.serving.encoder.batching import EncodedText
from tonnage.serving.encoder.calibration import calibrated
from tonnage.serving.encoder.export import digest_of, digest_of_files
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.runtimes import Model, OnnxModel, open_model
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tasks import computing
from tonnage.serving.encoder.tokens import TextTokenizer
from tonnage.sizing.encoder_queue import EXAMPLE_TOKENS, SIZES


def open_texts(service: EncoderService) -> Opened:
    """The model of a folder. int8 without texts to calibrate with is computed one text at a time, so that no answer
    depends on others."""
    folder = read_folder(Path(service.model), task=service.task)
    digest = digest_of(folder)
    tokens = TextTokenizer(folder, most_tokens=service.most_tokens)
    alone, change = service.weights == "int8", None
    if service.calibration is None:
        model: Model = open_model(folder, service, Path(service.exports), threads=service.threads)
    else:
        _check_calibration(service)
        graph, found = calibrated(folder, tokens, Path(service.exports), digest, Path(service.calibration))
        model, alone = OnnxModel(graph, threads=service.threads), False
        digest = digest_of_files((graph,))
        change = {key: value for key, value in asdict(found).items() if value is not None}
        print(f"int8 beside fp32: {change}", file=sys.stderr, flush=True)  # noqa: T201
    return Opened(
        kind="texts", folder=folder, digest=digest, runtime=service.runtime, device=model.device, reader=tokens,
        compute=computing(folder, model, padding=tokens.padding),
        example=EncodedText(ids=[1] * min(EXAMPLE_TOKENS, tokens.most_tokens)),
        sizes=SIZES[:1] if alone else SIZES, request_items=service.request_items,
        settings=f"{service.runtime} {tokens.most_tokens}", most_tokens=tokens.most_tokens, change=change,
    )  # fmt: skip


def _check_calibration(service: EncoderService) -> None:
    if service.weights != "int8" or service.runtime != "onnx":
        raise InputError("texts to calibrate with belong to int8 by ONNX Runtime", hint="--dtype int8")
