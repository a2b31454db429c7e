"""`config.json` of a model on the Hugging Face hub, kept on disk once read. Imports httpx on use.

Environment, as the hub's own client reads it: HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, SourceError
from tonnage.files import write_whole
from tonnage.sources.fetching import FetchLimits, check_status, decode_text, read_body, with_attempts
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
LARGEST_CONFIG_BYTES: Final = 2**20
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_TRUE: Final = ("1", "on", "yes", "true")


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceConfigs:
    """Fetches `config.json` by repository name; `cache` holds one folder a repository."""

    cache: Path
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    offline: bool = False
    timeout_s: float = 10.0
    attempts: int = 3
    wait_s: float = 0.5  # before the second attempt; doubles after each

    @classmethod
    def from_environment(cls, cache: Path, environ: Mapping[str, str]) -> HuggingFaceConfigs:
        """As HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE say."""
        return cls(
            cache=cache,
            endpoint=(environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/"),
            token=environ.get("HF_TOKEN") or None,
            offline=environ.get("HF_HUB_OFFLINE", "").strip().casefold() in _TRUE,
        )

    def fetch(self, repository: str) -> Mapping[str, Any]:
        """The config of `organisation/model`, from the cache or the hub.

        Raises InputError when there is no such repository, it is closed to us, or we are offline and it is not
        cached; SourceError when the hub does not answer as it should.
        """
        if not _REPOSITORY.fullmatch(repository):
            raise InputError(f"'{repository}' is not a repository", hint="write hf://organisation/model")
        kept = self.cache / repository / "config.json"
        if (text := _read_kept(kept)) is not None:
            return _parse(text, str(kept))
        if self.offline:
            raise InputError(
                f"{repository} is not cached and HF_HUB_OFFLINE forbids the network",
                hint="unset HF_HUB_OFFLINE once, or name a config.json on disk",
            )
        url = f"{self.endpoint}/{repository}/resolve/main/config.json"
        text = self._download(url, repository)
        config = _parse(text, url)
        _keep(kept, text)
        return config

    def _download(self, url: str, repository: str) -> str:
        limits = FetchLimits(
            timeout_s=self.timeout_s, max_bytes=LARGEST_CONFIG_BYTES, attempts=self.attempts, wait_s=self.wait_s
        )

        def once(client: httpx.Client) -> str:
            with client.stream("GET", url) as response:
                return _read_answer(response, url, repository, limits)

        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        hint = "check HF_ENDPOINT, try again later, or save the config.json beside the workload file and name its path"
        # the hub's files are redirects; httpx sends the token to no other host
        return with_attempts(url, limits, once, headers=headers, follow_redirects=True, hint=hint)


def _read_answer(response: httpx.Response, url: str, repository: str, limits: FetchLimits) -> str:
    if response.status_code in (401, 403):
        raise InputError(
            f"{repository} is not there, or not open to us (status {response.status_code})",
            hint="check the name; for a gated model accept its licence and set HF_TOKEN",
        )
    if response.status_code == 404:
        raise InputError(f"{repository} has no config.json on the hub", hint="check the name")
    check_status(response, url)
    return decode_text(read_body(response, url, limits, None), url)


def _parse(text: str, where: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"{where} is not JSON: {error}", hint="a cached file may be deleted") from error
    if not isinstance(config, dict):
        raise SourceError(f"{where} holds no JSON object", hint="a cached file may be deleted")
    return config


def _read_kept(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # not cached, or not readable: the hub has it
        return None


def _keep(path: Path, text: str) -> None:
    """Write whole or not at all. A cache that cannot be written only costs the next fetch."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, durable=False)
