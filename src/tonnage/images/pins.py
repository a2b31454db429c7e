"""Versions that are known to work together, from the packages of this environment: pip's constraints of an image."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import Final

OWN: Final = "tonnage"
_RUNS: Final = re.compile(r"[-_.]+")


def normal_name(name: str) -> str:
    """A package's name as indexes compare it: PEP 503.

    >>> normal_name("Typing_Extensions")
    'typing-extensions'
    """
    return _RUNS.sub("-", name).casefold()


def installed_pins(found: Iterable[Distribution] | None = None, swapped: Iterable[tuple[str, str]] = ()) -> str:
    """A constraints file of what is installed here, by name.

    A constraint holds for a package that is asked for, and asks for none. Builds of one device («2.13.0+cpu») are named
    without it, so that the image gets its own; what was installed from a folder or a file is left out.
    `swapped`: (a package, the one that takes its place at the same version).
    """
    pins: dict[str, str] = {}
    for one in distributions() if found is None else found:
        name, version = one.metadata["Name"], one.version
        if name is None or normal_name(name) == OWN or one.read_text("direct_url.json") is not None:
            continue
        pins.setdefault(normal_name(name), version.partition("+")[0])
    pins |= {into: pins[out] for out, into in swapped if out in pins}
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
