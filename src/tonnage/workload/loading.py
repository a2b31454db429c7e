"""Read a workload file: text in, a frozen `Workload` out, or one WorkloadError that tells every problem."""

from __future__ import annotations

import os
from dataclasses import field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.loading import load_catalog
from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.file.freezing import freeze_workload
from tonnage.workload.file.job_checks import find_job_problems
from tonnage.workload.file.kinds import KINDS, TabularFile, WorkloadFile, requests_of
from tonnage.workload.file.market_checks import MarketTerms, read_market_terms
from tonnage.workload.file.model_reference import FetchConfig, ModelFinder
from tonnage.workload.file.problems import (
    Problem,
    explain_validation,
    raise_problem,
    raise_problems,
    shorten,
)
from tonnage.workload.file.run_checks import find_run_problems
from tonnage.workload.file.sweep_checks import find_sweep_problems
from tonnage.workload.file.terms_checks import find_term_problems
from tonnage.workload.file.text import load_text
from tonnage.workload.file.traffic_checks import read_traffic
from tonnage.workload.file.yaml_lines import YamlDocument, read_yaml
from tonnage.workload.jobs import Traffic, Workload
from tonnage.workload.shapes import ModelShape

_EXAMPLES: Final = "the folder examples/ has one file of each kind; docs/workload-file.md lists every key"


def load_workload(
    path: Path | str,
    *,
    as_of: datetime,
    fetch_config: FetchConfig | None = None,
    catalog: Catalog | None = None,
) -> Workload:
    """The workload in a file. WorkloadError (file, line, key, value, hint) for whatever is wrong with it.

    `as_of` (with its time zone) is the clock deadlines are held against; `fetch_config` reads the
    config.json of an `hf://` model; names of providers, regions and GPUs are those of `catalog` (None: the
    built-in one).
    """
    return load_checked(Path(path), as_of=as_of, fetch_config=fetch_config, catalog=catalog).starting(as_of)


def parse_workload(
    text: str,
    *,
    file: str | None,
    folder: Path | None,
    as_of: datetime,
    fetch_config: FetchConfig | None = None,
    catalog: Catalog | None = None,
) -> Workload:
    """The workload in a text. `file` names it in errors; relative model paths start from `folder`."""
    if as_of.tzinfo is None:
        raise ValueError("as_of must carry a time zone")
    document = read_yaml(text, file=file)
    return check_workload(
        document, folder=folder, as_of=as_of, fetch_config=fetch_config, catalog=catalog or _built_in_catalog()
    ).starting(as_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadText:
    """The text of a workload file that is not on the disk as it is: of another revision, say."""

    text: str
    file: str  # names it in errors
    folder: Path  # relative model paths start here


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file in which no problem was found; `shape` is None for tables only. `document` knows each key's line."""

    entries: WorkloadFile
    shape: ModelShape | None
    document: YamlDocument
    name: str
    draft: ModelShape | None = None  # of speculative decoding
    market: MarketTerms = field(default_factory=MarketTerms)
    traffic: Traffic | None = None  # how a service's rate moves

    def starting(self, as_of: datetime) -> Workload:
        """The workload whose clock starts at `as_of` (with its time zone)."""
        return freeze_workload(
            self.entries, self.shape, name=self.name, as_of=as_of, source=self.document.file, draft=self.draft,
            market=self.market, traffic=self.traffic,
        )  # fmt: skip


def check_workload(
    document: YamlDocument,
    *,
    folder: Path | None,
    as_of: datetime,
    fetch_config: FetchConfig | None,
    catalog: Catalog,
) -> CheckedFile:
    """The entries of a document, all of them checked against one another; WorkloadError tells every problem."""
    finder = ModelFinder(folder, fetch_config)
    entries = _validate(document, finder)
    shape, problems = _find_shape(entries, finder)
    draft, of_draft = _find_draft(entries, finder)
    problems += of_draft
    problems += find_job_problems(entries, shape)
    problems += find_run_problems(entries)
    problems += find_sweep_problems(entries)
    problems += find_term_problems(entries, as_of=as_of, catalog=catalog)
    market, of_market = read_market_terms(entries.constraints, folder, catalog)
    traffic, of_traffic = read_traffic(entries, folder)
    problems += [*of_market, *of_traffic]
    raise_problems(problems, document)
    return CheckedFile(entries=entries, shape=shape, document=document, name=entries.name or _name_from(document.file),
                       draft=draft, market=market, traffic=traffic)  # fmt: skip


def load_checked(
    path: Path, *, as_of: datetime, fetch_config: FetchConfig | None = None, catalog: Catalog | None = None
) -> CheckedFile:
    """The checked entries of a file, for readers of more than its workload. Raises as `load_workload` does."""
    document = read_yaml(_read_text(path), file=str(path))
    return check_workload(
        document,
        folder=path.parent,
        as_of=as_of,
        fetch_config=fetch_config,
        catalog=catalog or _built_in_catalog(),
    )


@lru_cache(maxsize=1)
def _built_in_catalog() -> Catalog:
    return load_catalog()


def _read_text(path: Path) -> str:
    if os.path.isdir(path):  # false also for a name that no file can have
        raise WorkloadError("is a folder, not a workload file", hint=_files_in(path), file=str(path))
    return load_text(path, missing=_neighbours, too_large=_EXAMPLES)


def _files_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.glob("*.yaml"))[:5]
    return f"name the file: {', '.join(names)}" if names else "name the file inside it"


