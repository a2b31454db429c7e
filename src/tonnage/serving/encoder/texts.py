"""A text encoder opened: folder, tokenizer, runtime, and what its batches give."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tonnage.serving.encoder.batching import Text
from tonnage.serving.encoder.export import digest_of
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.opened import Opened
from tonnage.serving.encoder.runtimes import open_model
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tasks import computing
from tonnage.serving.encoder.tokens import Tokens

EXAMPLE_TOKENS: Final = 64
SIZES: Final = (1, 2, 4, 8, 16, 32)


def open_texts(service: EncoderService) -> Opened:
    """The model of a folder. int8 is computed one text at a time, so that no answer depends on others."""
    folder = read_folder(Path(service.model), task=service.task)
    digest = digest_of(folder)
    tokens = Tokens(folder, most_tokens=service.most_tokens)
    model = open_model(folder, service, Path(service.exports), threads=service.threads)
    return Opened(
        kind="texts", folder=folder, digest=digest, runtime=service.runtime, device=model.device, reader=tokens,
        compute=computing(folder, model, padding=tokens.padding),
        example=Text(ids=[1] * min(EXAMPLE_TOKENS, tokens.most_tokens)),
        sizes=SIZES[:1] if service.weights == "int8" else SIZES, request_items=service.request_items,
        settings=f"{service.runtime} {tokens.most_tokens}", most_tokens=tokens.most_tokens,
    )  # fmt: skip
