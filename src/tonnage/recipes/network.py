"""Reads over a network may fail now and work in a minute: they are retried, and the last error is raised with its
cause."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from random import uniform
from typing import Final, TypeVar

from tonnage.errors import TonnageError
from tonnage.http.retries import is_temporary
from tonnage.http.urls import without_secrets

Found = TypeVar("Found")
ATTEMPTS: Final = 6  # with waits of 1, 2, 4, 8 and 16 s between: half a minute; the supervisor then starts again
FIRST_WAIT_S: Final = 1.0
_PASSING: Final = frozenset(  # by name: aiohttp, botocore, httpx, requests, urllib3 and http.client, none imported here
    {
        "ConnectionError", "TimeoutError", "gaierror", "ClientConnectionError", "ClientPayloadError", "TransportError",
        "HTTPClientError", "Timeout", "ChunkedEncodingError", "IncompleteRead", "ProtocolError",
    }
)  # fmt: skip
_LASTING: Final = frozenset({"OfflineModeIsEnabled", "RepositoryNotFoundError", "EntryNotFoundError"})


class NetworkTrouble(TonnageError):
    """What a run reads over a network cannot be reached, after several tries."""


def with_network_retries(read: Callable[[], Found], what: str) -> Found:
    """What `read` gives, tried again where the network failed. NetworkTrouble names `what` and the cause."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return read()
        except Exception as error:
            cause = passing_cause(error)
            if cause is None:
                raise
            if attempt >= ATTEMPTS:
                raise NetworkTrouble(
                    f"{without_secrets(what)} cannot be reached after {ATTEMPTS} tries: {_words(cause)}",
                    hint="when the network is back, `tonnage resume` goes on; `tonnage fetch` brings it onto this "
                    "machine",
                ) from error
            wait_s = FIRST_WAIT_S * 2 ** (attempt - 1) * uniform(0.75, 1.25)
            _say(f"{what}: {_words(cause)}; trying again in {wait_s:.0f} s")
        time.sleep(wait_s)


def passing_cause(error: BaseException) -> BaseException | None:
    """The error below `error` that says the network failed for the moment; None where another try is of no use."""
    chain = list(_chain(error))
    if any(_LASTING & _names(one) for one in chain):
        return None
    statuses = [(one, status) for one in chain if (status := _status(one)) is not None]
    if statuses:
        return next((one for one, status in statuses if is_temporary(status)), None)
    return next((one for one in reversed(chain) if _PASSING & _names(one)), None)


def refusal(error: BaseException) -> str | None:
    """What a server answered where it will not give what was asked for; None: the error is no answer of a server."""
    return next((_words(one) for one in _chain(error) if _status(one) is not None), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _status(error: BaseException) -> int | None:
    """The HTTP status an error carries: aiohttp's attribute, the response of httpx and requests, botocore's mapping."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        found = getattr(error, "status", None) or getattr(response, "status_code", None)
    return found if isinstance(found, int) else None


def _words(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return without_secrets(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _say(text: str) -> None:
    print(f"warning: {without_secrets(text)}", file=sys.stderr)  # noqa: T201
