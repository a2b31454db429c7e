"""What the OpenAPI document says of an address: its parameters, its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.web.asked import Resource
from tonnage.web.resources import RESOURCES
from tonnage.web.verbs import LIMITS, MOST_LIMIT, VERBS, WHOLE, PostVerb
from tonnage.web.whatif import SLIDERS

MOST_LISTED: Final = 10_000
_WORKLOAD: Final[Mapping[str, Any]] = {
    "description": "A mapping as in a workload file, or the text of one (docs/workload-file.md lists the keys).",
    "anyOf": [{"type": "object"}, {"type": "string", "minLength": 1}],
}
_NAME: Final[Mapping[str, Any]] = {"type": "string", "description": "What errors call the text of `workload`."}
_CONSTRAINTS: Final[Mapping[str, Any]] = {
    "type": "object", "description": "They replace the workload's own, as in a workload file.",
}  # fmt: skip
_TOP: Final[Mapping[str, Any]] = {"type": "integer", "minimum": 1, "maximum": 10_000}
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_PATH_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": dict(_TEXT)}
_RANK: Final[Mapping[str, Any]] = {"type": "string", "enum": ["cost", "time", "pareto"]}
_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "plan": {"constraints": _CONSTRAINTS, "rank": _RANK, "top": _TOP, "layout": _TEXT},
    "explain": {"constraints": _CONSTRAINTS, "rank": _RANK, "top": _TOP, "layout": _TEXT, "option": _TEXT},
    "size": {"gpus": _TEXT, "layout": _TEXT, "top": _TOP},
    "gains": {"constraints": _CONSTRAINTS},
}
_RESUME: Final[Mapping[str, Any]] = {
    name: {"type": "integer" if name in WHOLE else "number", "minimum": 0, "maximum": MOST_LIMIT} for name in LIMITS
}


def describe(document: dict[str, Any], below: str) -> None:
    """Put what each address takes into an OpenAPI document, over what the framework says of functions."""
    paths = document["paths"]
    for resource in RESOURCES:
        paths[f"{below}/{resource.path or 'home'}"]["get"]["parameters"] = _parameters(resource)
    for verb in VERBS:
        asked = paths[f"{below}/{verb.path}"]["post"]
        asked["parameters"] = [_PATH_NAME] if "{name}" in verb.path else []
        asked["requestBody"] = _body(verb)


def _parameters(resource: Resource) -> list[dict[str, Any]]:
    """The query of an address; each moved slider is one too."""
    named = dict.fromkeys(resource.parameters, _TEXT)
    if resource.sliders:
        named |= {one.name: {"type": "number", "minimum": one.least, "maximum": one.most} for one in SLIDERS}
    cut = {"limit": {"type": "integer", "minimum": 0, "maximum": MOST_LISTED}}
    named |= {**cut, "offset": cut["limit"]}
    path = [_PATH_NAME] if "{name}" in resource.path else []
    return path + [
        {"name": name, "in": "query", "required": False, "schema": dict(schema)} for name, schema in named.items()
    ]


def _body(verb: PostVerb) -> dict[str, Any]:
    """What a POST takes."""
    if verb.name in _BODIES:
        properties = {"workload": _WORKLOAD, "name": _NAME, **_BODIES[verb.name]}
        schema = _object(properties, required=["workload"])
    else:
        schema = _object(_RESUME if verb.name == "resume" else {}, required=[])
    return {"required": verb.name in _BODIES, "content": {"application/json": {"schema": schema}}}


def _object(properties: Mapping[str, Any], *, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}
