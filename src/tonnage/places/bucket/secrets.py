"""`secret` of a place: a reference, spelled as all are, to variables that the run's machine reads itself."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.errors import InputError
from tonnage.secret_references import SecretReference, is_reference, parse_reference
from tonnage.secret_references.forms import SCHEMES


def checked_secret(text: str, schemes: Sequence[str]) -> str:
    """A reference of one of these schemes. ValueError, which does not show the text: it may be the secret itself."""
    forms = ", ".join(SCHEMES[one].form for one in schemes)
    if not is_reference(text):
        raise ValueError(f"names where the secret is kept: {forms}; never the secret itself (docs/secrets.md)")
    try:
        asked = parse_reference(text)
    except InputError as error:
        raise ValueError(f"{error.message}; {forms} (docs/secrets.md)") from None
    if asked.scheme not in schemes:
        raise ValueError(f"machines of this place read no secret of the form {SCHEMES[asked.scheme].form}: {forms}")
    return text


def secret_of(text: str | None) -> SecretReference | None:
    """The reference in its parts; None where a place names none."""
    return None if text is None else parse_reference(text)


def storing(asked: SecretReference) -> str | None:
    """The command that stores variables, from keys.json, where a reference names them; None where there is none.

    >>> storing(parse_reference("azure:my-vault/keys"))
    'az keyvault secret set --vault-name my-vault --name keys --file keys.json'
    """
    if asked.scheme == "aws":
        return f"aws secretsmanager create-secret --name {asked.name} --secret-string file://keys.json"
    if asked.scheme == "aws-ssm":
        return f"aws ssm put-parameter --name {aws_parameter(asked)[-1]} --type SecureString --value file://keys.json"
    if asked.scheme == "gcp":
        _, project, short = google_secret(asked)
        return f"gcloud secrets create {short} --project {project} --data-file=keys.json"
    if asked.scheme == "azure":
        vault, name = azure_secret(asked)
        return f"az keyvault secret set --vault-name {vault} --name {name} --file keys.json"
    return None


def aws_parameter(asked: SecretReference) -> tuple[str, ...]:
    """The names that a parameter of AWS may have, without version or label: an ARN writes `keys` and `/keys` alike.
    The last one is the usual one.

    >>> aws_parameter(parse_reference("aws-ssm:/ml/keys:3"))
    ('/ml/keys',)
    >>> aws_parameter(parse_reference("aws-ssm:arn:aws:ssm:us-east-1:123456789012:parameter/keys"))
    ('/keys', 'keys')
    """
    if not asked.name.startswith("arn:"):
        return (asked.name.partition(":")[0],)
    name = asked.name.partition(":parameter")[2].partition(":")[0]
    return (name,) if name.count("/") > 1 else (name, name.removeprefix("/"))


def google_secret(asked: SecretReference) -> tuple[str, str, str]:
    """A secret of Google without its version: the whole name, the project and the short name.

    >>> google_secret(parse_reference("gcp:projects/ml/secrets/keys/versions/3"))
    ('projects/ml/secrets/keys', 'ml', 'keys')
    """
    name = asked.name.partition("/versions/")[0]
    _, project, _, short = name.split("/")
    return name, project, short


def azure_secret(asked: SecretReference) -> tuple[str, str]:
    """The vault and the name of a secret of Azure, without its version.

    >>> azure_secret(parse_reference("azure:my-vault/keys"))
    ('my-vault', 'keys')
    """
    vault, name = asked.name.split("/")[:2]
    return vault, name
