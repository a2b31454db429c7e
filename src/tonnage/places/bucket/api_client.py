"""Requests to a cloud's JSON API: signed by a subclass, asked again where that may help, failures in words of ours."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from tonnage.errors import TonnageError
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import RetryPolicy, TemporaryError

if TYPE_CHECKING:
    import httpx

ATTEMPTS: Final = 8
TIMEOUT_S: Final = 60.0
OK: Final = range(200, 300)
ABSENT: Final = 404
GOES_ON: Final = "the same command goes on"


class APIRefusal(TonnageError):
    """What an API refused: the HTTP status, and its own word for the reason."""

    def __init__(self, status: int, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status, self.reason = status, reason


class ApiClient(ABC):
    """Asks again what may pass: throttling, failures, cut connections."""

    def __init__(self, *, attempts: int = ATTEMPTS, sleep: Callable[[float], None] = time.sleep) -> None:
        self._attempts, self._sleep = attempts, sleep

    @abstractmethod
    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """The headers with those that sign the caller in. InputError where nobody can be."""

    @abstractmethod
    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:
        """An error answer, in the API's own words, with the command that mends it where there is one."""

    def call(
        self, method: str, url: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The answer's document. RefusedRequest where the API refuses, TonnageError where it does not answer."""
        answer = self.send(method, url, params=params, json=body)
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def send(self, method: str, url: str, *, accept: tuple[int, ...] = (), **more: Any) -> httpx.Response:
        """The answer. `accept`: further statuses that are one."""

        return self.policy(url).insist(lambda: self.once(method, url, accept=accept, **more), "the request")

    def once(self, method: str, url: str, *, accept: tuple[int, ...] = (), **more: Any) -> httpx.Response:
        """One try. TemporaryError where another may do."""
        with translated(lambda words: TonnageError(f"{url}: {words}", hint=GOES_ON)):
            answer = self._http.request(method, url, headers=self.signed(more.get("headers")), **_rest(more))
        if answer.status_code in accept or answer.status_code in OK:
            return answer
        check_temporary(answer, f"{answer.status_code}")
        raise self.refusal(answer, url)

    def policy(self, url: str) -> RetryPolicy:
        """How often a request is tried again."""

        def give_up(_: str, failures: int, error: TemporaryError) -> TonnageError:
            host = url.split("/")[2]
            message = f"{host} does not answer after {failures} tries: {error}"
            return TonnageError(message, hint=GOES_ON)

        return RetryPolicy(attempts=self._attempts, wait=self._sleep, give_up=give_up)

    def download(self, url: str, path: Path, *, params: Mapping[str, Any], shown: str) -> None:
        """An object into a file, from its beginning after each cut. FileNotFoundError where there is none."""
        policy = self.policy(url)
        while True:
            try:
                self._download(url, path, params, shown)
                return
            except TemporaryError as error:
                policy.failed(error, "the download")

    def _download(self, url: str, path: Path, params: Mapping[str, Any], shown: str) -> None:
        with (
            translated(lambda words: TonnageError(f"{shown}: {words}", hint=GOES_ON)),
            self._http.stream("GET", url, params=params, headers=self.signed(None)) as answer,
        ):
            if answer.status_code == ABSENT:
                raise FileNotFoundError(shown)
            check_temporary(answer, f"{answer.status_code}")
            if answer.status_code not in OK:
                answer.read()
                raise self.refusal(answer, url)
            with path.open("wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)

    @cached_property
    def _http(self) -> httpx.Client:
        made = open_client(timeout_s=TIMEOUT_S)
        finalize(self, made.close)
        return made


def age_s(headers: Mapping[str, str]) -> float:
    """How long ago an object was changed, in seconds, by the clock of its store."""
    now, changed = (_moment(headers.get(name)) for name in ("date", "last-modified"))
    return max(0.0, (now - changed).total_seconds())


def _moment(text: str | None) -> datetime:
    return parsedate_to_datetime(text) if text else datetime.now(UTC)


def _rest(more: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key != "headers" and value is not None}
