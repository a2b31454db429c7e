"""The keys of a gateway file that say how what it keeps of requests is encrypted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from tonnage.comparison.door import Reference
from tonnage.workload.file.fields import Spelled, StrictModel, as_names
from tonnage.workload.file.fields import key as entry


class EncryptEntry(StrictModel):
    """Answers that are kept for repeats, in the store and in Redis, and bodies of the request log are encrypted: by a
    data key that lies in the store, wrapped with this key, which lies elsewhere."""

    key: Reference = entry("The key that wraps, of at least 20 characters; not in the home, nor beside the log.")
    plain: Annotated[tuple[Literal["batches"], ...], BeforeValidator(as_names), Spelled("`batches`")] = entry(
        "What stays readable on the disk all the same, to be said where `batches` are taken: their files.", default=()
    )
