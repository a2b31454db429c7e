"""Text from a file or a URL, with limits on time and size and a few more attempts. Imports httpx on use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import random
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from tonnage.errors import SourceError
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
_SECRETS: Final = re.compile(
    r"(?i)([?&](?:key|api_?key|token|access_token|sig|signature|password|x-amz-[a-z-]+)=)[^&#\s'\"]+"
)
_USERINFO: Final = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How long and how much. Seconds, bytes, attempts; the wait doubles after each failed attempt."""

    timeout_s: float = 30.0
    max_bytes: int = 64 * 2**20
    attempts: int = 3
    wait_s: float = 0.5
    longest_wait_s: float = 60.0  # a server that asks for a longer one (Retry-After) is given up


class Watch:
    """Until when a fetch may go on: a time limit (seconds from now, None: no limit) and a flag that stops it."""

    def __init__(self, *, limit_s: float | None = None, stop: Event | None = None) -> None:
        self._end = None if limit_s is None else monotonic() + limit_s
        self._stop = stop or Event()

    def check(self) -> None:
        """Raise SourceError when time is up or the fetch was told to stop."""
        if self._stop.is_set():
            raise SourceError("stopped before it answered")
        if self._end is not None and monotonic() > self._end:
            raise SourceError("the time limit was reached", hint="allow more with --timeout")

    def wait(self, seconds: float) -> None:
        """Sleep, though not past the limit; raises as `check` does."""
        left = seconds if self._end is None else min(seconds, max(0.0, self._end - monotonic()))
        self._stop.wait(left)
        self.check()

    def timeout_s(self, longest: float) -> float:
        """`longest`, or what is left."""
        return longest if self._end is None else max(0.05, min(longest, self._end - monotonic()))


class TemporaryError(Exception):
    """An answer that may be another one next time; `wait_s`: the server asked to wait so long."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def is_url(location: str) -> bool:
    """Whether `location` is fetched over the network."""
    return location.startswith(("http://", "https://"))


def shown_url(url: str) -> str:
    """A URL as messages print it: without keys, tokens, signatures or passwords.

    >>> shown_url("https://host/skus?key=abc&page=2")
    'https://host/skus?key=***&page=2'
    """
    return _USERINFO.sub("://***@", _SECRETS.sub(r"\1***", url))


def fetch_text(location: str, limits: FetchLimits | None = None, watch: Watch | None = None) -> str:
    """The UTF-8 text at a path or http(s) URL; raises SourceError when it cannot be had whole.

    Retries what may pass (server errors, 429, broken connections); an HTML page instead of data is an error.
    """
    limits = limits or FetchLimits()
    data = _download(location, limits, watch) if is_url(location) else _read_file(Path(location), limits)
    return decode_text(data, location)


def decode_text(data: bytes, location: str) -> str:
    """UTF-8 text that is no web page; raises SourceError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{shown_url(location)} is not UTF-8 text ({error})") from error
    if text.lstrip()[:1] == "<":
        raise SourceError(
            f"{shown_url(location)} answered a web page instead of data", hint="is it the address of the raw file?"
        )
    return text


def _read_file(path: Path, limits: FetchLimits) -> bytes:
    try:
        if path.stat().st_size > limits.max_bytes:
            raise SourceError(f"{path} is larger than {limits.max_bytes} bytes")
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _download(url: str, limits: FetchLimits, watch: Watch | None) -> bytes:
    def once(client: httpx.Client) -> bytes:
        with client.stream("GET", url) as response:
            check_status(response, url)
            return read_body(response, url, limits, watch)

    return with_attempts(url, limits, once, watch=watch)


def with_attempts(
    url: str,
    limits: FetchLimits,
    once: Callable[[httpx.Client], T],
    *,
    watch: Watch | None = None,
    headers: Mapping[str, str] | None = None,
) -> T:
    """What `once` returns, tried again after faults that may pass, with a doubling, jittered wait.

    Headers may carry a secret, so a redirect is not followed with them. Raises SourceError.
    """
    import httpx

    watch = watch or Watch()
    failure, asked_s, where = "", 0.0, shown_url(url.partition("?")[0])
    for attempt in range(limits.attempts):
        watch.check()
        if attempt:
            watch.wait(max(asked_s, limits.wait_s * 2 ** (attempt - 1) * (0.5 + random())))
        timeout = watch.timeout_s(limits.timeout_s)
        try:
            with httpx.Client(timeout=timeout, follow_redirects=not headers, headers=dict(headers or {})) as client:
                return once(client)
        except TemporaryError as error:
            failure, asked_s = str(error), error.wait_s
        except httpx.TransportError as error:
            failure, asked_s = shown_url(f"{type(error).__name__}: {error}"), 0.0
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceError(f"{where}: {shown_url(str(error))}") from error
        if asked_s > limits.longest_wait_s:
            raise SourceError(f"{where} asks to wait {asked_s:.0f} s ({failure})", hint="try again later")
    raise SourceError(f"{where} failed {limits.attempts} times, last with {failure}", hint="try again later")


def check_status(response: httpx.Response, url: str) -> None:
    """Raise TemporaryError on 429 and server errors, SourceError on anything else but 200."""
    status = response.status_code
    if status == 429 or status >= 500:
        raise TemporaryError(f"status {status}", _retry_after_s(response.headers.get("Retry-After", "")))
    if status in (401, 403):
        raise SourceError(f"{shown_url(url)} refused access (status {status})", hint="check the key or token")
    if status != 200:
        raise SourceError(f"{shown_url(url)} answered status {status}")


def read_body(response: httpx.Response, url: str, limits: FetchLimits, watch: Watch | None) -> bytes:
    """The whole body, within the limits on size and time."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        if watch is not None:
            watch.check()
        size += len(part)
        if size > limits.max_bytes:
            raise SourceError(f"{shown_url(url)} is larger than {limits.max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


def _retry_after_s(text: str) -> float:
    """Seconds a `Retry-After` header asks for (RFC 9110 10.2.3: a number or a date); 0 when it says nothing."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
