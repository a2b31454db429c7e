"""Variables of a process that one secret holds: a JSON object of them, or a line NAME=VALUE for each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from typing import Final

from tonnage.errors import InputError
from tonnage.secret_references.reading import read_reference

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FORMS: Final = '{"HF_TOKEN": "..."}, or a line HF_TOKEN=... for each'


def read_variables(reference: str, environment: Mapping[str, str], what: str) -> dict[str, str]:
    """The variables of the secret that a reference names; `what` holds the reference, for messages.

    Raises what `read_reference` raises, and InputError where the secret holds no variables. No message has a value.
    """
    return variables_in(read_reference(reference, environment, what), f"{what}: {reference}")


def fill_environment(
    reference: str, environment: MutableMapping[str, str], what: str, *, region: str | None = None
) -> tuple[str, ...]:
    """Set the variables of a secret in an environment: their names. `region`: of AWS, where another one than
    AWS_REGION's."""
    asked = {**environment, **({} if region is None else {"AWS_REGION": region})}
    found = read_variables(reference, asked, what)
    environment.update(found)
    return tuple(found)


def variables_in(text: str, what: str) -> dict[str, str]:
    r"""The variables of a text. Lines that are empty or begin with # are passed over. InputError shows no value.

    >>> variables_in('{"HF_TOKEN": "a", "PORT": 80}', "it")
    {'HF_TOKEN': 'a', 'PORT': '80'}
    >>> variables_in("# of the Hub\nHF_TOKEN=a=b", "it")
    {'HF_TOKEN': 'a=b'}
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = _lines(text, what)
    if not isinstance(found, dict) or not found:
        raise InputError(f"{what}: the secret holds no variables", hint=FORMS)
    for number, (name, value) in enumerate(found.items(), 1):
        if NAME.fullmatch(name) is None:
            raise InputError(f"{what}: name {number} of the secret is no name of a variable", hint=FORMS)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(f"{what}: the value of {name} is no text", hint="store it as a text")
    return {name: str(value) for name, value in found.items()}


def _lines(text: str, what: str) -> dict[str, str]:
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    parts = [line.partition("=") for line in kept]
    if not all(equals for _, equals, _ in parts):
        raise InputError(f"{what}: the secret holds no variables", hint=FORMS)
    return {name.strip(): value for name, _, value in parts}
