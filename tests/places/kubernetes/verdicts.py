"""What a real API server said of objects: rows of the folder that TONNAGE_FACTS names, in the shape of our check."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.places.kubernetes.checking.decoding import read_document
from tonnage.places.kubernetes.checking.judging import ObjectVerdict, Server, judge, judge_update
from tonnage.places.kubernetes.checking.refusals import ObjectRefusal

FACTS: Final = os.environ.get("TONNAGE_FACTS")
WHOLE: Final = frozenset({"<nil>", "[]"})  # how the server writes the object as a whole
NOT_A_CAUSE: Final = "some validation rules were not checked"


def rows() -> list[dict[str, Any]]:
    """All of them; none without the folder."""
    if FACTS is None:
        return []
    text = (Path(FACTS) / "kubernetes" / "verdicts.jsonl").read_text(encoding="utf-8")
    return [_whole(json.loads(line)) for line in text.splitlines()]


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    """A long string that the record shortened, as it was sent."""
    if not row.get("object_abridged"):
        return row
    text = re.sub(r"<(\d+) times (.)>", lambda found: found[2] * int(found[1]), json.dumps(row["object"]))
    return {**row, "object": json.loads(text)}


def server_of(row: dict[str, Any]) -> Server:
    """What the README of the facts says of the server that answered."""
    hooks = "webhooks" in row["admission"]
    nothing: frozenset[str] = frozenset()
    return Server(
        namespaces=frozenset({"default"}), priority_classes=nothing, runtime_classes=nothing, service_accounts=nothing,
        training_runtimes=frozenset({"ClusterTrainingRuntime/torch-distributed"}), kueue=hooks, jobset=hooks,
    )  # fmt: skip


def said(row: dict[str, Any]) -> dict[str, Any]:
    """The server's answer: that of the second object of an update."""
    answer: dict[str, Any] = row["verdict"] if "first" in row else row
    return answer


def judged(row: dict[str, Any]) -> ObjectVerdict:
    """Ours of the same."""
    if "first" in row:
        same = row["verdict"].get("fieldManager") == row["first_verdict"].get("fieldManager")
        same |= row["method"].endswith("force")
        return judge_update(row["first"], row["second"], server_of(row), same_manager=same)
    try:
        given = read_document(row["raw_body"]) if "raw_body" in row else row["object"]
    except InputError as error:
        return ObjectVerdict(refusals=(ObjectRefusal(field="", reason="undecodable", message=str(error), code=400),))
    return judge(given, server_of(row), namespace=row.get("request_namespace") or "default")


def fields_of(answer: dict[str, Any]) -> set[str] | None:
    """The fields that a refusal names; None where it names none."""
    if answer.get("causes"):
        return {
            "" if one["field"] in WHOLE else one["field"]
            for one in answer["causes"] if NOT_A_CAUSE not in one["message"]
        }  # fmt: skip
    message = answer["message"]
    if "unknown field" in message:
        return set(re.findall(r'unknown field "([^"]+)"', message))
    if wrong := re.search(r"Go struct field \w+\.(\S+) of type", message):
        return {wrong[1]}
    denied = re.search(r"denied the request: \[?((?:spec|metadata).*)$", message, re.DOTALL)
    return set(re.findall(r"(?:^|, )((?:spec|metadata)[^\s:]*): ", denied[1])) if denied else None
