"""Models and data sets brought here: `tonnage.fetch`, and `tonnage.verify_fetched`, which reads them again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import FetchError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.inputs import Clock
    from tonnage.fetching import Fetched, ProgressWatcher, VerifiedFile
    from tonnage.reports.rendering import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions(Options):
    """Where `fetch` puts files, which of them, how they are verified and how hard it tries."""

    to: tuple[str, ...] = option(
        "--to",
        "A folder, s3://, gs:// or az://; may be repeated. [default: the files stay in the cache]",
        default=(), metavar="TARGET",
    )  # fmt: skip
    include: tuple[str, ...] = option(
        "--include", "Only files like '*.safetensors'; may be repeated.", default=(), metavar="PATTERN"
    )
    exclude: tuple[str, ...] = option(
        "--exclude", "Not files like 'onnx/'; may be repeated.", default=(), metavar="PATTERN"
    )
    sha256: str | None = option("--sha256", "What a single file's SHA-256 must be.", default=None, metavar="HEX")
    sums: tuple[str, ...] = option(
        "--sums", "A SHA256SUMS file or its URL; may be repeated.", default=(), metavar="FILE"
    )
    jobs: int = option("--jobs", "Connections at once.", default=8, metavar="N", least=1, most=128)
    attempts: int = option(
        "--attempts", "Failures in a row after which a file is given up.", default=6, metavar="N", least=1
    )
    copy: bool = option("--copy", "Copy into folders; no hard links into the cache.", default=False)
    force: bool = option("--force", "Replace files that no fetch has put there.", default=False)
    offline: bool = option("--offline", "From the cache alone; asks no server.", default=False)
    dry_run: bool = option("--dry-run", "List files and bytes; fetch and write nothing.", default=False)


def fetch(
    sources: str | Sequence[str],
    options: FetchOptions | None = None,
    *,
    as_of: Clock | None = None,
    settings: Settings | None = None,
    watcher: ProgressWatcher | None = None,
) -> Answer[Fetched]:
    """Bring every file of `sources` (`hf://ORG/NAME`, `s3://`, `gs://`, `az://`, a URL or a path; docs/fetch.md) to
    every target: in parallel, verified, through the cache at home.

    The same call after a cut goes on where it was. `HF_HUB_OFFLINE` in the environment is as `offline`. `watcher` is
    called with the number of bytes that arrived. The answer's fault is FetchError where a file did not come. Raises
    InputError for sources and options that cannot be used, FetchError where a source cannot be listed or a disk is too
    small.
    """
    from tonnage.fetching import FetchRequest
    from tonnage.fetching import fetch as fetch_files
    from tonnage.files import make_private_folder

    options, settings = options or FetchOptions(), settings or current_settings(as_of=as_of)
    if not options.dry_run:
        make_private_folder(settings.home)
    request = FetchRequest(
        sources=(sources,) if isinstance(sources, str) else tuple(sources),
        targets=options.to,
        include=options.include,
        exclude=options.exclude,
        sha256=options.sha256,
        sums=options.sums,
        jobs=options.jobs,
        attempts=options.attempts,
        copy=options.copy,
        force=options.force,
        offline=options.offline or _is_on(os.environ.get("HF_HUB_OFFLINE")),
        dry_run=options.dry_run,
        cache=settings.home / "cache" / "fetch",
        now=settings.as_of or datetime.now(UTC),
    )
    found = fetch_files(request, watcher)
    return Answer(found, _fetched, _failure(found))


def verify_fetched(targets: str | Path | Sequence[str], *, jobs: int = 8) -> Answer[list[VerifiedFile]]:
    """Read the files that `fetch` put into `targets` again and hold each against its SHA-256.

    The answer's fault is FetchError where one is changed or missing. Raises InputError for a target without a manifest.
    """
    from tonnage.fetching import verify

    found = verify([str(targets)] if isinstance(targets, str | Path) else targets, jobs=jobs)
    bad = [one for one in found if one.state != "ok"]
    fault = None
    if bad:
        fault = FetchError(
            f"{len(bad)} of {len(found)} files are changed or missing, such as {bad[0].target}: {bad[0].name}",
            hint="fetch again: missing files are put back, changed ones with --force",
        )
    return Answer(found, _checked, fault)


def _is_on(text: str | None) -> bool:
    return (text or "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _failure(found: Fetched) -> FetchError | None:
    if not found.failures:
        return None
    first = found.failures[0]
    return FetchError(
        f"{len(found.failures)} of {len(found.files)} files did not come; {first.name}: {first.problem}",
        hint="the same command again goes on where this one ended",
    )


def _fetched(found: Fetched) -> Report:
    from tonnage.reports.fetch import fetch_report

    return fetch_report(found.files, seconds=found.seconds, dry_run=found.dry_run)


def _checked(found: list[VerifiedFile]) -> Report:
    from tonnage.reports.fetch import verify_report

    return verify_report(found)