def _neighbours(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.glob("*.yaml")]
    except OSError:
        names = []
    return did_you_mean(nearest(path.name, names), _EXAMPLES)


def _validate(document: YamlDocument, finder: ModelFinder) -> WorkloadFile:
    entries = document.value
    if entries is None:
        raise WorkloadError("is empty", hint=_EXAMPLES, file=document.file)
    if not isinstance(entries, dict):
        what = "a list" if isinstance(entries, list) else shorten(entries)
        raise_problem((), f"found {what} at the top, expected keys such as `kind:`", document, _EXAMPLES)
    model = _choose_kind(entries.get("kind"), document)
    try:
        return model.model_validate(entries)
    except ValidationError as error:
        problems = list(explain_validation(error, model, document))
        problems += _model_problems(entries.get("model"), finder)  # tell it now, not after the next try
        raise_problems(problems, document)
        raise


def _choose_kind(kind: object, document: YamlDocument) -> type[WorkloadFile]:
    names = ", ".join(KINDS)
    if kind is None:
        raise_problem(("kind",), f"is missing, expected one of {names}", document, "for example `kind: train`")
    if not isinstance(kind, str) or kind not in KINDS:
        close = nearest(kind, KINDS, count=1) if isinstance(kind, str) else ()
        expected = f"found {shorten(kind)}, expected one of {names}"
        raise_problem(("kind",), expected, document, did_you_mean(close, _EXAMPLES))
    return KINDS[kind]


def _find_shape(entries: WorkloadFile, finder: ModelFinder) -> tuple[ModelShape | None, list[Problem]]:
    if isinstance(entries, TabularFile):
        return None, []
    found = finder.find(entries.model)
    return (found, []) if isinstance(found, ModelShape) else (None, list(found))


def _find_draft(entries: WorkloadFile, finder: ModelFinder) -> tuple[ModelShape | None, list[Problem]]:
    """The draft model of speculative decoding, if one is named."""
    requests = requests_of(entries)
    if requests is None or requests.speculative is None or requests.speculative.draft in (None, "none"):
        return None, []
    path = (entries.kind, "speculative", "draft")
    found = finder.find(requests.speculative.draft or "")
    if not isinstance(found, ModelShape):
        return None, [Problem(path, one.message, one.hint) for one in found]
    if found.architecture != "decoder":
        return None, [Problem(path, f"{found.name} writes no tokens one by one", "name a small decoder")]
    return found, []


def _model_problems(reference: object, finder: ModelFinder) -> list[Problem]:
    found = finder.find(reference) if isinstance(reference, str) and reference else ()
    return [] if isinstance(found, ModelShape) else list(found)


def _name_from(file: str | None) -> str:
    if file is None:
        return "workload"
    name = Path(file).name
    for suffix in (".yaml", ".yml", ".tonnage"):
        name = name.removesuffix(suffix)
    return name or "workload"
