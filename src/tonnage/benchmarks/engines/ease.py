"""What an engine asks for before it runs: read from its environment and from the source of its adapter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tonnage.benchmarks.engines.apart.engine_workers.__main__ import ENGINES
from tonnage.benchmarks.engines.environments import setup_s
from tonnage.benchmarks.engines.worker_process import APART
from tonnage.side_by_side.ease import EngineEase
from tonnage.side_by_side.spec import EngineKind, environment_of

OF_ALL = frozenset({"base", "process", "table"})  # modules of the harness, which every engine uses


def ease_of(engine: EngineKind, home: Path) -> EngineEase:
    """Set-up and adapter of an engine, as they are here."""
    kind = environment_of(engine)
    return EngineEase(
        environment=None if kind == "own" else kind, setup_s=setup_s(kind, home), adapter_lines=adapter_lines(engine)
    )


def adapter_lines(engine: EngineKind) -> int:
    """Lines on which a statement begins, in the modules of its adapter; docstrings are none.

    >>> 20 < adapter_lines("lightgbm") < adapter_lines("h2o-gbm")
    True
    """
    ahead, seen = [ENGINES[engine].partition(":")[0]], set[str]()
    lines = 0
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        tree = ast.parse((APART / "engine_workers" / f"{name}.py").read_text(encoding="utf-8"))
        lines += len({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_text(node)})
        ahead += [other for other in _beside(tree) if other not in OF_ALL]
    return lines


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _beside(tree: ast.Module) -> Iterator[str]:
    """Modules of the same package that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from ([node.module] if node.module else [one.name for one in node.names])
