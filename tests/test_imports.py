"""Imports point one way: the order of the packages, read from the import statements themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tonnage"
ORDER = (
    "units", "errors", "values", "reason", "lazy", "files", "catalog", "workload", "sizing", "calibration", "pricing",
    "spot_instances", "scaling", "planning",
    "rightsizing", "service", "claimed_gains", "optimisations", "portfolios", "claims", "http", "secret_references",
    "encryption",
    "comparison",
    "metric_names", "features", "bills", "relocation", "runs", "traffic", "trials", "side_by_side",
    "preparing", "reports",
)  # fmt: skip
ADAPTERS = (
    "sources", "store", "fetching", "recipes", "runners", "tracking", "serving", "gateway", "benchmarks", "monitoring",
    "pipelines", "sweeps", "batches", "places", "backups", "budgets", "deployment", "images", "data_engines",
)  # fmt: skip
TOP = (
    "settings",
    "overrides",
    "api",
    "diffing",
    "supervisor",
    "cli",
    "web",
    "agents",
    "client",
    "login",
    "testing",
    "__init__",
    "__main__",
)  # may use all that is below


def room_of(module: str) -> str:
    """`tonnage.catalog.query` stands in the room `catalog`; `tonnage` itself is `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements of a file, inner ones too; expressions hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(tree, name, ()):
            yield one
            yield from statements(one)


def imported_modules(tree: ast.AST, package: str) -> Iterator[str]:
    """Every module of ours that a file names in an import statement, wherever it stands in the file."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "tonnage" else (base,)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def arrows(path: Path) -> set[tuple[str, str]]:
    """(room of the file, room it imports) for each import of ours in a file."""
    module = ".".join(("tonnage", *path.relative_to(SOURCE).with_suffix("").parts))
    package = module.removesuffix(".__init__") if path.name == "__init__.py" else module.rpartition(".")[0]
    here = room_of(module)
    found = imported_modules(parsed(path), package)
    return {(here, room_of(name)) for name in found if name == "tonnage" or name.startswith("tonnage.")}


def fault(here: str, there: str) -> str | None:
    """What is wrong with an arrow, or None."""
    if here == there or here in TOP:
        return None
    if there in TOP:
        return f"{here} imports {there}, which stands at the end of the chain"
    if here in ORDER:
        if there not in ORDER:
            return f"{here} is pure and imports the adapter {there}"
        if ORDER.index(there) > ORDER.index(here):
            return f"{here} imports {there}, which comes after it"
        return None
    if there in ADAPTERS:
        return f"the adapter {here} imports the adapter {there}"
    return None


FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = {room: list(files) for room, files in groupby(FILES, lambda path: path.relative_to(SOURCE).parts[0])}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    """No file imports against the order of STYLE.md; the message names each file with its arrow."""
    wrong = [
        f"{path.relative_to(SOURCE)}: {said}"
        for path in ROOMS[room]
        for arrow in sorted(arrows(path))
        if (said := fault(*arrow))
    ]
    assert not wrong


def test_sizing_reads_no_packaged_data() -> None:
    """Figures of a calibration reach the physics as arguments: no module of `sizing` opens files of a package."""
    physics = (path for path in FILES if path.is_relative_to(SOURCE / "sizing"))
    readers = {path.name for path in physics if "importlib" in path.read_text(encoding="utf-8")}
    assert readers == set()


def test_every_room_is_known() -> None:
    """A new package must be given its place in the order here."""
    rooms = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES}
    assert rooms <= {*ORDER, *ADAPTERS, *TOP}


@pytest.mark.parametrize(
    ("here", "there"),
    [("units", "errors"), ("catalog", "workload"), ("planning", "reports"), ("reports", "sources"), ("reports", "cli"),
     ("sources", "store"), ("sources", "settings"), ("catalog", "settings")],
)  # fmt: skip
def test_wrong_arrows_are_found(here: str, there: str) -> None:
    """The rule itself is not empty: these arrows are faults."""
    assert fault(here, there)


@pytest.mark.parametrize(
    ("text", "package", "expected"),
    [
        ("from tonnage.catalog import Catalog", "tonnage.sizing", "tonnage.catalog"),
        ("from tonnage import api", "tonnage.sizing", "tonnage.api"),
        ("import tonnage.web", "tonnage.sizing", "tonnage.web"),
        ("def f():\n    from ..cli import main", "tonnage.sizing", "tonnage.cli"),
    ],
)
def test_all_forms_of_import_are_read(text: str, package: str, expected: str) -> None:
    """Absolute, relative and inner imports are all seen."""
    assert expected in set(imported_modules(ast.parse(text), package))


def test_what_runs_as_a_program_is_defined_before_it_runs() -> None:
    """`if __name__ == "__main__":` ends its module: what stands below it is not yet there when the program runs."""
    above = []
    for path in FILES:
        body = parsed(path).body
        starts = [n for n, one in enumerate(body) if isinstance(one, ast.If) and "__main__" in ast.unparse(one.test)]
        above += [path for number in starts if number != len(body) - 1]
    assert not above
