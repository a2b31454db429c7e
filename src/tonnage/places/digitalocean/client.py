"""Requests to DigitalOcean's API v2, signed with the token that its own tools use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.api_client import GOES_ON, ApiClient, APIRefusal

if TYPE_CHECKING:
    import httpx

API: Final = "https://api.digitalocean.com"
TOKENS: Final = ("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN")
PER_PAGE: Final = 200
SIGN_IN: Final = f"a token of cloud.digitalocean.com/account/api/tokens in {TOKENS[0]}"


class DigitalOceanError(APIRefusal):
    """What the API refused."""


class DigitalOceanClient(ApiClient):
    """Signed by `DIGITALOCEAN_ACCESS_TOKEN` or `DIGITALOCEAN_TOKEN`; `DIGITALOCEAN_API_URL` is doctl's variable too."""

    def address(self, path: str) -> str:
        """The whole address of a path such as `droplets/1`."""
        return f"{(os.environ.get('DIGITALOCEAN_API_URL') or API).rstrip('/')}/v2/{path}"

    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        token = next((found for name in TOKENS if (found := os.environ.get(name))), None)
        if token is None:
            raise InputError(f"DigitalOcean: {' and '.join(TOKENS)} are not set", hint=SIGN_IN)
        return {**(headers or {}), "Authorization": f"Bearer {token}"}

    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:  # noqa: ARG002 - one host
        try:
            error: dict[str, Any] = answer.json()
        except ValueError:
            error = {}
        said = f"DigitalOcean: {error.get('message') or answer.text[:200]}"
        if answer.status_code == 401:
            return InputError(f"{said}: the token is refused or has expired", hint=SIGN_IN)
        hint = "the token needs more scopes: docs/places.md lists them" if answer.status_code == 403 else GOES_ON
        return DigitalOceanError(answer.status_code, str(error.get("id") or ""), said, hint=hint)

    def listed(self, path: str, member: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Every one of a list, page by page."""
        page = 1
        while True:
            answer = self.call("GET", self.address(path), params={**params, "per_page": PER_PAGE, "page": page})
            yield from answer.get(member) or ()
            if not ((answer.get("links") or {}).get("pages") or {}).get("next"):
                return
            page += 1
