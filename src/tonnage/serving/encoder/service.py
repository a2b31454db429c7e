"""The settings of an encoder server: the model, how it computes, what it promises, and its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Number, Runtime, Task

SCHEMA: Final = "tonnage/encoder-service@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderService:
    """One server. None: found at the start (`workers`, `batch_tokens`) or by the model (`task`, `most_tokens`).

    `workers` compute beside one another, each with `threads` threads. `batch_tokens` bounds a batch, padding included.
    `queue_items` texts may wait; beyond, requests are turned away with 429. `truncate`: a text that is longer than
    the model takes is cut, else refused. `key_variable`: the environment variable that holds the keys, separated by
    commas, one of which requests must carry; each is a tenant whose kept answers are its own.
    """

    model: str
    name: str
    task: Task | None = None
    runtime: Runtime = "onnx"
    weights: Number = "fp32"
    workers: int | None = None
    threads: int = 1
    batch_tokens: int | None = None
    most_tokens: int | None = None
    truncate: bool = False
    queue_items: int = 1024
    request_items: int = 256
    request_rows: int = 1024  # of a table, in one request
    body_bytes: int = 8_000_000
    p95_s: float | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    key_variable: str | None = None
    fallback: str | None = None  # a model that answers where the first cannot be loaded, or has too much waiting
    cache_items: int = 0  # answers kept in this process
    cache_url: str | None = None  # of a Redis that keeps answers for all replicas
    picture_pixels: int = 40_000_000  # of one picture, before and after it is scaled
    calibration: str | None = None  # a file of texts: int8 with fixed scales, in batches; without one, text by text
    trust: bool = False  # a pickle may be read
    exports: str = "exported"  # the folder of exported models
    schema: Literal["tonnage/encoder-service@1"] = SCHEMA


_ADAPTER: Final[TypeAdapter[EncoderService]] = TypeAdapter(EncoderService)


def dump_service(service: EncoderService) -> str:
    """The service as JSON, the same bytes for the same value."""
    return _ADAPTER.dump_json(service, indent=2).decode() + "\n"


def load_service(path: Path) -> EncoderService:
    """A service read back; InputError names the key of what cannot be used."""
    try:
        return parse_service(path.read_text(encoding="utf-8"), name=str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def parse_service(text: str, *, name: str = "the service") -> EncoderService:
    """The service out of its JSON; InputError names the key of what cannot be used."""
    try:
        return _ADAPTER.validate_json(text, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
