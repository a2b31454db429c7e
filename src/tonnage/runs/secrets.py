"""Secrets of a run: taken out of what is written down, handed on by the environment, and masked in messages.

A password or signature in a URL of the workload file becomes `${TONNAGE_SECRET_1}` in the specification; its value goes
to the supervisor and its workers in that variable. Resumed from another shell, it is read from the file again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.urls import VARIABLE, replace_secrets, without_secrets
from tonnage.runs.spec import DataSource, RunSpec

SECRETS: Final = (  # variables whose values are never written down
    "HF_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "TONNAGE_DATABASE_URL", "MLFLOW_TRACKING_URI",
    "TONNAGE_NOTIFY_URL", "TONNAGE_NOTIFY_MAIL",
)  # fmt: skip
PREFIX: Final = "TONNAGE_SECRET_"
MASKED: Final = "TONNAGE_MASKED"  # variable: the names of further variables whose values are never said
_SHORTEST: Final = 6  # a shorter value is masked in URLs only: it would be found in ordinary words


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """The same, and the values of secret variables wherever they are."""
    known = os.environ if environ is None else environ
    for value in secret_values(known):
        text = text.replace(value, "***")
    return without_secrets(text)


def mask_values(environ: MutableMapping[str, str], names: Iterable[str]) -> None:
    """Say the values of these variables nowhere from now on, in this process and those that it starts."""
    known = [one for one in environ.get(MASKED, "").split(",") if one]
    more = [one for one in names if one not in SECRETS and not one.startswith(PREFIX) and one not in known]
    if more:
        environ[MASKED] = ",".join((*known, *more))


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What must not be said, the longest first: values of secret variables, and the secrets in URLs among them."""
    found: set[str] = set()
    more = environ.get(MASKED, "").split(",")
    for name, value in environ.items():
        if name in SECRETS or name.startswith(PREFIX) or name in more:
            parts: list[str] = []
            replace_secrets(value, parts.append)  # type: ignore[arg-type]
            found.update(parts)
            if "://" not in value or name == "TONNAGE_NOTIFY_URL":  # chat services have the secret in the path
                found.add(value)
    return tuple(sorted((one for one in found if len(one) >= _SHORTEST), key=len, reverse=True))


def hide_secrets(spec: RunSpec) -> tuple[RunSpec, dict[str, str]]:
    """The specification with variables in place of secrets, and what they stand for."""
    values: dict[str, str] = {}

    def name_of(secret: str) -> str:
        if not secret or VARIABLE.fullmatch(secret):
            return secret
        name = next((known for known, value in values.items() if value == secret), f"{PREFIX}{len(values) + 1}")
        values[name] = secret
        return f"${{{name}}}"

    def hidden(text: str) -> str:
        return replace_secrets(text, name_of)

    def source(given: DataSource | None) -> DataSource | None:
        if given is None or given.format == "sql":  # the file takes no password in a database's URL
            return given
        return replace(given, location=hidden(given.location), more=tuple(hidden(one) for one in given.more))

    data, tracking = spec.data, spec.tracking
    train = source(data.train)
    assert train is not None
    made = replace(
        spec,
        data=replace(data, train=train, validation=source(data.validation), test=source(data.test)),
        tracking=replace(tracking, uri=None if tracking.uri is None else hidden(tracking.uri)),
    )
    return made, values


def named_secrets(spec: RunSpec) -> tuple[str, ...]:
    """The variables that a specification names, in their order."""
    sources = (one for one in (spec.data.train, spec.data.validation, spec.data.test) if one is not None)
    texts = [*(text for one in sources for text in (one.location, *one.more)), spec.tracking.uri or ""]
    return tuple(dict.fromkeys(name for text in texts for name in VARIABLE.findall(text)))


def recall_secrets(spec: RunSpec) -> None:
    """Set the variables of `hide_secrets` that this process does not have, from the run's workload file."""
    missing = [name for name in named_secrets(spec) if name.startswith(PREFIX) and name not in os.environ]
    if not missing or spec.workload_file is None or not Path(spec.workload_file).is_file():
        return
    from tonnage.runs.reading import load_run_spec

    try:
        _, values = hide_secrets(load_run_spec(Path(spec.workload_file)))
    except TonnageError:  # the file has changed: the code that needs the variable reports it as missing
        return
    os.environ.update({name: values[name] for name in missing if name in values})


def fill_secrets(text: str, *, error: type[InputError] = InputError) -> str:
    """A text with each `${NAME}` taken from the environment."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            hint = f"set it before the run: export {match[1]}=..."
            raise error(f"the environment has no variable {match[1]}, which `{without_secrets(text)}` names", hint=hint)
        return os.environ[match[1]]

    return VARIABLE.sub(value, text)
