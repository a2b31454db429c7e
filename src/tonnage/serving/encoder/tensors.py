"""Tensors of the Open Inference Protocol v2, as JSON or with their bytes behind it (its binary tensor extension)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.serving.encoder.faults import BadRequest, WrongShape, WrongType
from tonnage.values import dataclass

Body = Mapping[str, Any]
TEXTS: Final = "BYTES"
NUMPY: Final = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
HEADER_LENGTH: Final = b"inference-header-content-length"
SIZE: Final = "binary_data_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor; `values` has its shape: numbers of its type, or texts (bytes, where they came as such) as objects."""

    name: str
    datatype: str
    values: NDArray[Any]


def read_tensors(body: Body) -> list[Tensor]:
    """The tensors under `inputs`. Faults name the tensor and what of it cannot be used."""
    given = body.get("inputs")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise BadRequest("`inputs` is a list of tensors")
    found = [_tensor(one) for one in given]
    if len({one.name for one in found}) < len(found):
        raise BadRequest("two tensors have one name")
    return found


def _tensor(said: Body) -> Tensor:
    name, datatype, shape = said.get("name"), said.get("datatype"), said.get("shape")
    if not isinstance(name, str):
        raise BadRequest("a tensor has no `name`")
    if datatype != TEXTS and datatype not in NUMPY:
        raise WrongType(f"`{name}` has datatype {datatype!r}; known: {TEXTS}, {', '.join(NUMPY)}")
    if not isinstance(shape, list) or not all(type(one) is int and one >= 0 for one in shape):
        raise WrongShape(f"`{name}`: `shape` is a list of whole numbers")
    data = said.get("data")
    flat = data if isinstance(data, np.ndarray) else _values(name, str(datatype), _flat(data))
    if len(flat) != np.prod(shape, dtype=int):
        raise WrongShape(f"`{name}`: `data` has {len(flat)} values, `shape` says {shape}")
    return Tensor(name=name, datatype=str(datatype), values=flat.reshape(shape))


def _flat(data: Any) -> list[Any]:
    """Row by row, however deep the lists lie in one another."""
    if not isinstance(data, list):
        raise BadRequest("`data` is a list")
    flat: list[Any] = data
    while any(isinstance(one, list) for one in flat):
        flat = [part for one in flat for part in (one if isinstance(one, list) else [one])]
    return flat


def _values(name: str, datatype: str, flat: Sequence[Any]) -> NDArray[Any]:
    """Numbers or texts of JSON; null is NaN where the type has one."""
    if datatype == TEXTS:
        made: NDArray[Any] = np.empty(len(flat), dtype=object)
        made[:] = flat
        _check_kinds(name, datatype, flat, {str, type(None)})
        return made
    kinds: set[type] = (
        {bool} if datatype == "BOOL" else {int, float, type(None)} if datatype.startswith("FP") else {int}
    )
    _check_kinds(name, datatype, flat, kinds)
    try:
        with np.errstate(over="ignore"):  # beyond the type's largest number: infinite, which models refuse
            return np.array(flat, dtype=NUMPY[datatype])
    except OverflowError as error:
        raise WrongType(f"`{name}` holds a number beyond {datatype}") from error


def _check_kinds(name: str, datatype: str, flat: Sequence[Any], kinds: set[type]) -> None:
    if not set(map(type, flat)) <= kinds:
        wrong = next(one for one in flat if type(one) not in kinds)
        raise WrongType(f"`{name}` has datatype {datatype} and holds {str(wrong)[:60]!r}")


def with_bytes(body: Body, tail: bytes) -> Body:
    """The request with the bytes behind its JSON as the data of the tensors that say how many of them are theirs."""
    made, at = [], 0
    given = body.get("inputs")
    for one in given if isinstance(given, list) else ():
        size = (one.get("parameters") or {}).get(SIZE) if isinstance(one, dict) else None
        if size is None:
            made.append(one)
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - at:
            raise BadRequest(f"`{SIZE}` is {size!r}, {len(tail) - at} bytes are left")
        made.append({**one, "data": _of_bytes(one, tail[at : at + size])})
        at += size
    if at < len(tail):
        raise BadRequest(f"{len(tail) - at} bytes behind the JSON belong to no tensor")
    return {**body, "inputs": made}


def _of_bytes(said: Body, content: bytes) -> Any:
    """Numbers as they lie; of texts, each with its length before it (a list where the tensor's JSON would have one)."""
    if said.get("datatype") == TEXTS:
        found = list(_elements(content))
        made: NDArray[Any] = np.empty(len(found), dtype=object)
        made[:] = found
        return made
    kind = np.dtype(NUMPY.get(str(said.get("datatype")), "u1"))
    if len(content) % kind.itemsize:
        raise WrongShape(f"`{said.get('name')}`: {len(content)} bytes are no whole number of {said.get('datatype')}")
    return np.frombuffer(content, dtype=kind)


def _elements(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        if len(content) - at < 4 or len(content) - at - 4 < (size := struct.unpack_from("<I", content, at)[0]):
            raise WrongShape("a tensor of BYTES ends within an element")
        yield content[at + 4 : at + 4 + size]
        at += 4 + size


def as_text(one: Any, name: str) -> Any:
    """An element of BYTES as text, also where it came as bytes. WrongType for what is no UTF-8."""
    if not isinstance(one, bytes):
        return one
    try:
        return one.decode()
    except UnicodeDecodeError as error:
        raise WrongType(f"`{name}` holds bytes that are no text in UTF-8") from error
