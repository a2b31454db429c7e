"""Requests to the dashboard of a Ray cluster: its Jobs API, packages, nodes.

Source: Ray 2.60, python/ray/dashboard/modules/job/job_head.py and state/state_head.py. Its answers to what it refuses
are Python tracebacks with the status 400 or 500, so what was meant is seen by asking what is there.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.places.ray.place import RayPlace

if TYPE_CHECKING:
    import httpx

TIMEOUT_S: Final = 60.0
TRIES: Final = 5
FIRST_WAIT_S: Final = 0.5
AGAIN: Final = frozenset({429, 502, 503, 504})
FAILED: Final = 500  # what is only asked is asked again: by this it also refuses what is to be made or ended
DENIED: Final = frozenset({401, 403})
TOKEN_FILE: Final = "~/.ray/auth_token"


class RayRefused(TonnageError):
    """What the dashboard refused, with its status and the last line of its words."""

    def __init__(self, status: int, said: str, *, hint: str) -> None:
        super().__init__(said, hint=hint)
        self.status = status


class RayUnreachable(TonnageError):
    """No answer after all tries. Whether a request was carried out is then not known."""


class RayDashboard:
    """One cluster's. Every request here may be sent twice: what it makes has its name."""

    def __init__(
        self, name: str, place: RayPlace, *, tries: int = TRIES, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._name, self._place, self._tries, self._sleep = name, place, tries, sleep

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        token = auth_token(self._place)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        verify = httpx.create_ssl_context() if self._place.ca_file is None else _authority(self._place.ca_file)
        client = httpx.Client(
            base_url=self._place.address, headers=headers, timeout=httpx.Timeout(TIMEOUT_S, connect=10.0), verify=verify
        )
        weakref.finalize(self, client.close)
        return client

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer. RayRefused, RayUnreachable."""
        try:
            return self._ask(method, path, json=body).json()
        except ValueError as error:
            said = f"{self._name}: {self._place.address}{path} is not answered as Ray does"
            raise TonnageError(said, hint=f"places.{self._name}.address: the dashboard's, http://HEAD:8265") from error

    def found(self, path: str) -> Any | None:
        """The answer; None where there is no such thing."""
        try:
            return self.json("GET", path)
        except RayRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def keep_package(self, package: str, content: bytes) -> None:
        """Bring a package to the cluster, where it is not there yet; either way it stays for the next minutes."""
        path = f"/api/packages/gcs/{package}"
        try:
            self._ask("GET", path)
        except RayRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._ask("PUT", path, content=content)

    def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        import httpx

        said = ""
        for number in range(self._tries):
            if number:
                self._sleep(FIRST_WAIT_S * 2 ** (number - 1))
            try:
                answer = self._http.request(method, path, **given)
            except httpx.TransportError as error:
                said = str(error) or type(error).__name__
                continue
            if answer.status_code in AGAIN or (method == "GET" and answer.status_code == FAILED):
                said = f"{answer.status_code} {answer.reason_phrase}"
                continue
            if answer.is_error:
                raise self._refusal(answer)
            return answer
        raise RayUnreachable(
            f"{self._name}: {self._place.address} does not answer: {said}",
            hint=f"`curl {self._place.address}/api/version`; from outside its network through "
            "`ssh -N -L 8265:localhost:8265 HEAD`",
        )

    def _refusal(self, answer: httpx.Response) -> RayRefused:
        if answer.status_code in DENIED:
            said = f"{self._name}: {self._place.address} does not know us: {answer.text.strip()[:200]}"
            hint = f"`ray get-auth-token` on the head, into {TOKEN_FILE} here or the file of places.{self._name}"
            return RayRefused(answer.status_code, said, hint=f"{hint}.token_file")
        lines = [line.strip() for line in answer.text.splitlines() if len(line.strip()) > 1]
        said = f"{self._name}: Ray answers {answer.status_code}: {lines[-1][:500] if lines else 'nothing'}"
        return RayRefused(answer.status_code, said, hint=f"`tonnage places check {self._name}`")


def auth_token(place: RayPlace) -> str | None:
    """The cluster's token, where one is kept; in Ray's own order. InputError where the place's file cannot be read."""
    if place.token_file is not None:
        try:
            return Path(place.token_file).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"{place.token_file}: {error.strerror}", hint="`token_file` in places.toml") from error
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE).expanduser()
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def _authority(file: str) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=str(Path(file).expanduser()))
    except OSError as error:
        raise InputError(f"{file}: {error}", hint="`ca_file` in places.toml: certificates in PEM") from error
