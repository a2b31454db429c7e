"""The encoder server's application, built from its settings, for its own process and for Ray's."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.serving.encoder.service import EncoderService

if TYPE_CHECKING:
    from tonnage.serving.encoder.app import App


def build_app(service: EncoderService) -> App:
    """The application. Where the model cannot be loaded, its fallback serves alone, and every answer says so."""
    from tonnage.serving.encoder.app import App
    from tonnage.serving.encoder.caching import open_cache
    from tonnage.serving.encoder.engine import Encoder
    from tonnage.serving.encoder.versions import Versions

    load = partial(Encoder, cache=open_cache(service.cache_items, service.cache_url))
    fallback = None if service.fallback is None else load(replace(service, model=service.fallback))
    try:
        first = load(service)
    except InputError as error:
        if fallback is None:
            raise
        print(f"the fallback serves alone: {error}", file=sys.stderr, flush=True)  # noqa: T201
        first = fallback
    return App(Versions(first, load), fallback=fallback)
