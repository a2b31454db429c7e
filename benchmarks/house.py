"""Figures of how the code is built, of the work tree or of git revisions, for `src` and for `tests`.

    python benchmarks/house.py [REVISION [REVISION]] [--json]

Without a revision: the files git tracks, as they are on the disk. With two revisions: both, and the difference.
Functions over 40 lines count their decorators, signature and docstring; those over 40 lines of statements do not.
Importers are the modules of `src/tonnage` that name a module in an import statement anywhere in them. The import chain
follows the imports that run when a module is loaded; modules that import one another in a circle count one link each.
A duplicate block is a longest run of six or more lines, blank lines and import statements left out, that occurs twice:
it is counted once per further place.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests")
LONG_FUNCTION_LINES = 40
SMALL_MODULE_LINES = 60
BLOCK_LINES = 6
WORK_TREE = "work tree"
Figures = dict[str, int]
Shingle = tuple[str, ...]
IMPORT = (ast.Import, ast.ImportFrom)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class SourceFile:
    """One Python file: its path inside the repository, its text, its tree."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.lines = path, text, text.splitlines()
        self.tree = ast.parse(text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def module(self) -> str:
        """`src/tonnage/a/b.py` is `tonnage.a.b`; `src/tonnage/a/__init__.py` is `tonnage.a`."""
        return self.path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        return self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]

    def code_lines(self) -> list[tuple[int, str]]:
        """(line number, text without indentation) of what is neither blank nor an import statement."""
        imports = {
            number
            for node in self.nodes
            if isinstance(node, IMPORT)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        numbered = ((number, line.strip()) for number, line in enumerate(self.lines, start=1))
        return [(number, line) for number, line in numbered if line and number not in imports]


def tracked_files(folder: str) -> list[SourceFile]:
    names = _git("ls-files", "-z", "--", folder).decode().split("\0")
    paths = [name for name in names if name.endswith(".py") and (ROOT / name).is_file()]
    return [SourceFile(name, (ROOT / name).read_text(encoding="utf-8")) for name in paths]


def archived_files(revision: str, folder: str) -> list[SourceFile]:
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision, folder))) as archive:
        found = [(one.name, archive.extractfile(one)) for one in archive if one.name.endswith(".py")]
        return [SourceFile(name, file.read().decode()) for name, file in found if file is not None]


def size_figures(files: Iterable[SourceFile]) -> Figures:
    """Lines, files, long functions, uses of `Any`, class names declared in more than one place."""
    files = list(files)
    nodes = [node for file in files for node in file.nodes]
    functions = [node for node in nodes if isinstance(node, FUNCTION)]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return {
        "lines": sum(len(file.lines) for file in files),
        "files": len(files),
        "functions": len(functions),
        f"functions_over_{LONG_FUNCTION_LINES}_lines": sum(_lines_of(one) > LONG_FUNCTION_LINES for one in functions),
        f"functions_over_{LONG_FUNCTION_LINES}_lines_of_statements": sum(
            _statement_lines_of(one) > LONG_FUNCTION_LINES for one in functions
        ),
        "uses_of_any": sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes),
        "class_names_declared_more_than_once": sum(count > 1 for count in classes.values()),
    }


def import_figures(files: Iterable[SourceFile]) -> Figures:
    """Modules with one importer, those of them under 60 lines, and the longest import chain in modules."""
    by_module = {file.module: file for file in files}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, file in by_module.items():
        for imported in imported_modules(file, file.nodes, by_module):
            importers[imported].add(name)
    single = [
        name for name, found in importers.items() if len(found - {name}) == 1 and not _is_package(by_module[name])
    ]
    return {
        "modules_with_one_importer": len(single),
        f"modules_with_one_importer_under_{SMALL_MODULE_LINES}_lines": sum(
            len(by_module[name].lines) < SMALL_MODULE_LINES for name in single
        ),
        "longest_import_chain": longest_chain(
            {
                name: imported_modules(file, _run_on_import(file.tree.body), by_module)
                for name, file in by_module.items()
            }
        ),
    }


