"""A mapping given in Python → the plain values that a workload file holds, without text in between."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import PurePath
from typing import Final, NoReturn

from tonnage.errors import WorkloadError
from tonnage.workload.file.yaml_lines import MAX_DEPTH, MAX_VALUES, KeyPath, Value, YamlDocument, dotted

_PLAIN: Final = (bool, int, float, str, type(None))


def as_document(mapping: Mapping[str, object]) -> YamlDocument:
    """The mapping as a document without lines. WorkloadError, with the key, for a value that no file could hold.

    Tuples count as lists, paths and dates as their text; a NumPy scalar and a Decimal as the number it holds.

    >>> as_document({"kind": "train", "constraints": {"gpus": ("A100", "H100")}}).value
    {'kind': 'train', 'constraints': {'gpus': ['A100', 'H100']}}
    """
    reader = _MappingReader()
    return YamlDocument(reader.read(mapping, ()), reader.lines, None)


class _MappingReader:
    """Builds the values, noting every path; each refusal is a WorkloadError."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int | None] = {}

    def read(self, value: object, path: KeyPath) -> Value:
        self.lines[path] = None
        if len(path) > MAX_DEPTH:
            _refuse(path, f"nested more than {MAX_DEPTH} levels deep", "no workload key lies that deep")
        if len(self.lines) > MAX_VALUES:
            _refuse(path, f"more than {MAX_VALUES:,} values", "shorten the length histogram")
        if isinstance(value, Mapping):
            return {self._key(name, path): self.read(entry, (*path, name)) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.read(entry, (*path, index)) for index, entry in enumerate(value)]
        return _plain(value, path)

    def _key(self, name: object, path: KeyPath) -> str:
        if not isinstance(name, str):
            _refuse(path, f"found the key {name!r}, expected text", "keys are the words of a workload file")
        return name


def _plain(value: object, path: KeyPath) -> Value:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, date):  # a datetime too
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if not isinstance(value, _PLAIN) and callable(item := getattr(value, "item", None)) and not _size(value):
        value = item()
    if not isinstance(value, _PLAIN):
        what = f"found a {type(value).__name__}, expected text, a number, a list or a mapping"
        _refuse(path, what, "pass plain values")
    return value


def _size(value: object) -> int:
    """How many dimensions an array has; 0 for NumPy's scalars."""
    return int(getattr(value, "ndim", 1))


def _refuse(path: KeyPath, message: str, hint: str) -> NoReturn:
    raise WorkloadError(message, hint=hint, key=dotted(path) or None)
