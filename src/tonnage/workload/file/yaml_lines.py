"""YAML text → plain values, with the line of every key. A small, safe subset of YAML 1.2, read in one pass.

Scalars follow the YAML 1.2 core schema: `true` / `false`, numbers (also `67_000` and `1e6`), `null` or
nothing. All else is text, so dates, `12:30` and `no` stay as written. Refused with their line: repeated keys,
aliases, tags, a second document, deep nesting and very long files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from tonnage.errors import WorkloadError
from tonnage.values import dataclass

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
KeyPath = tuple[str | int, ...]

MAX_DEPTH: Final = 12
MAX_VALUES: Final = 20_000
LONGEST_KEY: Final = 200

_INTEGER: Final = re.compile(r"[-+]?\d[\d_]{0,39}", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\d[\d_]{0,39}\.?\d{0,40}|\.\d{1,40})(?:[eE][-+]?\d{1,4})?", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SPECIAL: Final = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """What a text or a mapping says; of a text, on which line (from 1) each key or list entry is."""

    value: Value
    lines: Mapping[KeyPath, int | None]
    file: str | None


def read_yaml(text: str, *, file: str | None = None) -> YamlDocument:
    """The one document in `text`. WorkloadError, with the line, for whatever is not plain YAML."""
    try:
        return _EventReader(file).read(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = (error.problem or error.context or "unknown fault")[:200]
        column = f", column {mark.column + 1}" if mark else ""
        raise WorkloadError(
            f"not valid YAML{column}: {what}",
            hint="check indentation, colons and closing brackets and quotes at and above this line",
            file=file,
            line=mark.line + 1 if mark else None,
        ) from error
    except yaml.YAMLError as error:
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise WorkloadError(
            f"not valid YAML: {getattr(error, 'reason', error)}",
            hint="save the file as plain UTF-8 text",
            file=file,
            line=line,
        ) from error
    except (ValueError, OverflowError) as error:  # PyYAML on an escape outside Unicode, such as "\UFFFFFFFF"
        raise WorkloadError(
            f"not valid YAML: {error}", hint="write the character itself instead of its escape", file=file
        ) from error


class _EventReader:
    """Builds values from parser events, noting lines; each refusal is a WorkloadError."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.events: Iterator[Event] = iter(())
        self.values = 0

    def read(self, events: Iterator[Event]) -> YamlDocument:
        self.events = events
        value: Value = None
        documents = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.refuse(event, "a second YAML document starts here", "one file is one workload")
            elif isinstance(event, NodeEvent):
                value = self.build(event, ())
        return YamlDocument(value, self.lines, self.file)

    def build(self, event: Event, path: KeyPath) -> Value:
        self.lines.setdefault(path, _line(event))
        self.check(event, path)
        if isinstance(event, ScalarEvent):
            return str(event.value) if event.style else _resolve(event.value)
        if isinstance(event, SequenceStartEvent):
            return self.build_list(path)
        return self.build_mapping(path)

    def build_list(self, path: KeyPath) -> list[Value]:
        entries: list[Value] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            entries.append(self.build(event, (*path, len(entries))))
        return entries

    def build_mapping(self, path: KeyPath) -> dict[str, Value]:
        entries: dict[str, Value] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            self.check(event, path)
            if not isinstance(event, ScalarEvent):
                self.refuse(event, "a key must be a word, not a list or mapping", "quote braces and brackets")
            key = str(event.value)
            if len(key) > LONGEST_KEY:
                self.refuse(event, f"found a key of {len(key):,} characters", "a key is one short word")
            here = (*path, key)
            if key in entries:
                self.refuse(
                    event,
                    f"the key is given twice, first on line {self.lines[here]}",
                    "keep one of them",
                    here,
                )
            self.lines[here] = _line(event)
            entries[key] = self.build(next(self.events), here)
        return entries

    def check(self, event: Event, path: KeyPath) -> None:
        self.values += 1
        if isinstance(event, AliasEvent):
            self.refuse(event, f"found the YAML alias '*{str(event.anchor)[:60]}'", "write the value out here", path)
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.refuse(event, f"found the YAML tag '{tag[:60]}'", "remove the tag: plain values only", path)
        if isinstance(event, ScalarEvent) and _SURROGATE.search(event.value):
            self.refuse(event, "found half a character (a lone surrogate)", "write the character itself", path)
        if len(path) > MAX_DEPTH:
            self.refuse(event, f"nested more than {MAX_DEPTH} levels deep", "no workload key lies that deep")
        if self.values > MAX_VALUES:
            self.refuse(event, f"more than {MAX_VALUES:,} values in one file", "shorten the length histogram")

    def refuse(self, event: Event, message: str, hint: str, path: KeyPath = ()) -> NoReturn:
        line = _line(event)
        raise WorkloadError(message, hint=hint, file=self.file, line=line, key=dotted(path) or None)


def _line(event: Event) -> int:
    assert event.start_mark is not None  # the parser marks every event
    return event.start_mark.line + 1


def _resolve(text: str) -> Value:
    folded = text.casefold()
    if folded in ("", "~", "null"):
        return None
    if folded in ("true", "false"):
        return folded == "true"
    if folded in _SPECIAL:
        return _SPECIAL[folded]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def dotted(path: KeyPath) -> str:
    """A key path as people write it.

    >>> dotted(("constraints", "gpus", 0))
    'constraints.gpus[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
