"""The secret that a reference names, read from its store, and the variables that one secret holds. No message holds a
secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, MissingExtra, TonnageError, did_you_mean, nearest
from tonnage.secret_references.forms import SecretReference, parse_reference

Read = Callable[[SecretReference, Mapping[str, str]], str]
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FORMS: Final = '{"HF_TOKEN": "..."}, or a line HF_TOKEN=... for each'


def read_reference(reference: str, environment: Mapping[str, str], what: str) -> str:
    """The secret that a reference names; `what` is the key or option that holds the reference, for messages.

    Raises InputError where it is no reference, or the secret is not there, is empty or may not be read; MissingExtra
    without the store's library; TonnageError where the store does not answer.
    """
    try:
        asked = parse_reference(reference)
        found = _picked(_READERS[asked.scheme](asked, environment), asked).strip()
        if not found:
            raise InputError(f"{asked} is empty", hint=_EMPTY.get(asked.scheme, "store the secret under this name"))
    except MissingExtra:
        raise
    except InputError as error:
        raise InputError(f"{what}: {error.message}", hint=error.hint) from error
    except TonnageError as error:
        raise TonnageError(f"{what}: {error.message}", hint=error.hint) from error
    return found


def member_of(values: Mapping[str, object], key: str, asked: SecretReference) -> str:
    """A value of a secret that is an object. InputError names like keys, and never a value."""
    if key not in values:
        raise InputError(
            f"{asked}: the secret has no key '{key}'",
            hint=did_you_mean(nearest(key, values, count=2), f"it has {len(values)} keys"),
        )
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{asked}: what stands under '{key}' is no text", hint="store it as a text")
    return str(value)


def _picked(text: str, asked: SecretReference) -> str:
    if asked.key is None or asked.scheme == "vault":
        return text
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise InputError(
            f"{asked}: the secret is no JSON object", hint=f"leave out #{asked.key} to take the whole secret"
        )
    return member_of(values, asked.key, asked)


def _env(asked: SecretReference, environment: Mapping[str, str]) -> str:
    found = environment.get(asked.name, "")
    if not found.strip():
        raise InputError(f"{asked} is empty", hint=f"export {asked.name}=...")
    return found


def _file(asked: SecretReference, environment: Mapping[str, str]) -> str:  # noqa: ARG001
    try:
        found = Path(asked.name).read_text("utf-8")
    except OSError as error:
        raise InputError(f"{asked.name} cannot be read: {error.strerror}", hint="check the path") from error
    except UnicodeDecodeError:
        raise InputError(f"{asked.name} is not UTF-8 text", hint="a secret is text") from None
    if not found.strip():
        raise InputError(f"{asked} is empty", hint=f"write it to {asked.name}")
    return found


def _keyring(asked: SecretReference, environment: Mapping[str, str]) -> str:  # noqa: ARG001
    try:
        keyring, wrong = import_module("keyring"), import_module("keyring.errors")
    except ImportError as error:
        raise MissingExtra(f"reading {asked}", "keyring") from error
    service, _, name = asked.name.rpartition("/")
    try:
        found: str | None = keyring.get_password(service, name)
    except wrong.NoKeyringError as error:
        raise InputError(
            f"{asked}: there is no keyring here", hint="`keyring --list-backends`; a server has env: or file:"
        ) from error
    except wrong.KeyringLocked as error:
        raise InputError(f"{asked}: the keyring is locked", hint="unlock it, then the same command") from error
    except wrong.KeyringError as error:
        raise TonnageError(f"{asked}: the keyring failed: {error}", hint="`keyring diagnose`") from error
    if found is None:
        raise InputError(f"{asked}: there is no such secret", hint=f"`keyring set {service} {name}`")
    return found


def _aws(asked: SecretReference, environment: Mapping[str, str]) -> str:
    from tonnage.secret_references.aws import read_secret

    return read_secret(asked, environment)


def _aws_ssm(asked: SecretReference, environment: Mapping[str, str]) -> str:
    from tonnage.secret_references.aws import read_parameter

    return read_parameter(asked, environment)


def _gcp(asked: SecretReference, environment: Mapping[str, str]) -> str:
    from tonnage.secret_references.google import read_secret

    return read_secret(asked, environment)


def _azure(asked: SecretReference, environment: Mapping[str, str]) -> str:
    from tonnage.secret_references.azure import read_secret

    return read_secret(asked, environment)


def _vault(asked: SecretReference, environment: Mapping[str, str]) -> str:
    from tonnage.secret_references.vault import read_secret

    return read_secret(asked, environment)


_EMPTY: Final = {"keyring": "`keyring set` stores one", "vault": "`vault kv put` stores one"}
_READERS: Final[dict[str, Read]] = {
    "env": _env,
    "file": _file,
    "keyring": _keyring,
    "aws": _aws,
    "aws-ssm": _aws_ssm,
    "gcp": _gcp,
    "azure": _azure,
    "vault": _vault,
}


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
