"""`oidc.toml`: the issuer that signs people in, and which of its claims give which role."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.errors import InputError
from tonnage.web.keys import Role

HINT: Final = "docs/ui.md shows such a file"
HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_Text = Annotated[str, Field(min_length=1, max_length=500)]


class Grant(BaseModel):
    """Who has this value in that claim (a text or a list) gets the role, in these projects or in all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    claim: _Text
    value: _Text
    role: Role
    projects: Annotated[tuple[_Text, ...] | None, Field(strict=False, min_length=1)] = None

    def holds(self, claims: dict[str, Any]) -> bool:
        """Whether the claims have it."""
        found = claims.get(self.claim)
        return self.value == found or (isinstance(found, list) and self.value in found)


class OidcFile(BaseModel):
    """`client_secret` is a reference (docs/secrets.md); without one the client is public. `url`: where browsers
    reach the page; the issuer must know `url`/login/oidc/callback. The first grant that holds decides."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    issuer: _Text
    client_id: _Text
    client_secret: _Text | None = None
    url: _Text
    scopes: Annotated[tuple[_Text, ...], Field(strict=False)] = ("openid", "email", "profile")
    name_claim: _Text = "email"
    grants: Annotated[tuple[Grant, ...], Field(strict=False, min_length=1)]


def read_oidc_file(path: Path) -> OidcFile:
    """The file, checked. Raises InputError that names the key of what is wrong."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        found = OidcFile.model_validate(values)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint=HINT) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {key}: {first['msg']}", hint=HINT) from error
    for key in ("issuer", "url"):
        _check_address(path, key, getattr(found, key))
    if "openid" not in found.scopes:
        raise InputError(f"{path}: scopes: 'openid' is missing", hint=HINT)
    return found


def _check_address(path: Path, key: str, text: str) -> None:
    """https, or http at this machine alone: tokens and codes pass there."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{path}: {key}: '{text}' is not an address", hint="https://...")
    if parts.scheme == "http" and parts.hostname not in HERE:
        raise InputError(f"{path}: {key}: others could read along at {text}", hint="https://...")
