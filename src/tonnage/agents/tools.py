"""The questions of an agent: each is a verb, its text the Markdown of the report, its document that of `-o json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.agents.protocol import AgentTool, ToolAnswer
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.workload.loading import WorkloadText

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings

LISTED: Final = 20  # entries of the longest list, where the agent does not say how many
MOST_LISTED: Final = 1000
LONGEST_TEXT: Final = 40_000  # characters of Markdown
Ask = Callable[[Mapping[str, Any]], "Report"]
_TEXT: Final = {"type": "string"}
_WORK: Final[Mapping[str, Any]] = {
    "workload": {
        "description": "A workload as a mapping, or the YAML text of a workload file.",
        "anyOf": [{"type": "object"}, _TEXT],
    },
    "file": {"type": "string", "description": "Or the path of a workload file, below the server's folder."},
}
_LIMITS: Final[Mapping[str, Any]] = {
    "constraints": {
        "type": "object",
        "description": "They replace the workload's own: deadline, budget_usd, providers, regions, gpus, "
        "interruptible, residency, max_gpus, max_nodes.",
    }
}
_LISTED: Final[Mapping[str, Any]] = {
    "limit": {
        "type": "integer", "minimum": 1, "maximum": MOST_LISTED,
        "description": f"Entries of each list of the document; {LISTED} by default.",
    }
}  # fmt: skip


def agent_tools(settings: Settings, folder: Path) -> tuple[AgentTool, ...]:
    """The tools over the verbs; files are read below `folder` alone."""
    from tonnage import api

    def plan(given: Mapping[str, Any]) -> Report:
        rank, top = _text(given, "rank") or "cost", _count(given, "top", 5)
        source = _workload(given, folder)
        return api.plan(source, rank=rank, top=top, settings=settings, **_constraints(given)).report()  # type: ignore[arg-type]

    def size(given: Mapping[str, Any]) -> Report:
        return api.size(
            _workload(given, folder), gpus=_text(given, "gpus") or (), top=_count(given, "top", 10), settings=settings
        ).report()

    def explain(given: Mapping[str, Any]) -> Report:
        made = api.plan(_workload(given, folder), settings=settings, **_constraints(given))
        return made.explain(_text(given, "option")).report()

    def gains(given: Mapping[str, Any]) -> Report:
        return api.gains(_workload(given, folder), settings=settings, **_constraints(given)).report()

    def compare(given: Mapping[str, Any]) -> Report:
        from tonnage.reports.comparison.report import comparison_report

        weights = given.get("weights") or {}
        if not isinstance(weights, Mapping) or not all(_is_number(one) for one in weights.values()):
            raise InputError("`weights` must be a mapping of criteria to numbers", hint='{"cost": 5}')
        return comparison_report(api.compare(_file(given, folder), weights=weights, settings=settings))

    def catalog(given: Mapping[str, Any]) -> Report:
        from tonnage.api.catalog_lists import catalog_list

        what = _text(given, "what") or "gpus"
        return catalog_list(what, gpu=_text(given, "gpu"), provider=_text(given, "provider"), settings=settings)

    top = {"type": "integer", "minimum": 1, "maximum": MOST_LISTED}
    rank = {"type": "string", "enum": ["cost", "time", "pareto"]}
    return (
        _tool("plan", "Rank every way to buy a workload",
              "Which hardware, on which platform, bought how, for a training, fine-tuning, serving, batch or tabular "
              "workload: every way ranked by cost or time with 80 % intervals, and why each other one was refused.",
              {**_WORK, **_LIMITS, "rank": rank, "top": top}, plan),
        _tool("size", "What a workload needs", "Memory, FLOPs and time of a workload, and the machines that hold it.",
              {**_WORK, "gpus": {"type": "string", "description": "As H100:8 or 24GB..80GB."}, "top": top}, size),
        _tool("explain", "Why the winner won", "The winner in full; with `option`, what became of an instance type, "
              "GPU or provider and what would make it win.", {**_WORK, **_LIMITS, "option": _TEXT}, explain),
        _tool("compare", "Compare platforms", "A compare file: cost, speed, fit, scores, decision, what would "
              "change it. `weights` go before the file's own.", {"file": _WORK["file"], "weights": {"type": "object"}},
              compare, required=("file",)),
        _tool("catalog", "GPUs, machines and prices", "Accelerators, machines that one can rent, or prices with the "
              "day they were read.", {"what": {"type": "string", "enum": ["gpus", "instances", "offers"]},
              "gpu": {"type": "string", "description": "As H100:8 or 24GB..80GB."}, "provider": _TEXT}, catalog),
        _tool("gains", "What promised gains come to", "Spot, autoscaling, right-sizing, Arm and newer GPUs for one "
              "workload: what documents promise beside what is computed.", {**_WORK, **_LIMITS}, gains),
    )  # fmt: skip


def _tool(
    name: str, title: str, about: str, properties: Mapping[str, Any], ask: Ask, *, required: Sequence[str] = ()
) -> AgentTool:
    known = {**properties, **_LISTED}
    schema = {"type": "object", "properties": known, "required": list(required), "additionalProperties": False}

    def call(given: Mapping[str, Any]) -> ToolAnswer:
        for key in given:
            if key not in known:
                raise InputError(
                    f"'{key[:40]}' is not an argument", hint=did_you_mean(nearest(key, known), ", ".join(known))
                )
        return _answer(ask(given), _count(given, "limit", LISTED))

    return AgentTool(name=name, title=title, about=about, schema=schema, call=call)


def _answer(report: Report, limit: int) -> ToolAnswer:
    """Markdown for the reader; the document with its lists cut, and how long they were."""
    from tonnage.reports.documents import cut_lists
    from tonnage.reports.plain import dump_json
    from tonnage.reports.rendering import render_report

    document = json.loads(dump_json(cut_lists(report.document(), limit)))
    text = render_report(report, "md")
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "\n\n(cut here: the document has it in full)\n"
    return ToolAnswer(text=text, document=document)


def _workload(given: Mapping[str, Any], folder: Path) -> Mapping[str, Any] | WorkloadText | Path:
    found = given.get("workload")
    if (found is None) == (given.get("file") is None):
        raise InputError("give either `workload` or `file`", hint="a mapping or a text; or a path below the folder")
    if found is None:
        return _file(given, folder)
    if isinstance(found, Mapping):
        return found
    if isinstance(found, str) and found.strip():
        return WorkloadText(text=found, file="workload.tonnage.yaml", folder=folder)
    raise InputError("`workload` must be a mapping or a text")


def _file(given: Mapping[str, Any], folder: Path) -> Path:
    """A file below the folder: an agent reads no other through this server."""
    name = _text(given, "file")
    if not name:
        raise InputError("`file` is missing", hint=f"a path below {folder}")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        known = sorted(one.relative_to(folder).as_posix() for one in folder.glob("**/*.tonnage.yaml"))[:200]
        raise InputError(f"no file '{name[:80]}' below the folder", hint=did_you_mean(nearest(name, known), ""))
    return path


def _constraints(given: Mapping[str, Any]) -> dict[str, Any]:
    found = given.get("constraints") or {}
    if not isinstance(found, Mapping):
        raise InputError("`constraints` must be a mapping", hint="as the constraints of a workload file")
    return dict(found)


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise InputError(f"`{key}` must be a text")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(given: Mapping[str, Any], key: str, default: int) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_LISTED:
        raise InputError(f"`{key}` must be a whole number from 1 to {MOST_LISTED}")
    return value
