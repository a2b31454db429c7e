"""Rows as data frames."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tonnage.api import answers
from tonnage.errors import InputError, MissingExtra


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frame_of_either_library(library: str) -> None:
    """Columns and values arrive, a missing value among them."""
    pytest.importorskip(library)
    frame = answers.make_frame(["a", "b"], [[1, None], [2, "x"]], library)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].to_list() == [1, 2]


def test_without_a_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pandas nor polars: the error says what to install."""
    monkeypatch.setattr(answers, "find_spec", lambda name: None if name in ("pandas", "polars") else find_spec(name))
    with pytest.raises(MissingExtra) as caught:
        answers.make_frame(["a"], [[1]], None)
    assert caught.value.hint == "pip install 'tonnage[frames]'"


def test_unknown_library() -> None:
    """Another library's name is an input error."""
    with pytest.raises(InputError):
        answers.make_frame(["a"], [[1]], "vaex")  # type: ignore[arg-type]
