"""`benchmarks/house.py` counts what it says, on files small enough to count by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def house() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "house.py"
    spec = importlib.util.spec_from_file_location("house", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes(house: ModuleType) -> None:
    """Lines, functions (an inner one too), `Any` where it is used, a class name of two files."""
    long = "@cached\ndef long():\n" + "    x = 1\n" * 39
    files = [
        house.SourceFile("src/a.py", "from typing import Any\nclass One: ...\ndef f(x: Any) -> Any: ...\n"),
        house.SourceFile("src/b.py", "class One: ...\nclass Two: ...\n" + long),
    ]
    assert house.size_figures(files) == {
        "lines": 46,
        "files": 2,
        "functions": 2,
        "functions_over_40_lines": 1,
        "functions_over_40_lines_of_statements": 0,
        "uses_of_any": 2,
        "class_names_declared_more_than_once": 1,
    }


def test_a_signature_and_a_docstring_are_no_statements(house: ModuleType) -> None:
    """41 lines of statements are one too many, whatever is above them."""
    head = 'def f(\n    a: int,\n) -> None:\n    """One.\n\n    Two."""\n'
    for lines, over in ((40, 0), (41, 1)):
        file = house.SourceFile("src/a.py", head + "    a = 1\n" * lines)
        assert house.size_figures([file])["functions_over_40_lines_of_statements"] == over


def test_imports(house: ModuleType) -> None:
    """An import inside a function makes an importer but no link of the chain; a circle counts each module in it."""
    files = [
        house.SourceFile("src/p/__init__.py", "from p.a import f\n"),
        house.SourceFile("src/p/a.py", "from . import b\ndef f():\n    from p import late\n"),
        house.SourceFile("src/p/b.py", "from p.c import g\n" + "\n" * 60),
        house.SourceFile("src/p/c.py", "import p.b\nimport json\n"),
        house.SourceFile("src/p/late.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\n"),
    ]
    assert house.import_figures(files) == {
        "modules_with_one_importer": 2,  # c and late: a and b have two, p is a package
        "modules_with_one_importer_under_60_lines": 2,
        "longest_import_chain": 4,  # p, a, and the circle of b and c
    }


def test_duplicates(house: ModuleType) -> None:
    """A block of eight lines in two files is one block, indented or not; imports and blank lines do not count."""
    block = [f"x{number} = {number}" for number in range(8)]
    files = [
        house.SourceFile("a.py", "\n".join(["import os", "a = 1", *block, "b = 1"])),
        house.SourceFile("b.py", "\n".join(["import os", "c = 1", "def f():", *(f"    {line}" for line in block)])),
        house.SourceFile("c.py", "\n".join(["import os", *block[:5]])),
    ]
    assert house.duplicate_figures(files) == {"duplicate_blocks": 1, "lines_in_duplicate_blocks": 16}


def test_revisions(house: ModuleType) -> None:
    """A revision is read from git, and compared with another it shows the difference."""
    rows = {"a": {"src": {"lines": 10}, "tests": {"lines": 7}}, "b": {"src": {"lines": 4}, "tests": {"lines": 7}}}
    shown = list(house.table(rows))
    assert shown[1].split() == ["lines", "10", "4", "-6"]
    assert shown[3].split() == ["lines", "7", "7", "+0"]
