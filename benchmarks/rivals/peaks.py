"""Published peaks for the rules of thumb, from Tonnage's own catalog."""

from __future__ import annotations

from functools import cache

from rivals.cells import Declined
from tonnage.catalog import Accelerator, Catalog, load_catalog
from tonnage.errors import UnknownAccelerator


@cache
def _catalog() -> Catalog:
    return load_catalog()


def device(name: str) -> Accelerator:
    """The device of that name; Declined where the catalog has none."""
    try:
        return _catalog().accelerator(name)
    except UnknownAccelerator as error:
        raise Declined("GPU not in the catalog") from error


def peak_flop_per_s(name: str, precision: str) -> float:
    """Dense peak at a precision; Declined where none is published."""
    if precision not in ("fp32", "tf32", "fp16", "bf16", "fp8", "int8"):
        raise Declined("no peak for this precision")
    found = device(name).dense_tflops(precision)  # type: ignore[arg-type]
    if found is None:
        raise Declined(f"no {precision} peak published for this GPU")
    return found * 1e12
