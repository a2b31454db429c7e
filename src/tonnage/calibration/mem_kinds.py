"""Which of three figures a reading of memory is, by the words of its column `mem_kind`."""

from __future__ import annotations

from tonnage.workload.programs import Reading


def memory_reading(kind: str, unstated: Reading) -> Reading:
    """What the device holds, or what the framework's allocator counts or keeps; `unstated` where the words say none.

    >>> memory_reading("peak allocated", "device"), memory_reading("", "device")
    ('allocated', 'device')
    """
    text = kind.lower()
    if "smi" in text or "nvml" in text:
        return "device"
    if "active" in text or "alloc" in text:
        return "allocated"
    return "reserved" if "reserved" in text else unstated
