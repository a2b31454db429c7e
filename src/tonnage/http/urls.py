"""Addresses as messages and files may hold them: without passwords, tokens and signatures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

VARIABLE: Final = re.compile(r"\$\{(\w+)\}")  # refers to a secret, and is none
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>\\]+")
_USER: Final = re.compile(r"^([^:]+://)([^/?#]*)@")  # greedy: a password may hold an `@`
CONTAINED: Final = ("az://", "abfs://", "abfss://", "wasb://", "wasbs://")  # CONTAINER@ACCOUNT: no user's name
_SIGNED: Final = re.compile(
    r"([?&#;](?:[^=&#;\s]*(?:signature|token|secret|password|passwd|pwd|credential|api[-_]?key|access[-_]?key)[^=&#;\s]*"
    r"|sig|key|auth|code)=)([^&#;\s]*)",
    re.IGNORECASE,
)


def is_url(location: str) -> bool:
    """Whether `location` is read over http or https."""
    return location.startswith(("http://", "https://"))


def without_secrets(text: str) -> str:
    """A text with the secrets of every URL in it replaced: passwords, tokens, and what signs a query.

    >>> without_secrets("read https://me:pw@host/a?versionId=3&X-Amz-Signature=ab12&sig=x%2F= now")
    'read https://me:***@host/a?versionId=3&X-Amz-Signature=***&sig=*** now'
    >>> without_secrets("https://ghp_token@host/rows.csv")
    'https://***@host/rows.csv'
    >>> without_secrets("https://host/rows.csv?sig=${TONNAGE_SECRET_1}")
    'https://host/rows.csv?sig=${TONNAGE_SECRET_1}'
    >>> without_secrets("az://runs@account.blob.core.windows.net/a?sig=x")
    'az://runs@account.blob.core.windows.net/a?sig=***'
    """
    return replace_secrets(text, lambda said: said if VARIABLE.fullmatch(said) else "***") if "://" in text else text


def replace_secrets(text: str, give: Callable[[str], str]) -> str:
    """A text with each secret in a URL replaced by what `give` says of it."""

    def user(found: re.Match[str]) -> str:
        name, colon, password = found[2].partition(":")
        if found[1].lower() in CONTAINED and not colon:
            return found[0]
        return f"{found[1]}{name}:{give(password)}@" if colon else f"{found[1]}{give(found[2])}@"

    def url(found: re.Match[str]) -> str:
        return _SIGNED.sub(lambda part: f"{part[1]}{give(part[2])}", _USER.sub(user, found[0], count=1))

    return _URL.sub(url, text)
