"""Whether the loss is still a number, noted on the device so that no step waits to be asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.recipes.out_of_memory import is_out_of_memory
from tonnage.recipes.stepping import StepResult

if TYPE_CHECKING:
    from torch import Tensor

NEVER: Final = 2**62
MOST_LEFT_OUT: Final = 40  # updates in a row that the fp16 scaler may leave out: 2^40 below its scale nothing is left
LOOKED_AT: Final = 2**22  # values at a time: some 50 MB of temporaries


class Diverged(TonnageError):
    """Loss or gradients are no numbers any more."""


class Health:
    """The first step whose loss or gradient was not finite."""

    def __init__(self, device: Any) -> None:
        import torch

        self._first: Tensor = torch.tensor(NEVER, dtype=torch.int64, device=device)
        self._left_out = 0  # updates in a row, to the newest step

    def note(self, step: int, result: StepResult) -> None:
        """Take in one step. An update that the fp16 scaler left out has no gradient to judge; one after the other left
        out is a model whose gradients are no numbers at any scale."""
        import torch

        assert result.loss is not None
        fine = torch.isfinite(result.loss)
        if result.gradient_norm is not None and not result.skipped:
            fine = fine & torch.isfinite(result.gradient_norm).to(fine.device)
        self._left_out = self._left_out + 1 if result.skipped else 0
        if self._left_out >= MOST_LEFT_OUT:
            fine = torch.zeros_like(fine)
        self._first = torch.where(fine, self._first, self._first.clamp(max=step))

    def first_bad_step(self) -> int | None:
        """Reads the device: call it where it is read anyway."""
        first = int(self._first)
        return None if first == NEVER else first


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every floating-point tensor holds numbers only. Looks at a part at a time: a device that training fills
    has no room for more; where even that is too much, the part is looked at on the host."""
    return all(_is_finite(part) for tensor in tensors if tensor.is_floating_point() for part in _parts(tensor))


def _parts(tensor: Tensor) -> Iterable[Tensor]:
    own: Any = tensor.detach()
    own = own.to_local() if hasattr(own, "to_local") else own  # of a shared-out one, what this process holds
    if not own.is_contiguous():
        return (own,)
    return own.view(-1).split(LOOKED_AT)  # type: ignore[no-any-return]


def _is_finite(part: Tensor) -> bool:
    import torch

    try:
        return bool(torch.isfinite(part).all())
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return bool(torch.isfinite(part.cpu()).all())
