"""`tonnage.values.dataclass` makes what the standard decorator makes: each claim is held against the standard one."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from tonnage import values

FROZEN = {"frozen": True, "slots": True}


def declared(dataclass: Callable[..., Any]) -> dict[str, type]:
    """The same classes under a decorator."""

    @dataclass(**FROZEN, kw_only=True)
    class Plain:
        """Fields with and without defaults."""

        name: str
        size: float = 2.0
        parts: list[int] = field(default_factory=list)
        hidden: int = field(default=1, repr=False, compare=False)

    @dataclass(**FROZEN)
    class Positional:
        """Made from arguments in order."""

        low: float
        high: float = 4.0

    @dataclass(**FROZEN, kw_only=True)
    class Below(Positional):
        """Inherits fields, and derives one when it is made."""

        width: float = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "width", self.high - self.low)

    @dataclass(**FROZEN, kw_only=True)
    class Empty:
        """No fields."""

    @dataclass(**FROZEN, kw_only=True, eq=False)
    class Same:
        """Equal to itself alone."""

        name: str

    @dataclass(**FROZEN)
    class OwnEquality:
        """Its own idea of what is equal."""

        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.name.lower() == other.name.lower()

    return {one.__name__: one for one in (Plain, Positional, Below, Empty, Same, OwnEquality)}


STANDARD, OURS = declared(dataclasses.dataclass), declared(values.dataclass)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (), {"name": "a"}),
    ("Plain", (), {"name": "a", "size": 3.0, "parts": [1], "hidden": 7}),
    ("Positional", (1.0,), {}),
    ("Positional", (1.0, 2.0), {}),
    ("Below", (1.0,), {"high": 9.0}),
    ("Empty", (), {}),
    ("Same", (), {"name": "a"}),
    ("OwnEquality", ("a",), {}),
]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """At the top of a module, so that it can be pickled."""

    name: str
    size: int = 3


@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_an_instance_is_what_the_standard_one_is(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Fields, `repr`, equality with a copy and with a changed one, and having a hash."""
    standard, ours = STANDARD[name](*given, **named), OURS[name](*given, **named)
    fields = [one.name for one in dataclasses.fields(standard)]
    assert [one.name for one in dataclasses.fields(ours)] == fields
    assert [getattr(ours, one) for one in fields] == [getattr(standard, one) for one in fields]
    assert repr(ours) == repr(standard)
    assert (ours == OURS[name](*given, **named)) == (standard == STANDARD[name](*given, **named))
    assert ours != standard
    assert type(ours).__slots__ == type(standard).__slots__
    assert type(ours).__match_args__ == type(standard).__match_args__


def test_hashes_go_with_equality() -> None:
    """Equal values have one hash, and a field that is not compared is in neither."""
    made = OURS["Positional"]
    assert hash(made(1.0)) == hash(made(1.0, 4.0))
    assert len({made(1.0), made(1.0, 4.0), made(1.0, 5.0)}) == 2
    assert OURS["Plain"](name="a", hidden=1) == OURS["Plain"](name="a", hidden=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS["Plain"](name="a"))  # it holds a list


@pytest.mark.parametrize("name", ["name", "unknown"])
def test_it_is_frozen(name: str) -> None:
    """No field and no other attribute can be set or deleted."""
    one = Kept(name="a")
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(one, name, "b")
    with pytest.raises(FrozenInstanceError, match=name):
        delattr(one, name)


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "other": 1}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    """As a function refuses them, in the class's own name, the first time and every other."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Kept\.__init__\(\)"):
            Kept(**arguments)


def test_the_rest_of_the_standard_library_takes_it() -> None:
    """`replace`, `asdict`, `copy`, `pickle`, and after the first instance `inspect.signature`."""
    one = Kept(name="a")
    assert dataclasses.replace(one, size=4) == Kept(name="a", size=4)
    assert dataclasses.asdict(one) == {"name": "a", "size": 3}
    assert copy.deepcopy(one) == copy.copy(one) == pickle.loads(pickle.dumps(one)) == one
    assert list(inspect.signature(Kept).parameters) == ["name", "size"]


def test_a_factory_is_called_for_each_instance() -> None:
    """A default list is not shared."""
    first, second = OURS["Plain"](name="a"), OURS["Plain"](name="a")
    first.parts.append(1)
    assert second.parts == []


def test_methods_are_compiled_when_used() -> None:
    """Declaring a class compiles nothing; its first instance compiles `__init__`."""

    @values.dataclass(frozen=True, slots=True)
    class Later:
        """Nothing made yet."""

        name: str

    before = Later.__init__
    Later("a")
    assert Later.__init__ is not before
    assert Later.__init__.__qualname__.endswith("Later.__init__")
    after = Later.__init__
    Later("b")
    assert Later.__init__ is after


def test_what_is_not_frozen_is_the_standard_one() -> None:
    """A class that can be changed goes to the standard decorator."""

    @values.dataclass(slots=True)
    class Counter:
        """Counts."""

        count: int = 0

    one = Counter()
    one.count += 1
    assert one == Counter(1)
