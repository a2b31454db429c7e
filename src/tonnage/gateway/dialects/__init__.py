"""What clients speak and what upstreams speak, and the way from one to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.gateway.dialects.usage import Dialect, Surface, Usage, read_usage
from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.gateway.dialects.conversation import UntranslatableRequest, UpstreamNonsense, UpstreamRequest
    from tonnage.gateway.dialects.errors import error_body
    from tonnage.gateway.dialects.translation import (
        StreamTranslator,
        Translator,
        UnsupportedTranslation,
        native,
        translator,
    )

__getattr__ = lazy_names(__name__)
__all__ = [
    "Dialect",
    "StreamTranslator",
    "Surface",
    "Translator",
    "UnsupportedTranslation",
    "UntranslatableRequest",
    "UpstreamNonsense",
    "UpstreamRequest",
    "Usage",
    "error_body",
    "native",
    "read_usage",
    "translator",
]
