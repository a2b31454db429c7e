"""Scenarios that a real control plane played, step by step: the objects as a watcher saw them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Document = dict[str, Any]
WORKLOADS: Final = ("Job", "JobSet")
_PART: Final = re.compile(r'\.?([^.\[\]"]+)|\["([^"]+)"\]|\[([^\]"]+)\]')


class ScenarioReplay:
    """One scenario: `steps()` moves on, `objects` and `events` are what the API would show then."""

    def __init__(self, scenario: Document) -> None:
        self.scenario = scenario
        self.objects: dict[tuple[str, str], Document] = {}
        self.events: list[Document] = []
        self._submitted = {(one["kind"], one["metadata"]["name"]): one for one in scenario["submitted"]}

    def steps(self) -> Iterator[Document]:
        """Each step that the server made, after it is taken over."""
        for number, step in enumerate(self.scenario["steps"]):
            kind = step["kind"]
            if kind == "recorder":
                continue
            if kind == "Event":
                about, name = step["about"].split("/", 1)
                involved = {"kind": about, "name": name.strip("<>")}
                self.events.append(
                    {"involvedObject": involved, **{key: step[key] for key in ("reason", "message", "type")}}
                )
            else:
                self._change(kind, step, number)
            yield step

    def of(self, kind: str, name: str) -> tuple[Document | None, list[Document], list[Document], Document | None]:
        """(job, its pods, its events, what Kueue keeps) of a workload; of a JobSet the pods of its Jobs."""
        owners = {name} | {
            job for (other, job), one in self.objects.items()
            if other == "Job" and kind == "JobSet" and job.startswith(f"{name}-")
        }  # fmt: skip
        pods = [one for (other, pod), one in self.objects.items() if other == "Pod" and pod.split(" ")[2] in owners]
        events = [
            one for one in self.events if one["involvedObject"] in [{"kind": kind, "name": each} for each in owners]
        ]
        return self.objects.get((kind, name)), pods, events, self.objects.get(("Workload", f"workload of {name}"))

    def _change(self, kind: str, step: Document, number: int) -> None:
        key = (kind, step["name"].strip("<>"))
        if step["change"] == "DELETED":
            self.objects.pop(key, None)
            return
        if step["change"] == "ADDED":
            made = copy.deepcopy(self._submitted.get(key, {"kind": kind, "metadata": {}, "spec": {}}))
            made["metadata"] |= {"name": key[1], "creationTimestamp": f"{number:06}"}
            self.objects[key] = made
        at = self.objects.setdefault(key, {"kind": kind, "metadata": {"name": key[1]}})  # a node was there before
        for path, value in (step.get("set") or {}).items():
            put(at, path, value)


def put(given: Any, path: str, value: Any) -> None:
    """Set one field: `status.conditions[Complete]`, `metadata.labels["a/b"]`; None takes it away.

    >>> made = {"status": {"conditions": [{"type": "Failed", "status": "False"}]}}
    >>> put(made, "status.conditions[Failed].status", "True"); made["status"]["conditions"]
    [{'type': 'Failed', 'status': 'True'}]
    """
    *way, last = [(name or quoted, key) for name, quoted, key in _PART.findall(path)]
    at = given
    for place, (name, key) in enumerate(way):
        follows_key = bool([*way, last][place + 1][1])
        if key:
            at = _member(at, key)
        else:
            if at.get(name) is None:
                at[name] = [] if follows_key else {}
            at = at[name]
    name, key = last
    if key:
        found = [one for one in at if key not in (one.get("type"), one.get("name"))]
        at[:] = found if value is None else [*found, value]
    elif value is None:
        at.pop(name, None)
    else:
        at[name] = value


def _member(given: list[Document], key: str) -> Document:
    for one in given:
        if key in (one.get("type"), one.get("name")):
            return one
    given.append({"name": key})
    return given[-1]


def read_scenarios(facts: Path) -> dict[str, Document]:
    """All that are recorded, by their id."""
    text = (facts / "kubernetes" / "sequences.jsonl").read_text(encoding="utf-8")
    return {one["id"]: one for one in map(json.loads, text.splitlines())}
