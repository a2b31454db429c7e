"""Errors under the names that pynvml has for them, for what pretends to be that package."""


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


class NotSupported(NvmlError):
    """As `pynvml.NVMLError_NotSupported`."""