def imported_modules(file: SourceFile, nodes: Iterable[ast.AST], known: Mapping[str, object]) -> set[str]:
    """The known modules that import statements among the nodes name: of `from a import b`, `a.b` where that is one."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = file.package.split(".")[: len(file.package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names |= {full if (full := f"{base}.{alias.name}") in known else base for alias in node.names}
    return {name for name in names if name in known and name != file.module}


def longest_chain(imports: Mapping[str, set[str]]) -> int:
    """Modules on the longest path of a graph of imports; a circle counts every module in it."""
    names = sorted(imports)
    edges = np.array([[other in imports[name] for other in names] for name in names], dtype=bool)
    _, labels = connected_components(edges, connection="strong")
    circle = dict(zip(names, labels.tolist(), strict=True))
    beyond = {label: {circle[other] for name in names if circle[name] == label for other in imports[name]} - {label}
              for label in circle.values()}  # fmt: skip
    sizes, length = Counter(circle.values()), dict[int, int]()
    for label in TopologicalSorter(beyond).static_order():
        length[label] = sizes[label] + max((length[one] for one in beyond[label]), default=0)
    return max(length.values(), default=0)


def duplicate_figures(files: Iterable[SourceFile]) -> Figures:
    """Blocks of six or more lines found a second time, and the lines that such blocks cover, in either place."""
    places: defaultdict[Shingle, list[tuple[str, int]]] = defaultdict(list)
    for file in files:
        lines = file.code_lines()
        for start in range(len(lines) - BLOCK_LINES + 1):
            places[tuple(line for _, line in lines[start : start + BLOCK_LINES])].append((file.path, start))
    repeats = {shingle: found for shingle, found in places.items() if len(found) > 1}
    covered = {
        (path, start + offset) for found in repeats.values() for path, start in found for offset in range(BLOCK_LINES)
    }
    pairs = {(found[0], place) for found in repeats.values() for place in found[1:]}
    starts = [one for one in pairs if tuple((path, start - 1) for path, start in one) not in pairs]
    return {"duplicate_blocks": len(starts), "lines_in_duplicate_blocks": len(covered)}


def figures_of(revision: str) -> dict[str, Figures]:
    """Figures by folder of a git revision, or of `WORK_TREE`."""
    found: dict[str, Figures] = {}
    for folder in FOLDERS:
        files = tracked_files(folder) if revision == WORK_TREE else archived_files(revision, folder)
        found[folder] = (
            size_figures(files) | (import_figures(files) if folder == "src" else {}) | duplicate_figures(files)
        )
    return found


def table(columns: Mapping[str, dict[str, Figures]]) -> Iterator[str]:
    """One line a figure, one column a revision, and the difference where there are two."""
    for folder in FOLDERS:
        yield "  ".join(
            [f"{folder:44}", *(f"{name:>12.12}" for name in columns), *["  difference"][: len(columns) - 1]]
        )
        for key in next(iter(columns.values()))[folder]:
            values = [column[folder][key] for column in columns.values()]
            shown = [f"{value:12,}" for value in values] + [f"{values[-1] - values[0]:+12,}"][: len(values) - 1]
            yield "  ".join([f"  {key.replace('_', ' '):42}", *shown])


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of how the code is built.")
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help="none: the work tree; two: compared")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if len(given.revisions) > 2:
        parser.error("name two revisions at most")
    columns = {name: figures_of(name) for name in given.revisions or [WORK_TREE]}
    print(json.dumps(columns, indent=2) if given.json else "\n".join(table(columns)))


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def _is_package(file: SourceFile) -> bool:
    return file.path.endswith("__init__.py")


def _lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
    return (function.end_lineno or function.lineno) - first + 1


def _statement_lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (function.end_lineno or function.lineno) - body[0].lineno + 1 if body else 0


def _run_on_import(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes that run when a module is loaded: not those of functions, nor under `if TYPE_CHECKING`."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _run_on_import(node.orelse)
        elif not isinstance(node, (*FUNCTION, ast.Lambda)):
            yield from _run_on_import(ast.iter_child_nodes(node))


if __name__ == "__main__":
    main()
