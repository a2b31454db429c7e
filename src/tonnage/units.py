"""Unit conversions. This module alone knows 1024 and 10⁹; every other name carries its unit as a suffix."""

from __future__ import annotations

from typing import Final

GIB: Final = 1024**3
MIB: Final = 1024**2
GB: Final = 10**9
TERA: Final = 10**12
PICO_PER_USD: Final = 10**12  # sums of money are whole pico-dollars where nothing may be lost
SECONDS_PER_HOUR: Final = 3600
HOURS_PER_MONTH: Final = 730  # 8,760 h a year / 12, the month the clouds bill by
BITS_PER_BYTE: Final = 8


def to_gib(size_bytes: float) -> float:
    """Bytes to gibibytes (2³⁰).

    >>> to_gib(80 * 2**30)
    80.0
    """
    return size_bytes / GIB


def from_gib(size_gib: float) -> float:
    """Gibibytes to bytes."""
    return size_gib * GIB


def mib_to_gib(size_mib: float) -> float:
    """Mebibytes (what `nvidia-smi` prints) to gibibytes.

    >>> mib_to_gib(15360)
    15.0
    """
    return size_mib * MIB / GIB


def gb_to_gib(size_gb: float) -> float:
    """Gigabytes (10⁹) to gibibytes (2³⁰).

    >>> round(gb_to_gib(13.5), 2)
    12.57
    """
    return size_gb * GB / GIB


def gib_to_gb(size_gib: float) -> float:
    """GiB (2³⁰) in GB (10⁹).

    >>> round(gib_to_gb(100), 3)
    107.374
    """
    return from_gib(size_gib) / GB


def gbit_to_gb_per_s(rate_gbit_per_s: float) -> float:
    """Gigabits a second (how networks are sold) to gigabytes a second.

    >>> gbit_to_gb_per_s(3200)
    400.0
    """
    return rate_gbit_per_s / BITS_PER_BYTE
