"""Text from a file or a URL, with limits on time and size and a few more attempts. Imports httpx on use."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import SourceError

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How long and how much. Seconds, bytes, attempts; the wait doubles after each failed attempt."""

    timeout_s: float = 30.0
    max_bytes: int = 64 * 2**20
    attempts: int = 3
    wait_s: float = 0.5


def is_url(location: str) -> bool:
    """Whether `location` is fetched over the network."""
    return location.startswith(("http://", "https://"))


def fetch_text(location: str, limits: FetchLimits | None = None) -> str:
    """The UTF-8 text at a path or http(s) URL; raises SourceError when it cannot be had whole.

    Retries what may pass (server errors, 429, broken connections); an HTML page instead of data is an error.
    """
    limits = limits or FetchLimits()
    data = _download(location, limits) if is_url(location) else _read_file(Path(location), limits)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{location} is not UTF-8 text ({error})") from error
    if text.lstrip()[:1] == "<":
        raise SourceError(f"{location} answered a web page instead of data", hint="is it the address of the raw file?")
    return text


def _read_file(path: Path, limits: FetchLimits) -> bytes:
    try:
        if path.stat().st_size > limits.max_bytes:
            raise SourceError(f"{path} is larger than {limits.max_bytes} bytes")
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _download(url: str, limits: FetchLimits) -> bytes:
    import httpx

    failure = ""
    for attempt in range(limits.attempts):
        if attempt:
            time.sleep(limits.wait_s * 2 ** (attempt - 1))
        try:
            with httpx.Client(timeout=limits.timeout_s, follow_redirects=True) as client:
                return _stream(client, url, limits)
        except _TemporaryError as error:
            failure = str(error)
        except httpx.TransportError as error:
            failure = f"{type(error).__name__}: {error}"
        except httpx.HTTPError as error:
            raise SourceError(f"{url}: {error}") from error
    raise SourceError(f"{url} failed {limits.attempts} times, last with {failure}", hint="try again later")


class _TemporaryError(Exception):
    """An answer that may be another one next time."""


def _stream(client: httpx.Client, url: str, limits: FetchLimits) -> bytes:
    with client.stream("GET", url) as response:
        if response.status_code == 429 or response.status_code >= 500:
            raise _TemporaryError(f"status {response.status_code}")
        if response.status_code != 200:
            raise SourceError(f"{url} answered status {response.status_code}")
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > limits.max_bytes:
                raise SourceError(f"{url} is larger than {limits.max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)
