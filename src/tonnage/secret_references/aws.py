"""Secrets of AWS: Secrets Manager's GetSecretValue, and GetParameter of Systems Manager, by boto3's own sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.secret_references.forms import SecretReference

ATTEMPTS: Final = 3
TIMEOUT_S: Final = 10.0
_ABSENT: Final = frozenset({"ResourceNotFoundException", "ParameterNotFound", "ParameterVersionNotFound"})
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "DecryptionFailure", "InvalidKeyId"})
_UNKNOWN_CALLER: Final = frozenset({
    "UnrecognizedClientException", "InvalidClientTokenId", "ExpiredTokenException", "ExpiredToken",
    "InvalidSignatureException", "MissingAuthenticationToken",
})  # fmt: skip


def read_secret(asked: SecretReference, environment: Mapping[str, str]) -> str:
    """The current version of a secret, by its name or ARN. InputError, MissingExtra, TonnageError."""
    answer = _call(asked, environment, "secretsmanager", "get_secret_value", SecretId=asked.name)
    if "SecretString" in answer:
        return str(answer["SecretString"])
    try:
        return bytes(answer["SecretBinary"]).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{asked}: the secret is binary, not text", hint="store it as SecretString") from None


def read_parameter(asked: SecretReference, environment: Mapping[str, str]) -> str:
    """A parameter, decrypted where it is a SecureString. InputError, MissingExtra, TonnageError."""
    return str(
        _call(asked, environment, "ssm", "get_parameter", Name=asked.name, WithDecryption=True)["Parameter"]["Value"]
    )


def _call(asked: SecretReference, environment: Mapping[str, str], service: str, operation: str, **body: Any) -> Any:
    try:
        session, config = import_module("boto3.session"), import_module("botocore.config")
        exceptions = import_module("botocore.exceptions")
    except ImportError as error:
        raise MissingExtra(f"reading {asked}", "fetch") from error
    parts = asked.name.split(":")
    region = parts[3] if parts[0] == "arn" and len(parts) > 3 else environment.get("AWS_REGION") or None
    try:
        client = session.Session(region_name=region).client(
            service,
            config=config.Config(
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S,
            ),
        )  # fmt: skip
        return getattr(client, operation)(**body)
    except exceptions.ClientError as error:
        raise _worded(asked, service, operation, error) from error
    except exceptions.NoRegionError as error:
        raise InputError(f"{asked}: no AWS region is set", hint="export AWS_REGION=us-east-1") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound,
            exceptions.TokenRetrievalError, exceptions.SSOError) as error:  # fmt: skip
        raise InputError(f"{asked}: no sign-in to AWS: {error}", hint="`aws sso login`, or AWS_PROFILE") from error
    except exceptions.ParamValidationError as error:
        raise InputError(f"{asked}: {error}", hint="correct the name") from error
    except (exceptions.BotoCoreError, OSError) as error:
        raise TonnageError(
            f"{asked}: AWS does not answer after {ATTEMPTS} tries: {error}", hint="can this machine reach the service?"
        ) from error


def _worded(asked: SecretReference, service: str, operation: str, error: Any) -> TonnageError:
    fault = error.response.get("Error", {})
    code, said = str(fault.get("Code", "")), str(fault.get("Message", ""))
    if code in _ABSENT:
        listed = "secretsmanager list-secrets" if service == "secretsmanager" else "ssm describe-parameters"
        return InputError(f"{asked}: there is no such secret", hint=f"`aws {listed}` lists those of the region")
    if code in _DENIED:
        right = "secretsmanager:GetSecretValue" if service == "secretsmanager" else "ssm:GetParameter"
        hint = f"allow {right} (and kms:Decrypt for a key of your own) to `aws sts get-caller-identity`"
        return InputError(f"{asked}: no permission: {said}", hint=hint)
    if code in _UNKNOWN_CALLER:
        return InputError(f"{asked}: AWS refuses the sign-in: {said}", hint="`aws sso login`, or new credentials")
    return TonnageError(f"{asked}: {service} {operation}: {code}: {said}", hint="`aws sts get-caller-identity`")
