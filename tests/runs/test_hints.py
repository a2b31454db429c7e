"""Hints name the keys of the workload file, not those of the specification that is made from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from pydantic import BaseModel

from tonnage.runs import spec
from tonnage.workload.file import job_fields, kinds, run_fields

SOURCE = Path(__file__).parents[2] / "src" / "tonnage"
QUOTED = re.compile(r"`(\w+)\b[^`]*`")


def keys_of_files() -> set[str]:
    """Every key that a workload file may have."""
    models = [
        one for module in (job_fields, kinds, run_fields) for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, BaseModel)
    ]  # fmt: skip
    return {name for model in models for name in model.model_fields}


def names_of_specifications() -> set[str]:
    parts = [one for one in vars(spec).values() if isinstance(one, type) and is_dataclass(one)]
    return {field.name for part in parts for field in fields(part)}


def texts() -> Iterator[tuple[str, str]]:
    """(file, text) of every string in what carries runs out; docstrings are for other readers."""
    for folder in ("recipes", "runs", "runners", "supervisor"):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
                    yield path.name, node.value


def test_what_a_message_quotes_is_a_key_of_the_file() -> None:
    """A user can write it there: `warmup`, not the `warmup_fraction` it becomes."""
    foreign = names_of_specifications() - keys_of_files()
    assert "warmup_fraction" in foreign
    found = [(file, text) for file, text in texts() for name in QUOTED.findall(text) if name in foreign]
    assert found == []
