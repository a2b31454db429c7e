"""A model that is loaded, whatever its kind: how requests become items, and items answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from tonnage.serving.encoder.batching import Compute, Item
from tonnage.serving.encoder.caching import Kept
from tonnage.values import dataclass
from tonnage.workload.encoder_terms import Task

Kind = Literal["texts", "tables", "images"]


class Described(Protocol):
    """What a model was made for; `labels`: the names of its classes, in the order of its outputs."""

    @property
    def task(self) -> Task: ...

    @property
    def labels(self) -> tuple[str, ...]: ...


class ItemReader(Protocol):
    """From what a request asks to items, and back."""

    async def read_all(self, given: Any, *, truncate: bool) -> Sequence[Item]:
        """The items of one request, of texts or an array of rows. Raises a Fault for what the model does not take."""
        ...

    def key_parts(self, one: Any) -> Sequence[bytes]:
        """What an answer depends on, of one thing that is asked."""
        ...

    def kept(self, item: Any, answer: Any) -> Sequence[Kept]:
        """The answers of an item, one for each thing asked, with its tokens."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """`digest`: of the model's bytes. `settings`: what else its answers depend on. `example`: what is measured with at
    the start, in batches of `sizes`."""

    kind: Kind
    folder: Described
    digest: str
    runtime: str
    device: str
    reader: ItemReader
    compute: Compute[Any]
    example: Item
    sizes: tuple[int, ...]
    request_items: int  # the most in one request
    settings: str = ""
    most_tokens: int | None = None
    change: Mapping[str, Any] | None = None  # of answers by fewer bits, as measured
