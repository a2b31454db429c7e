"""Secrets of a run: taken out of what is written down, handed on by the environment, and masked in what is said.

A password or signature in a URL of the workload file becomes `${TONNAGE_SECRET_1}` in the specification; its value goes
to the supervisor and its workers in that variable. Resumed from another shell, it is read from the file again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, TonnageError
from tonnage.runs.spec import DataSource, RunSpec

SECRETS: Final = (  # variables whose values are never written down
    "HF_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "TONNAGE_DATABASE_URL", "MLFLOW_TRACKING_URI",
    "TONNAGE_NOTIFY_URL", "TONNAGE_NOTIFY_MAIL",
)  # fmt: skip
PREFIX: Final = "TONNAGE_SECRET_"
_SHORTEST: Final = 6  # a shorter value is masked in URLs only: it would be found in ordinary words
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>\\]+")
_USER: Final = re.compile(r"^([^:]+://)([^/?#]*)@")  # greedy: a password may hold an `@`
_SIGNED: Final = re.compile(
    r"([?&#;](?:[^=&#;\s]*(?:signature|token|secret|password|passwd|pwd|credential|api[-_]?key|access[-_]?key)[^=&#;\s]*"
    r"|sig|key|auth|code)=)([^&#;\s]*)",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """A text with the secrets of every URL in it replaced: passwords, tokens, and what signs a query.

    >>> without_secrets("read https://me:pw@host/a?versionId=3&X-Amz-Signature=ab12&sig=x%2F= now")
    'read https://me:***@host/a?versionId=3&X-Amz-Signature=***&sig=*** now'
    >>> without_secrets("https://ghp_token@host/rows.csv")
    'https://***@host/rows.csv'
    >>> without_secrets("https://host/rows.csv?sig=${TONNAGE_SECRET_1}")
    'https://host/rows.csv?sig=${TONNAGE_SECRET_1}'
    """
    return _replaced(text, lambda said: said if _VARIABLE.fullmatch(said) else "***") if "://" in text else text


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """The same, and the values of secret variables wherever they stand."""
    known = os.environ if environ is None else environ
    for value in secret_values(known):
        text = text.replace(value, "***")
    return without_secrets(text)


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What must not be said, the longest first: values of secret variables, and the secrets in URLs among them."""
    found: set[str] = set()
    for name, value in environ.items():
        if name in SECRETS or name.startswith(PREFIX):
            parts: list[str] = []
            _replaced(value, parts.append)  # type: ignore[arg-type]
            found.update(parts)
            if "://" not in value or name == "TONNAGE_NOTIFY_URL":  # chat services have the secret in the path
                found.add(value)
    return tuple(sorted((one for one in found if len(one) >= _SHORTEST), key=len, reverse=True))


def hide_secrets(spec: RunSpec) -> tuple[RunSpec, dict[str, str]]:
    """The specification with variables in place of secrets, and what they stand for."""
    values: dict[str, str] = {}

    def name_of(secret: str) -> str:
        if not secret or _VARIABLE.fullmatch(secret):
            return secret
        name = next((known for known, value in values.items() if value == secret), f"{PREFIX}{len(values) + 1}")
        values[name] = secret
        return f"${{{name}}}"

    def hidden(text: str) -> str:
        return _replaced(text, name_of)

    def source(given: DataSource | None) -> DataSource | None:
        if given is None or given.format == "sql":  # the file's door takes no password in a database's URL
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
    return tuple(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))


def recall_secrets(spec: RunSpec) -> None:
    """Set the variables of `hide_secrets` that this process does not have, from the run's workload file."""
    missing = [name for name in named_secrets(spec) if name.startswith(PREFIX) and name not in os.environ]
    if not missing or spec.workload_file is None or not Path(spec.workload_file).is_file():
        return
    from tonnage.runs.reading import load_run_spec

    try:
        _, values = hide_secrets(load_run_spec(Path(spec.workload_file)))
    except TonnageError:  # the file has changed: whoever needs the variable says that it is missing
        return
    os.environ.update({name: values[name] for name in missing if name in values})


def fill_secrets(text: str, *, error: type[InputError] = InputError) -> str:
    """A text with each `${NAME}` taken from the environment."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            hint = f"set it before the run: export {match[1]}=..."
            raise error(f"the environment has no variable {match[1]}, which `{without_secrets(text)}` names", hint=hint)
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def _replaced(text: str, give: Callable[[str], str]) -> str:
    """A text with each secret in a URL replaced by what `give` says of it."""

    def user(found: re.Match[str]) -> str:
        name, colon, password = found[2].partition(":")
        return f"{found[1]}{name}:{give(password)}@" if colon else f"{found[1]}{give(found[2])}@"

    def url(found: re.Match[str]) -> str:
        return _SIGNED.sub(lambda part: f"{part[1]}{give(part[2])}", _USER.sub(user, found[0], count=1))

    return _URL.sub(url, text)
