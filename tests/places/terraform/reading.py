"""What Terraform's blocks name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tonnage.places.terraform.hcl import Block, Expression, HCLText


def references(value: Any) -> Iterator[str]:
    """Every resource and source of data that a value names."""
    if isinstance(value, Block):
        yield from references([value.attributes, *value.inside])
    elif isinstance(value, HCLText):
        yield from references(value.value)
    elif isinstance(value, dict):
        yield from references(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from references(one)
    else:
        text = value.text if isinstance(value, Expression) else "".join(re.findall(r"\$\{([^}]*)\}", str(value)))
        yield from re.findall(r"(?:(?:data\.)?(?:aws|google|azurerm)_\w+|var)\.\w+", text)
