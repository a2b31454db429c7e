"""What a gateway file says of signing in."""

from __future__ import annotations

from typing import Literal

from tonnage.values import dataclass

SignInKind = Literal["bearer", "x-api-key", "api-key", "aws", "google", "azure", "databricks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """`key`: a reference (docs/secrets.md), never the key itself."""

    kind: SignInKind
    key: str | None = None
    profile: str | None = None
    region: str | None = None
    service: str | None = None
    scope: str | None = None
