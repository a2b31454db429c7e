"""A sweep as its workload file states it, and the run of each trial."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tonnage.catalog.loading import load_catalog
from tonnage.errors import InputError, WorkloadError
from tonnage.runs.reading import run_spec_of
from tonnage.runs.spec import RunSpec
from tonnage.trials.parameters import LARGEST_GRID, TrialParameter, read_parameter
from tonnage.trials.study import StudyTerms
from tonnage.values import dataclass
from tonnage.workload.file.kinds import TabularFile, TrainFile
from tonnage.workload.file.problems import line_of
from tonnage.workload.file.sweep_checks import is_whole
from tonnage.workload.file.sweep_fields import Direction, SweepFields
from tonnage.workload.file.yaml_lines import KeyPath, YamlDocument
from tonnage.workload.loading import CheckedFile, check_workload, load_checked
from tonnage.workload.run_terms import less_is_better

TRIALS: Final = 20
_NAME: Final = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is tried."""

    name: str
    file: Path
    checked: CheckedFile
    parameters: tuple[TrialParameter, ...]
    figure: str
    direction: Direction
    terms: SweepFields

    @property
    def trials(self) -> int:
        """How many trials there are in all."""
        if self.terms.sampler != "grid":
            return self.terms.trials or TRIALS
        return min(self.terms.trials or LARGEST_GRID, self.grid_size)

    @property
    def study(self) -> StudyTerms:
        """What its study looks for."""
        return StudyTerms(
            name=self.name, direction=self.direction, parameters=self.parameters, sampler=self.terms.sampler,
            pruning=self.terms.pruning, seed=self.terms.seed,
        )  # fmt: skip

    @property
    def grid_size(self) -> int:
        size = 1
        for one in self.parameters:
            size *= len(one.grid())
        return size

    def run_name(self, number: int) -> str:
        """The run of a trial, counted from 1."""
        return f"{self.name}-{number:03}"

    def is_trial(self, run: str) -> bool:
        """Whether a run has the name of a trial of this sweep."""
        number = run.removeprefix(f"{self.name}-")
        return number.isdigit() and run == self.run_name(int(number))

    def spec(self, number: int, values: Mapping[str, Any], *, cores: int) -> RunSpec:
        """The run of a trial: the file's own with the trial's values. WorkloadError where they cannot hold."""
        spec = run_spec_of(self._checked_with(values), self.file)
        launch = spec.launch
        if launch.threads is None and self.terms.parallel > 1:
            shared = max(1, cores // (self.terms.parallel * launch.processes))
            launch = replace(launch, threads=shared)
        return replace(spec, name=self.run_name(number), sweep=self.name, launch=launch)

    def check_values(self) -> None:
        """WorkloadError for a choice, or an end of a range, that the file could not hold."""
        run_spec_of(self.checked, self.file)
        for parameter in self.parameters:
            for value in parameter.ends():
                try:
                    self._checked_with({parameter.path: value})
                except WorkloadError as error:
                    line = line_of(("sweep", "parameters", parameter.path), self.checked.document)
                    message = f"{value!r} cannot be used: {error.message}"
                    raise WorkloadError(
                        message,
                        hint=error.hint,
                        file=str(self.file),
                        line=line,
                        key=f"sweep.parameters.{parameter.path}",
                    ) from error

    def fingerprint(self) -> dict[str, Any]:
        """What must stay as it is between a sweep and its resumption: all but how many, how fast and how much."""
        document: Any = copy.deepcopy(self.checked.document.value)
        for name in ("trials", "parallel", "limits"):
            document["sweep"].pop(name, None)
        return {"file": str(self.file.absolute()), "document": document}

    def _checked_with(self, values: Mapping[str, Any]) -> CheckedFile:
        document = with_values(self.checked.document, values)
        return check_workload(
            document, folder=self.file.parent, as_of=datetime.now(UTC), fetch_config=None, catalog=load_catalog()
        )


def load_sweep(path: Path, *, name: str | None = None) -> Sweep:
    """The sweep of a workload file. WorkloadError (file, line, key, hint) for whatever is wrong with it."""
    checked = load_checked(path, as_of=datetime.now(UTC))
    file = checked.entries
    terms = file.sweep if isinstance(file, (TrainFile, TabularFile)) else None
    if terms is None:
        hint = "add `sweep:` with parameters and objective (kinds train and tabular); docs/sweep.md shows one"
        raise WorkloadError("says nothing of what to try", hint=hint, file=str(path), key="sweep")
    name = name or checked.name
    if not _NAME.fullmatch(name):
        raise InputError(f"'{name}' cannot name a sweep", hint="letters, digits, dots and dashes: --name lr-search")
    figure = terms.objective.figure
    sweep = Sweep(
        name=name,
        file=path,
        checked=checked,
        parameters=tuple(
            read_parameter(one, fields, whole=is_whole(type(file), one)) for one, fields in terms.parameters.items()
        ),
        figure=figure,
        direction=terms.objective.direction or ("minimize" if less_is_better(figure) else "maximize"),
        terms=terms,
    )
    if terms.sampler == "grid" and sweep.grid_size > LARGEST_GRID:
        fault = f"the grid has more than {LARGEST_GRID:,} combinations"
        raise WorkloadError(fault, hint="fewer values, or `sampler: random`", file=str(path), key="sweep.parameters")
    sweep.check_values()
    return sweep


def with_values(document: YamlDocument, values: Mapping[str, Any]) -> YamlDocument:
    """The document with other values at some keys; each is reported on the line of its parameter."""
    changed: Any = copy.deepcopy(document.value)
    lines: dict[KeyPath, int | None] = dict(document.lines)
    for path, value in values.items():
        parts = tuple(path.split("."))
        line = line_of(("sweep", "parameters", path), document)
        inner = changed
        for end, part in enumerate(parts[:-1], start=1):
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            lines.setdefault(parts[:end], line)
            inner = inner[part]
        inner[parts[-1]] = copy.deepcopy(value)
        lines[parts] = line
    return YamlDocument(changed, lines, document.file)
