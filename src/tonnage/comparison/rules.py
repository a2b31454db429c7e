"""Decision rules as data: questions over facts, leaves that choose; read, checked for cycles and dead ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from tonnage.comparison.user_files import Link, Name, Named, Text, parse_entries, unknown
from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.workload.file.fields import Flag, Positive, StrictModel, refusal
from tonnage.workload.file.problems import Problem, raise_problems
from tonnage.workload.file.text import load_text

PAGE: Final = "docs/decision-rules.md"
Operator = Literal["is", "above", "at_least", "below", "at_most", "includes"]
COMPARISONS: Final = ("above", "at_least", "below", "at_most")
FACTS: Final = {
    "kinds": "kinds of work that are compared (train, serve, batch, tabular)",
    "trains": "whether any work trains a model",
    "trains_own_data": "whether any work fine-tunes or trains on data of one's own",
    "serves": "whether any work is a service",
    "requests_per_month": "requests a month of all services",
    "tokens_per_month": "tokens a month of all services",
    "jobs_per_month": "training, tabular and batch jobs a month",
    "employees": "people in the organisation",
    "team_size": "people on the team",
    "ml_expertise": "none, some or strong",
    "ops_expertise": "none, some or strong",
    "compliance": "rules the platform must meet",
    "has_deadline": "whether any work has a deadline",
}
COMPUTED_FACTS: Final = (  # of an alternative: `NAME.THING`
    "usd_per_month",
    "time_s",
    "latency_p95_s",
    "can_do",
    "setup_usd",
    "meets_compliance",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """`fact operator value`, or `fact operator times x other fact`."""

    fact: str
    operator: Operator
    value: bool | float | str | None
    other_fact: str | None = None
    times: float = 1.0


class Leaf(StrictModel):
    """One outcome. `choose`: an alternative or tag; None: no single one. `must`: nothing else may be the answer;
    without it the choice counts among alternatives that cost alike."""

    name: Name
    say: Text
    choose: Name | None = None
    because: Text
    must: Flag = False


class RuleQuestion(StrictModel):
    """One node: asked in words, decided by its test. `unknown` None: an unknown fact leaves it undecided."""

    name: Name
    ask: Text
    fact: Annotated[str, Field(min_length=1, max_length=120)]
    is_: Annotated[Flag | str | None, Field(alias="is")] = None
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    includes: str | None = None
    than: str | None = None
    times: Positive = 1.0
    yes: Name
    no: Name
    unknown: Name | None = None

    @model_validator(mode="after")
    def _one_test(self) -> RuleQuestion:
        if len(self.tests()) != 1:
            raise refusal("one of is, above, at_least, below, at_most, includes", "one question asks one alternative")
        return self

    def tests(self) -> list[tuple[Operator, Any]]:
        """The operators that are given."""
        given: list[tuple[Operator, Any]] = [("is", self.is_), ("includes", self.includes)]
        given += [(name, getattr(self, name)) for name in COMPARISONS]
        return [(name, value) for name, value in given if value is not None]

    @property
    def test(self) -> Test:
        operator, value = self.tests()[0]
        value = None if self.than else value
        return Test(fact=self.fact, operator=operator, value=value, other_fact=self.than, times=self.times)


def _numbers(value: Any) -> Any:
    """`above: than` style comparisons name another fact."""
    if isinstance(value, dict):
        for name in COMPARISONS:
            if isinstance(value.get(name), str):
                return {**value, name: 0.0, "than": value[name]}
    return value


class Rules(StrictModel):
    """One decision tree (questions may share what follows them), NAME.yaml. `needs`: facts that the compare file's
    `needs` gives, and what each means."""

    name: Name
    title: Text
    about: Text
    source: Text
    url: Link | None = None
    start: Name
    needs: dict[Name, Text] = Field(default_factory=dict)
    questions: Named[Annotated[RuleQuestion, BeforeValidator(_numbers)]]
    leaves: Named[Leaf]


def load_rules(name: str, folder: Path) -> Rules:
    """A packaged rule set by name, or a file (`PATH.yaml`, from `folder`); UnknownName with the nearest else."""
    if name.endswith((".yaml", ".yml")):
        path = folder / name
        return parse_rules(load_text(path), file=str(path))
    known = packaged_rules()
    if name not in known:
        close = nearest(name, known)
        hint = did_you_mean(close, f"known: {', '.join(known)}; or the path of a .yaml file")
        raise UnknownName(f"no rule set is named '{name}'", suggestions=close, hint=hint)
    return known[name]


@lru_cache(maxsize=1)
def packaged_rules() -> Mapping[str, Rules]:
    """The rule sets that are shipped, by name."""
    folder = files("tonnage.comparison").joinpath("data/rules")
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".yaml")), key=lambda one: one.name)
    read = [parse_rules(one.read_text("utf-8"), file=f"rules/{one.name}") for one in found]
    return {rules.name: rules for rules in read}


def parse_rules(text: str, *, file: str | None = None) -> Rules:
    """The rule set of a text. WorkloadError on a cycle, a leaf or question that is never reached, an unknown fact."""
    entries, document = parse_entries(text, Rules, file=file, page=PAGE)
    raise_problems(_problems(entries), document)
    return entries


def _problems(entries: Rules) -> list[Problem]:
    nodes = [*entries.questions, *entries.leaves]
    found = [
        Problem(("leaves", name), "is a question too", "give it another name")
        for name in entries.leaves
        if name in entries.questions
    ]
    if entries.start not in nodes:
        found.append(unknown(("start",), "question", entries.start, nodes))
    for name, one in entries.questions.items():
        path = ("questions", name)
        for key, target in _targets(one):
            if target not in nodes:
                found.append(unknown((*path, key), "question or leaf", target, nodes))
        for key, fact in (("fact", one.fact), ("than", one.than)):
            if fact is not None and not known_fact(fact, entries.needs):
                listed = [*FACTS, *entries.needs, *(f"{fact}.THING" for fact in COMPUTED_FACTS)]
                found.append(unknown((*path, key), "fact", fact, listed))
    asked = {one.fact for one in entries.questions.values()} | {one.than for one in entries.questions.values()}
    found += [
        Problem(("needs", name), "is asked by no question", "remove it, or ask for it")
        for name in entries.needs
        if name not in asked
    ]
    return found or _graph_problems(entries)


def known_fact(name: str, needs: Mapping[str, str]) -> bool:
    """Whether a rule may ask for it: a fact of the work or team, a need, or a computed figure of some alternative."""
    return name in FACTS or name in needs or (name.split(".", 1)[0] in COMPUTED_FACTS and "." in name)


def _targets(entry: RuleQuestion) -> Iterator[tuple[str, str]]:
    yield "yes", entry.yes
    yield "no", entry.no
    if entry.unknown is not None:
        yield "unknown", entry.unknown


def _graph_problems(entries: Rules) -> list[Problem]:
    """A cycle with its path; otherwise the questions that the start does not reach."""
    reached: set[str] = set()
    cycle = _find_cycle(entries, entries.start, (), reached)
    if cycle:
        where = ("questions", cycle[0])
        return [Problem(where, f"the questions run in a circle: {' -> '.join(cycle)}", "let one lead to a leaf")]
    dead = [("questions", name) for name in entries.questions if name not in reached]
    dead += [("leaves", name) for name in entries.leaves if name not in reached]
    return [Problem(path, "is never reached", f"lead to it from `{entries.start}`, or remove it") for path in dead]


def _find_cycle(entries: Rules, node: str, way: tuple[str, ...], reached: set[str]) -> tuple[str, ...]:
    if node in way:
        return (*way[way.index(node) :], node)
    if node in reached:
        return ()
    if node in entries.questions:
        for _, target in _targets(entries.questions[node]):
            if found := _find_cycle(entries, target, (*way, node), reached):
                return found
    reached.add(node)
    return ()
