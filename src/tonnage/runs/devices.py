"""The NVIDIA GPUs that this process may use, as NVML lists them: whole ones, and the MIG instances of cut-up ones.

`nvml` is the module `pynvml` (package nvidia-ml-py), started. Everybody who asks for GPUs asks here: what a run needs
before it starts, what is sampled beside it, and what a device profile is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

from tonnage.values import dataclass

T = TypeVar("T")
BUS_ORDER: Final = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA's own is the fastest first: not NVML's, not Ray's


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """One device as CUDA counts it. `index` is of the board, by PCI bus."""

    index: int
    handle: Any
    is_instance: bool = False  # a MIG instance: a part of a board, with memory of its own


def open_nvml(nvml: Any | None = None) -> tuple[Any | None, str | None]:
    """The library, started; else why it cannot be: no driver and no permission both mean that nothing can be read."""
    library: Any = nvml
    if library is None:
        try:
            library = import_module("pynvml")
        except ModuleNotFoundError:
            return None, "nvidia-ml-py is not installed (extra 'train')"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {said(error)}"
    return library, None


def said(error: Exception) -> str:
    return str(error) or type(error).__name__


def answered(nvml: Any, ask: Callable[[], T]) -> T | None:
    """An answer, or None where this device does not support the question."""
    try:
        return ask()
    except (
        nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission, nvml.NVMLError_FunctionNotFound,
        nvml.NVMLError_InvalidArgument,  # what an instance says of questions that are asked of boards
    ):  # fmt: skip
        return None


def list_gpus(nvml: Any, environ: Mapping[str, str]) -> list[ListedGpu]:
    """The devices that CUDA_VISIBLE_DEVICES names by number (under `BUS_ORDER`) or UUID, in its order, up to the first
    name that is not one (CUDA's rule); all where it is not set.

    A process sees one MIG instance at most, and none of the whole boards beside it: the first instance, unless a `MIG-`
    name says which. Source: NVIDIA, «Multi-Instance GPU User Guide», section «CUDA Device Enumeration».
    """
    boards = list_boards(nvml)
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    found = (
        [_as_cuda_gives(nvml, board) for board in boards] if wanted is None else list(_visible(nvml, boards, wanted))
    )
    return [one for one in found if one.is_instance][:1] or found


def _visible(nvml: Any, boards: Sequence[ListedGpu], wanted: str) -> Iterator[ListedGpu]:
    for name in wanted.split(","):
        found = _named(nvml, boards, name.strip())
        if found is None:
            return
        yield found


def list_boards(nvml: Any) -> list[ListedGpu]:
    """All boards by PCI bus, whatever the environment says. One that does not answer (fallen off the bus) is left
    out."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append(ListedGpu(index, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError:
            continue
    return found


def _named(nvml: Any, boards: Sequence[ListedGpu], name: str) -> ListedGpu | None:
    if name.isdigit():
        return next((_as_cuda_gives(nvml, board) for board in boards if board.index == int(name)), None)
    if not name.startswith(("GPU-", "MIG-")):
        return None
    if name.startswith("MIG-"):
        parts = [part for board in boards for part in list_instances(nvml, board)]
        return next((part for part in parts if uuid_of(nvml, part).startswith(name)), None)
    return next((_as_cuda_gives(nvml, board) for board in boards if uuid_of(nvml, board).startswith(name)), None)


def _as_cuda_gives(nvml: Any, board: ListedGpu) -> ListedGpu:
    return next(iter(list_instances(nvml, board)), board)


def list_instances(nvml: Any, board: ListedGpu) -> list[ListedGpu]:
    """The MIG instances of a board; none where it is whole."""
    try:
        mode = nvml.nvmlDeviceGetMigMode(board.handle)[0]
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(board.handle) if mode else 0
    except (nvml.NVMLError, AttributeError):  # cannot be cut up, lost, or an older library
        return []
    found = []
    for place in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board.handle, place)
        except nvml.NVMLError:  # fewer instances than there could be
            continue
        found.append(ListedGpu(board.index, handle, is_instance=True))
    return found


def uuid_of(nvml: Any, gpu: ListedGpu) -> str:
    """`GPU-...` of a board, `MIG-...` of an instance; empty where the device does not tell."""
    found = answered(nvml, lambda: nvml.nvmlDeviceGetUUID(gpu.handle)) or ""
    return found.decode() if isinstance(found, bytes) else found


def memory_bytes(nvml: Any, gpu: ListedGpu) -> int | None:
    """All memory of the device: an instance's own."""
    found = answered(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle))
    return None if found is None else int(found.total)


def name_of(nvml: Any, gpu: ListedGpu) -> str:
    found = nvml.nvmlDeviceGetName(gpu.handle)
    return found.decode() if isinstance(found, bytes) else str(found)
