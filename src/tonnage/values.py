"""Frozen dataclasses that cost little to declare: `@dataclass` as in the standard library, compiled on first use.

A plan imports some 430 frozen dataclasses and makes instances of a third of them. The standard decorator compiles six
methods of each with `exec` when its module is imported, which was half of the time to import the planner. Here a class
compiles its `__init__` alone, when its first instance is made; comparison, hash and `repr` read the fields through
`operator.attrgetter`. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        """The standard decorator; of a frozen class with slots the methods are made as this module says."""

        def declare(one: type) -> type:
            if frozen and slots:
                return _frozen(one, kw_only=kw_only, eq=eq)
            return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)(one)

        return declare if cls is None else declare(cls)


__all__ = ["dataclass"]
Reader = Callable[[Any], tuple[Any, ...]]
_GIVEN_NOTHING: Final = object()


def _frozen(cls: type, *, kw_only: bool, eq: bool) -> Any:
    own = set(cls.__dict__)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    every = fields(made)
    methods: dict[str, Any] = {"__repr__": _repr_of([field.name for field in every if field.repr])}
    if eq:
        methods["__eq__"] = _eq_of(_reader([field.name for field in every if field.compare]))
        methods["__hash__"] = _hash_of(
            _reader([one.name for one in every if (one.compare if one.hash is None else one.hash)])
        )
        if cls.__dict__.get("__hash__") is None:  # a class that defines `__eq__` alone has None here
            own.discard("__hash__")
    methods |= {"__init__": _init_when_used(made), "__getstate__": _state, "__setstate__": _set_state}
    methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _reader(names: list[str]) -> Reader:
    """The values of these fields of an instance, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _eq_of(read: Reader) -> Callable[[Any, Any], bool]:
    def equals(self: Any, other: Any) -> bool:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    return equals


def _hash_of(read: Reader) -> Callable[[Any], int]:
    def hashed(self: Any) -> int:
        return hash(read(self))

    return hashed


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return shown


def _init_when_used(cls: Any) -> Callable[..., None]:
    def first_init(self: Any, /, *given: Any, **named: Any) -> None:
        init = _compiled_init(cls)
        cls.__init__ = init
        init(self, *given, **named)

    return first_init


def _compiled_init(cls: Any) -> Callable[..., None]:
    """`__init__` as the standard decorator writes it: each field set, then `__post_init__` where there is one."""
    every = fields(cls)
    positional = [_parameter(one) for one in every if one.init and not one.kw_only]
    named = [_parameter(one) for one in every if one.init and one.kw_only]
    lines = [f" _set(self, {one.name!r}, {_value(one)})" for one in every if one.init or _has_default(one)]
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    scope: dict[str, Any] = {"_set": object.__setattr__, "_GIVEN_NOTHING": _GIVEN_NOTHING}
    scope |= {f"_default_{one.name}": one.default for one in every}
    scope |= {f"_make_{one.name}": one.default_factory for one in every}
    exec(f"def __init__({parameters}):\n" + "\n".join(lines or [" pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _parameter(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_GIVEN_NOTHING" if field.default_factory is not MISSING else field.name


def _value(field: Field[Any]) -> str:
    """What a field is set to: the argument, else its default."""
    if field.default_factory is not MISSING:
        made = f"_make_{field.name}()"
        return f"{made} if {field.name} is _GIVEN_NOTHING else {field.name}" if field.init else made
    return field.name if field.init else f"_default_{field.name}"


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _refuse_to_set(_self: Any, name: str, _value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
