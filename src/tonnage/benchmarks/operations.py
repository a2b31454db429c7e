"""What a device profile measures, as torch calls: each operation of `sizing.local_work` at some sizes.

Inputs rotate through a pool larger than the processor's caches, as the tensors of a training step do: a step comes back
to an activation after hundreds of MB of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from math import prod
from typing import Any, Final

from tonnage.sizing.local_work import HEAD_WIDTHS
from tonnage.values import dataclass

POOL_BYTES: Final = 96 * 2**20
MOST_SETS: Final = 32
ATTENTION_HEADS: Final = 12
CHAIN: Final = 20  # calls in a row, where one is too short to time

Make = Callable[[], tuple[Callable[[], object], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One point to measure. `make` allocates, and gives the call with how many times it does the work."""

    operation: str
    precision: str
    unit: str
    size: float
    amount: float
    make: Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far a measurement goes."""

    products: tuple[int, ...]  # side of a square product
    elements: tuple[int, ...]
    lengths: tuple[int, ...]  # sequences of attention
    tensors: tuple[int, ...]  # elements of a tensor the optimizer steps
    touched_bytes: int
    pool_bytes: int = POOL_BYTES
    attended_tokens: int = 512  # of a call of attention, whatever the length: a GPU is filled by thousands
    stepped_elements: int = 2**20  # of the tensors that one step of the optimizer takes
    most_stepped: int = 16  # of these tensors
    fused_optimizer: bool = False


FULL_CPU: Final = Extent(
    products=(64, 128, 256, 512, 1024),
    elements=(2**12, 2**17, 2**20, 2**22),
    lengths=(32, 128, 512),
    tensors=(2**10, 2**17, 2**20, 2**23, 2**24),
    touched_bytes=48 * 2**20,
)
QUICK: Final = Extent(
    products=(128, 512), elements=(2**12, 2**20), lengths=(32, 128), tensors=(2**10, 2**20), touched_bytes=48 * 2**20
)
FULL_CUDA: Final = Extent(
    products=(128, 256, 512, 1024, 2048, 4096, 8192),
    elements=(2**12, 2**17, 2**20, 2**23, 2**26),
    lengths=(32, 128, 512, 2048),
    tensors=(2**10, 2**17, 2**20, 2**24, 2**27),
    touched_bytes=256 * 2**20,
    pool_bytes=2**30,
    attended_tokens=2**14,
    stepped_elements=2**26,
    most_stepped=256,
    fused_optimizer=True,
)
QUICK_CUDA: Final = replace(
    FULL_CUDA, products=(512, 4096), elements=(2**17, 2**26), lengths=(128, 1024), tensors=(2**10, 2**24)
)


class Arena:
    """Memory that inputs are cut from, one piece after the other and round again: nothing is allocated per point."""

    def __init__(self, torch: Any, device: str, kind: Any, size_bytes: int) -> None:
        self._whole = torch.rand(size_bytes // 4, device=device).to(kind)
        self._whole = torch.cat([self._whole] * (4 // kind.itemsize))
        self._next = 0

    @property
    def size_bytes(self) -> int:
        """Of all of it."""
        return int(self._whole.numel() * self._whole.element_size())

    def piece(self, *shape: int) -> Any:
        """The next tensor of that shape."""
        size = prod(shape)
        if self._next + size > self._whole.numel():
            self._next = 0
        start, self._next = self._next, self._next + size
        return self._whole[start : start + size].view(shape)


def probes(torch: Any, device: str, precisions: tuple[str, ...], extent: Extent) -> Iterator[Probe]:
    """Every point of a profile on `device` with the threads torch has now."""
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    arenas = {precision: Arena(torch, device, types[precision], extent.pool_bytes) for precision in precisions}
    plain = arenas["fp32"]
    for precision in precisions:
        kind = arenas[precision]
        for side in extent.products:
            yield _product(precision, kind, side)
        for name in ("gelu", "silu", "dropout"):
            for elements in extent.elements:
                yield _pointwise(torch, device, precision, kind, name, elements)
        for kept in ("dropout", "plain"):
            for width in HEAD_WIDTHS:
                for length in extent.lengths:
                    yield _attention(torch, precision, kind, kept, width, length, extent.attended_tokens)
    for name in ("norm", "loss"):
        for elements in extent.elements:
            yield _pointwise(torch, device, "fp32", plain, name, elements)
    for elements in extent.elements:
        yield _stream(torch, plain, elements)
    for elements in extent.tensors:
        yield _adamw(torch, device, elements, extent)
    yield _touch(torch, device, extent.touched_bytes)
    yield _dispatch(torch, device)


def queued(call: Callable[[], object], times: int) -> Callable[[], object]:
    """`times` calls one after the other, without waiting for the device in between."""

    def several() -> None:
        for _ in range(times):
            call()

    return several


def _sets(elements: int) -> int:
    """How many sets of inputs of so many elements together walk through the arena."""
    return max(2, min(MOST_SETS, POOL_BYTES // (4 * elements)))


def _product(precision: str, arena: Arena, side: int) -> Probe:
    """The three products of a trained weight: forward, gradient of the input, gradient of the weight."""

    def make() -> tuple[Callable[[], object], float]:
        pool = cycle([tuple(arena.piece(side, side) for _ in range(3)) for _ in range(_sets(3 * side * side))])

        def call() -> None:
            given, weight, gradient = next(pool)
            given @ weight.t()
            gradient @ weight
            gradient.t() @ given

        return call, 3.0

    flop = 2.0 * side**3
    return Probe(operation="product", precision=precision, unit="flop", size=flop, amount=flop, make=make)


def _pointwise(torch: Any, device: str, precision: str, arena: Arena, name: str, elements: int) -> Probe:
    """Forward and backward of an activation, a dropout, a norm over rows of 512, or a loss over rows of 4,096."""
    functional = torch.nn.functional
    width = min(4096 if name == "loss" else 512, elements)
    scale, offset = torch.ones(width, device=device), torch.zeros(width, device=device)
    wrong = torch.zeros(elements // width, dtype=torch.long, device=device)
    apply: dict[str, Callable[[Any], Any]] = {
        "gelu": functional.gelu,
        "silu": functional.silu,
        "dropout": lambda given: functional.dropout(given, 0.1, training=True),
        "norm": lambda given: functional.layer_norm(given, (width,), scale, offset),
        "loss": lambda given: functional.cross_entropy(given, wrong),
    }

    def make() -> tuple[Callable[[], object], float]:
        shape = (elements // width, width)
        gradient = arena.piece(*shape)
        pool = cycle([arena.piece(*shape).detach().requires_grad_() for _ in range(_sets(elements))])

        def call() -> None:
            given = next(pool)
            result = apply[name](given)
            torch.autograd.grad(result, given, None if name == "loss" else gradient)

        return call, 1.0

    return Probe(
        operation=name, precision=precision, unit="elements", size=float(elements), amount=float(elements), make=make
    )


def _attention(torch: Any, precision: str, arena: Arena, kept: str, width: int, length: int, tokens: int) -> Probe:
    """Forward and backward of `scaled_dot_product_attention`, with and without dropout, at about the same tokens."""
    samples = max(1, tokens // length)
    shape = (samples, ATTENTION_HEADS, length, width)
    chance = 0.1 if kept == "dropout" else 0.0

    def make() -> tuple[Callable[[], object], float]:
        gradient = arena.piece(*shape)
        pool = cycle(
            [
                tuple(arena.piece(*shape).detach().requires_grad_() for _ in range(3))
                for _ in range(_sets(3 * prod(shape)))
            ]
        )

        def call() -> None:
            given = next(pool)
            result = torch.nn.functional.scaled_dot_product_attention(*given, dropout_p=chance)
            torch.autograd.grad(result, given, gradient)

        return call, 1.0

    scores = float(samples * ATTENTION_HEADS * length * length)
    return Probe(
        operation=f"attention {kept} {width}", precision=precision, unit="scores", size=float(length), amount=scores,
        make=make,
    )  # fmt: skip


def _stream(torch: Any, arena: Arena, elements: int) -> Probe:
    """c = a + b into a new tensor: two reads and a write of 4 bytes an element, all counted (as STREAM's «add»)."""

    def make() -> tuple[Callable[[], object], float]:
        pool = cycle([(arena.piece(elements), arena.piece(elements)) for _ in range(_sets(2 * elements))])

        def call() -> None:
            first, second = next(pool)
            torch.add(first, second)

        return call, 1.0

    moved = 12.0 * elements
    return Probe(operation="stream", precision="fp32", unit="bytes", size=moved, amount=moved, make=make)


def _adamw(torch: Any, device: str, elements: int, extent: Extent) -> Probe:
    """One step of `torch.optim.AdamW` over tensors of one size: as it comes on a CPU, tensor by tensor; fused on a GPU,
    as a run has it, where one launch takes many tensors."""
    count = max(1, min(extent.most_stepped, extent.stepped_elements // elements))

    def make() -> tuple[Callable[[], object], float]:
        tensors = [torch.zeros(elements, device=device, requires_grad=True) for _ in range(count)]
        for tensor in tensors:
            tensor.grad = torch.full_like(tensor, 1e-3)
        optimizer = torch.optim.AdamW(tensors, lr=1e-5, fused=extent.fused_optimizer or None)
        return optimizer.step, float(count)

    size = float(elements)
    return Probe(operation="adamw", precision="fp32", unit="parameters", size=size, amount=size, make=make)


def _touch(torch: Any, device: str, size_bytes: int) -> Probe:
    """A new block of memory filled with zeros, given back and asked for again: what large gradients cost."""

    def make() -> tuple[Callable[[], object], float]:
        return lambda: torch.empty(size_bytes // 4, device=device).zero_(), 1.0

    size = float(size_bytes)
    return Probe(operation="first touch", precision="fp32", unit="bytes", size=size, amount=size, make=make)


def _dispatch(torch: Any, device: str) -> Probe:
    """What a call costs however small: one element through `CHAIN` differentiable calls, forward and backward."""

    def make() -> tuple[Callable[[], object], float]:
        given = torch.ones(1, device=device, requires_grad=True)

        def call() -> None:
            result = given
            for _ in range(CHAIN):
                result = result.view(1).add(1.0)
            torch.autograd.grad(result, given)

        return call, 2.0 * CHAIN

    return Probe(operation="dispatch", precision="fp32", unit="calls", size=1.0, amount=1.0, make=make)
