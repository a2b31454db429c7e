"""Whose a workload file is, and which of them an asker may see; what a body of such an asker may name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.web.asked import PageRequest, workload_files
from tonnage.web.whatif import read_document

NO_FOLDER: Final = Path("/nonexistent/tonnage")  # relative names of a body lead to no file from here
DEEPEST: Final = 40  # lists and mappings in one another


def visible_files(asked: PageRequest) -> dict[str, Path]:
    """The workload and compare files that the asker may see, by the name that addresses take."""
    found = workload_files(asked.folder)
    if asked.who.projects is None:
        return found
    return {name: path for name, path in found.items() if _seen(asked, path)}


def _seen(asked: PageRequest, path: Path) -> bool:
    """A compare file shows its workloads, so it is seen by who sees all of them."""
    try:
        document = read_document(path)
        beside = [path.parent / name for name in _workloads_of(document)]
        projects = {project_of(path, document, asked.folder)}
        projects |= {project_of(one, read_document(one), asked.folder) for one in beside}
    except InputError:  # whose it is cannot be known
        return False
    return all(asked.sees(project) for project in projects)


def _workloads_of(document: Mapping[str, Any]) -> Iterator[str]:
    for one in document.get("workloads") or ():
        if isinstance(one, Mapping) and isinstance(one.get("file"), str):
            yield one["file"]


def project_of(path: Path, document: Mapping[str, Any], folder: Path) -> str | None:
    """`run.charge.project` of the file, else the folder that it is in below the server's; None: of no project."""
    run = document.get("run")
    charge = run.get("charge") if isinstance(run, Mapping) else None
    stated = charge.get("project") if isinstance(charge, Mapping) else None
    if stated is not None:
        return str(stated)
    whole, below = path.resolve(), folder.resolve()
    if not whole.is_relative_to(below):
        return None
    parts = whole.relative_to(below).parts
    return parts[0] if len(parts) > 1 else None


def without_files(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with its workload as a text. Raises InputError where it names a file of the server by its whole path,
    so that no one reads a file of another project through a plan."""
    found = dict(body)
    if isinstance(found.get("workload"), str):
        try:
            inner = yaml.safe_load(found["workload"])
        except yaml.YAMLError:
            return found  # the plan says where it cannot be read
    else:
        inner = found.get("workload")
        found["workload"] = yaml.safe_dump(inner, sort_keys=False)
    for text in (*_texts(inner), *_texts(body.get("constraints"))):
        if _leads_elsewhere(text):
            raise InputError(
                f"'{text[:80]}' is a file of the server: a key of projects names none",
                hint="a known model, `hf://...` or an inline shape; an admin puts files into the project's folder",
            )
    return found


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > DEEPEST:
        raise InputError(f"the workload has more than {DEEPEST} mappings in one another")
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, depth + 1)


def _leads_elsewhere(text: str) -> bool:
    """
    >>> [_leads_elsewhere(one) for one in ("/etc/x", "~/x", "a/../../x", "C:\\\\x", "hf://org/name", "24GB..80GB")]
    [True, True, True, True, False, False]
    """
    path = PureWindowsPath(text)
    return bool(text.startswith(("/", "~")) or path.drive or path.root or ".." in path.parts)
