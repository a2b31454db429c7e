"""Secrets of HashiCorp Vault's key-value engine, version 2: GET /v1/MOUNT/data/PATH with a token."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from tonnage.errors import InputError, TonnageError
from tonnage.secret_references.asking import ask, document_of, said_in
from tonnage.secret_references.forms import SecretReference
from tonnage.secret_references.reading import member_of


def read_secret(asked: SecretReference, environment: Mapping[str, str]) -> str:
    """A key of the newest version, by VAULT_ADDR, VAULT_TOKEN and VAULT_NAMESPACE. InputError, TonnageError."""
    root, token = (environment.get(one, "").strip() for one in ("VAULT_ADDR", "VAULT_TOKEN"))
    if urlsplit(root).scheme not in {"http", "https"} or not urlsplit(root).hostname:
        raise InputError(f"{asked}: VAULT_ADDR is not the address of a Vault",
                         hint="export VAULT_ADDR=https://vault.example.org:8200")  # fmt: skip
    if not token or not token.isascii() or not token.isprintable():
        raise InputError(
            f"{asked}: VAULT_TOKEN holds no token", hint="export VAULT_TOKEN=..., as `vault login` gives it"
        )
    headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
    if namespace := environment.get("VAULT_NAMESPACE", "").strip():
        headers["X-Vault-Namespace"] = namespace
    mount, _, path = asked.name.partition("/")
    answer = ask(f"{root.rstrip('/')}/v1/{quote(mount)}/data/{quote(path)}", headers, asked)
    if answer.is_redirect:
        there = urlsplit(answer.headers.get("location", "")).netloc
        raise InputError(f"{asked}: VAULT_ADDR redirects to {there}, and the token is not sent on",
                         hint="set VAULT_ADDR to the active server's address")  # fmt: skip
    if answer.status_code == 403:
        hint = f'a policy of the token needs: path "{mount}/data/{path}" {{ capabilities = ["read"] }}'
        raise InputError(f"{asked}: no permission, or a token that has expired: {said_in(answer)}", hint=hint)
    if answer.status_code == 404:
        hint = f"`vault kv get -mount={mount} {path}`; the first part of the path is the mount, of version 2"
        raise InputError(f"{asked}: there is no such secret, or it is deleted", hint=hint)
    data = document_of(answer, asked).get("data")
    values = data.get("data") if isinstance(data, dict) else None
    if not isinstance(values, dict) or asked.key is None:
        raise TonnageError(f"{asked}: the answer has no values of a key-value engine", hint="is its version 2?")
    return member_of(values, asked.key, asked)
