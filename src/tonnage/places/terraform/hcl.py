"""Terraform's language, written from values: blocks, attributes, expressions. Pure.

The text is laid out as `terraform fmt` lays it out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.values import dataclass

WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Expression:
    """Text of Terraform's own: a reference, a call."""

    text: str


@dataclass(frozen=True, slots=True)
class HCLText:
    """A value that Terraform writes as JSON: a policy."""

    value: Any


class Block:
    """`kind "label" ... { attributes, then blocks }`.

    >>> print(Block("output", "a", value=Expression("aws_vpc.runs.id")).text())
    output "a" {
      value = aws_vpc.runs.id
    }
    """

    def __init__(self, kind: str, *labels: str, inside: Sequence[Block] = (), **attributes: Any) -> None:
        self.kind, self.labels, self.inside, self.attributes = kind, labels, tuple(inside), attributes

    @property
    def address(self) -> str:
        """What other blocks call a resource or a source of data: `aws_vpc.runs`, `data.aws_caller_identity.here`."""
        return ".".join([*(["data"] if self.kind == "data" else []), *self.labels])

    def text(self, indent: int = 0) -> str:
        """The block in Terraform's language."""
        lines = list(_attributes(self.attributes, indent + 2))
        for one in self.inside:
            lines += [""] if lines else []
            lines.append(one.text(indent + 2))
        space = " " * indent
        head = " ".join([self.kind, *(json.dumps(label) for label in self.labels)])
        body = "\n".join(lines)
        return f"{space}{head} {{\n{body}\n{space}}}" if lines else f"{space}{head} {{}}"


def text_of(blocks: Sequence[Block], *, comment: str) -> str:
    """A file of them, with a comment at its top."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "\n" + "\n\n".join(one.text() for one in blocks) + "\n"


def _attributes(values: Mapping[str, Any], indent: int) -> Iterator[str]:
    """Names of neighbours on one line each are padded to the longest; a value of several lines ends them."""
    written = [(_name(name), _value(value, indent)) for name, value in values.items()]
    at = 0
    while at < len(written):
        end = at
        while end < len(written) and "\n" not in written[end][1]:
            end += 1
        some = written[at:end] or [written[at]]
        width = max(len(name) for name, _ in some)
        for name, value in some:
            yield f"{' ' * indent}{name:<{width}} = {value}"
        at += len(some)


def _name(name: str) -> str:
    return name if WORD.fullmatch(name) else json.dumps(name)


def _value(value: Any, indent: int) -> str:
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, HCLText):
        return f"jsonencode({_value(value.value, indent)})"
    if isinstance(value, Mapping):
        inner = "\n".join(_attributes(value, indent + 2))
        return f"{{\n{inner}\n{' ' * indent}}}" if value else "{}"
    if isinstance(value, list | tuple):
        if not any(isinstance(one, Mapping) for one in value):
            line = ", ".join(_value(one, indent) for one in value)
            if len(line) + indent < 100:
                return f"[{line}]"
        lines = "".join(f"{' ' * (indent + 2)}{_value(one, indent + 2)},\n" for one in value)
        return f"[\n{lines}{' ' * indent}]"
    return json.dumps(value, ensure_ascii=False)
