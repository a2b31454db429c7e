"""llama.cpp's server out of the package `xllamacpp`, where no `llama-server` is installed: the same arguments.

Only those are taken that `llama_cpp_arguments` writes. SIGTERM ends it; what is being answered then is cut off, so
it has to be drained before it is stopped.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tonnage.errors import MissingExtra, TonnageError

CACHE_TYPES: Final = ("f16", "q8_0")
API_KEY: Final = "LLAMA_API_KEY"  # llama-server's own variable


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments as `llama-server` takes them; anything else ends the process with 2."""
    parser = argparse.ArgumentParser(prog="llama_server", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    for name in ("--port", "--parallel", "--ctx-size", "--batch-size", "--threads", "--threads-batch"):
        parser.add_argument(name, type=int)
    parser.add_argument("--cache-type-k", choices=CACHE_TYPES, default="f16")
    parser.add_argument("--cache-type-v", choices=CACHE_TYPES, default="f16")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--embeddings", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    given = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    ended = threading.Event()
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, lambda *_: ended.set())
    try:
        server = _start(given)
    except TonnageError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    ended.wait()
    del server
    sys.stdout.flush()
    os._exit(0)  # the library's own threads do not end while a request is being answered


def _start(given: argparse.Namespace) -> Any:
    try:
        library: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtra("llama.cpp", "llama") from error
    if not Path(given.model).is_file():
        raise TonnageError(f"{given.model} is not there", hint="name a GGUF file")
    try:
        return library.Server(_params(library, given))
    except RuntimeError as error:
        raise TonnageError(f"llama.cpp does not start: {error}", hint="is the file whole, the port free?") from error


def _params(library: Any, given: argparse.Namespace) -> Any:
    params = library.CommonParams()
    params.model.path, params.model_alias = given.model, {given.alias}
    params.hostnames = [given.host]
    params.endpoint_metrics, params.embedding = given.metrics, given.embeddings
    asked = {"port": given.port, "n_parallel": given.parallel, "n_ctx": given.ctx_size, "n_batch": given.batch_size}
    for name, value in asked.items():
        if value is not None:
            setattr(params, name, value)
    types = library.ggml_type
    formats = {"f16": types.GGML_TYPE_F16, "q8_0": types.GGML_TYPE_Q8_0}
    params.cache_type_k, params.cache_type_v = formats[given.cache_type_k], formats[given.cache_type_v]
    if given.threads is not None:
        params.cpuparams.n_threads = given.threads
    if given.threads_batch is not None:
        params.cpuparams_batch.n_threads = given.threads_batch
    if os.environ.get(API_KEY):
        params.api_keys = [os.environ[API_KEY]]
    return params


if __name__ == "__main__":
    sys.exit(main())
