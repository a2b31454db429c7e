"""The pipeline file, `NAME.pipeline.yaml`: text -> Pipeline; errors with line, key and hint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tonnage.comparison.user_files import Name, Names, Text, parse_entries, unknown
from tonnage.pipelines.pipeline import KINDS, Pipeline, PipelineStep, StepKind
from tonnage.workload.file.fields import Spelled, refusal
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text

PAGE: Final = "docs/pipelines.md"
NEEDED: Final = re.compile(r"\{([a-z0-9_.-]+)\.([A-Za-z0-9_-]+)\}")  # {step.output} in a command or a data path
BOUND: Final = re.compile(r"^(>=|<=)\s*([-+0-9.eE]+)$")


def _words(value: Any) -> Any:
    """A command as one text is split as a shell would, but runs without one."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise refusal("a command", f"{error}: quote it as for a shell") from error


def _bound(value: Any) -> Any:
    if not isinstance(value, str) or BOUND.match(value) is None:
        raise refusal("a bound such as '>= 0.9'", "write >= or <= and a number, in quotes")
    return value


Words = Annotated[tuple[Text, ...], BeforeValidator(_words), Field(min_length=1), Spelled("command")]
Paths = Annotated[tuple[Text, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
OutputName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$"), Spelled("name")]
Bound = Annotated[str, BeforeValidator(_bound), Spelled("bound")]


class StepFields(BaseModel):
    """One step: exactly one of `command`, `run`, `evaluate`, `register`, `predict`, and what goes with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Words | None = None
    run: Text | None = None
    evaluate: Name | None = None
    register_: Name | None = Field(default=None, alias="register")
    predict: Name | None = None
    needs: Names = ()
    inputs: Paths = ()
    outputs: dict[OutputName, Text] = {}
    data: Text | None = None
    require: dict[Name, Bound] = {}
    name: Text | None = None  # register: the model's name in the registry
    alias: Name | None = None
    output: Text | None = None  # predict: the file it writes
    retries: int = Field(default=0, ge=0, le=10)

    def kinds(self) -> tuple[StepKind, ...]:
        given = (self.command, self.run, self.evaluate, self.register_, self.predict)
        return tuple(kind for kind, value in zip(KINDS, given, strict=True) if value is not None)


class PipelineFields(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    steps: dict[Name, StepFields] = Field(min_length=1)


TAKES: Final[dict[StepKind, frozenset[str]]] = {
    "command": frozenset({"outputs"}),
    "run": frozenset(),
    "evaluate": frozenset({"data", "require"}),
    "register": frozenset({"name", "alias"}),
    "predict": frozenset({"data", "output"}),
}
OWN_KEYS: Final = ("outputs", "data", "require", "name", "alias", "output")


def load_pipeline(path: Path) -> Pipeline:
    """Read and check a pipeline file. WorkloadError names file, line and key of each fault."""
    fields, document = parse_entries(load_text(path), PipelineFields, file=str(path), page=PAGE)
    problems = list(_problems(fields))
    if problems:
        raise_problems(problems, document)
    steps = {name: _freeze(name, step) for name, step in fields.steps.items()}
    graph = {name: step.needs for name, step in steps.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        ring = " -> ".join(reversed(error.args[1]))
        raise_problems(
            [Problem(("steps", error.args[1][0]), f"waits for itself: {ring}", "take one of these needs out")], document
        )
        raise
    return Pipeline(name=fields.name, folder=path.resolve().parent, steps=tuple(steps[name] for name in order))


def _problems(fields: PipelineFields) -> Iterator[Problem]:
    names = list(fields.steps)
    written: dict[str, str] = {}
    for name, step in fields.steps.items():
        path = ("steps", name)
        kinds = step.kinds()
        if len(kinds) != 1:
            said = f"has {' and '.join(kinds)}" if kinds else "does nothing"
            yield Problem(path, said, f"a step has exactly one of {', '.join(KINDS)}")
            continue
        yield from _misplaced(path, kinds[0], step)
        for need in _needs(step):
            if need not in fields.steps:
                yield unknown((*path, "needs"), "step", need, names)
        yield from _reference_problems(path, kinds[0], step, fields)
        for output in _outputs(kinds[0], step).values():
            if output in written:
                hint = "two steps that write one file undo each other"
                yield Problem(path, f"writes {output}, as step '{written[output]}' does", hint)
            written.setdefault(output, name)


def _misplaced(path: tuple[str, str], kind: StepKind, step: StepFields) -> Iterator[Problem]:
    for key in OWN_KEYS:
        if key in step.model_fields_set and key not in TAKES[kind]:
            yield Problem((*path, key), f"a step with `{kind}` takes no `{key}`", f"{PAGE} says what each kind takes")
    missing = [key for key, needed in (("name", "register"), ("output", "predict")) if kind == needed]
    for key in missing:
        if getattr(step, key) is None:
            yield Problem((*path, key), "is missing", f"{PAGE} has an example")


def _reference_problems(
    path: tuple[str, str], kind: StepKind, step: StepFields, fields: PipelineFields
) -> Iterator[Problem]:
    of = step.evaluate or step.register_ or step.predict
    if of is not None and of in fields.steps and fields.steps[of].run is None:
        yield Problem((*path, kind), f"step '{of}' trains no model", "name a step with `run`")
    for text in (*(step.command or ()), step.data or ""):
        for owner, output in NEEDED.findall(text):
            if owner in fields.steps:
                known = _outputs(fields.steps[owner].kinds()[0], fields.steps[owner])
                if output not in known:
                    yield unknown((*path, kind), f"output of step '{owner}'", output, known)


def _outputs(kind: StepKind, step: StepFields) -> dict[str, str]:
    if kind == "predict" and step.output is not None:
        return {"output": step.output}
    return dict(step.outputs)


def _needs(step: StepFields) -> tuple[str, ...]:
    """The steps named in `needs`, those whose model is used, and those whose outputs are spelled out."""
    of = step.evaluate or step.register_ or step.predict
    spelled = [owner for text in (*(step.command or ()), step.data or "") for owner, _ in NEEDED.findall(text)]
    return tuple(dict.fromkeys([*step.needs, *([of] if of else []), *spelled]))


def _freeze(name: str, step: StepFields) -> PipelineStep:
    (kind,) = step.kinds()
    bounds = [(metric, cast(re.Match[str], BOUND.match(bound))) for metric, bound in step.require.items()]
    return PipelineStep(
        name=name,
        kind=kind,
        needs=_needs(step),
        command=step.command or (),
        workload=step.run,
        of=step.evaluate or step.register_ or step.predict,
        data=step.data,
        require=tuple((metric, found.group(1), float(found.group(2))) for metric, found in bounds),
        register_as=step.name,
        alias=step.alias,
        inputs=step.inputs,
        outputs=tuple(_outputs(kind, step).items()),
        retries=step.retries,
    )
