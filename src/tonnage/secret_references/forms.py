"""What a reference to a secret looks like: one table of schemes for every file, option and variable that takes one."""

from __future__ import annotations

import re
from typing import Final

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass

SUCH_AS: Final = "a reference such as env:NAME (docs/secrets.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """`form`: as a person writes it; `pattern`: of what follows the colon; `store`: where the secret is kept;
    `remote`: whether reading it may take seconds."""

    form: str
    pattern: str
    store: str
    remote: bool = True


# Names as the stores allow them: AWS CreateSecret and PutParameter, Google Secret Manager v1, Azure Key Vault 7.4.
SCHEMES: Final[dict[str, Scheme]] = {
    "env": Scheme(form="env:NAME", pattern=r".+", store="a variable", remote=False),
    "file": Scheme(form="file:PATH", pattern=r".+", store="a file", remote=False),
    "keyring": Scheme(
        form="keyring:SERVICE/NAME", pattern=r".+/[^/]+", store="the keyring of this computer's user"
    ),
    "aws": Scheme(
        form="aws:SECRET_ID[#JSON_KEY]", pattern=r"[A-Za-z0-9/_+=.@:!-]+(#.+)?", store="AWS Secrets Manager"
    ),
    "aws-ssm": Scheme(
        form="aws-ssm:NAME[#JSON_KEY]", pattern=r"[A-Za-z0-9/_.:-]+(#.+)?",
        store="AWS Systems Manager's Parameter Store",
    ),
    "gcp": Scheme(
        form="gcp:projects/PROJECT/secrets/SECRET[/versions/VERSION][#JSON_KEY]",
        pattern=r"projects/[^/\s#?]+/secrets/[\w-]+(/versions/[\w-]+)?(#.+)?", store="Google Secret Manager",
    ),
    "azure": Scheme(
        form="azure:VAULT/NAME[/VERSION][#JSON_KEY]",
        pattern=r"[A-Za-z0-9-]{3,24}/[A-Za-z0-9-]{1,127}(/[0-9a-f]{32})?(#.+)?", store="Azure Key Vault",
    ),
    "vault": Scheme(
        form="vault:MOUNT/PATH#KEY", pattern=r"[^/\s#?]+/[^\s#?]+#.+",
        store="HashiCorp Vault, key-value engine version 2"
    ),
}  # fmt: skip
_KEYED: Final = frozenset({"aws", "aws-ssm", "gcp", "azure", "vault"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """`name`: of the secret in its store; `key`: a member of a secret that is a JSON object, None for the whole."""

    scheme: str
    name: str
    key: str | None = None

    @property
    def remote(self) -> bool:
        """Whether reading it may take seconds."""
        return SCHEMES[self.scheme].remote

    def __str__(self) -> str:
        return f"{self.scheme}:{self.name}" + (f"#{self.key}" if self.key is not None else "")


def shown_forms() -> str:
    """Every form, in a row.

    >>> shown_forms()[:30]
    'env:NAME, file:PATH, keyring:S'
    """
    return ", ".join(one.form for one in SCHEMES.values())


def is_reference(text: str) -> bool:
    """Whether a text begins as a reference does; what follows may still be wrong.

    >>> is_reference("vault:secret/app"), is_reference("https://a.example")
    (True, False)
    """
    scheme, colon, rest = text.partition(":")
    return bool(colon and rest) and scheme in SCHEMES


def parse_reference(text: str) -> SecretReference:
    """A reference in its parts. InputError where it is not one; then the text, which may be a secret, is not shown.

    >>> parse_reference("aws:app/keys#token")
    SecretReference(scheme='aws', name='app/keys', key='token')
    """
    scheme, colon, rest = text.partition(":")
    if scheme not in SCHEMES:
        word = scheme.strip() if colon and re.fullmatch(r"\s*[A-Za-z][A-Za-z0-9-]{0,15}\s*", scheme) else ""
        near = tuple(f"{one}:" for one in nearest(word, SCHEMES, count=2)) if word else ()
        raise InputError(
            f"expected a reference to a secret: {shown_forms()}",
            hint=did_you_mean(near, "name where the secret is kept, never the secret itself: docs/secrets.md"),
        )
    if re.fullmatch(SCHEMES[scheme].pattern, rest) is None:
        raise InputError(
            f"expected {SCHEMES[scheme].form} after '{scheme}:'", hint="docs/secrets.md shows each form with an example"
        )
    if scheme not in _KEYED:
        return SecretReference(scheme=scheme, name=rest)
    name, hash_, key = rest.partition("#")
    return SecretReference(scheme=scheme, name=name, key=key if hash_ else None)
