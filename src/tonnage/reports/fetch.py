"""Reports on fetched files, and on files read again."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.http.downloaded import FetchedFile, VerifiedFile
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_duration, render_scaled


def fetch_report(lines: Sequence[FetchedFile], *, seconds: float, dry_run: bool) -> Report:
    """Every file, and what came over the network in total."""
    came = [one for one in lines if one.outcome in ("fetched", "to fetch")]
    came_bytes = sum(one.size_bytes or 0 for one in came)
    failed = sum(one.outcome == "failed" for one in lines)
    done = f"{render_bytes(came_bytes)} {'to fetch' if dry_run else 'fetched'}"
    title = f"{plural(len(lines), 'file')}, {done}" + ("" if dry_run else f" in {render_duration(seconds)}")
    return listing_report(
        Listing(
            schema="tonnage/fetch@1",
            title=title + (f", {failed} failed" if failed else ""),
            name="files",
            head={
                "dry_run": dry_run,
                "files_total": len(lines),
                "files_failed": failed,
                "size_bytes": sum(one.size_bytes or 0 for one in lines),
                "fetched_bytes": came_bytes,
                "seconds": None if dry_run else round(seconds, 3),
            },
            fields=_FIELDS,
            items=lines,
            remarks=[f"{one.name}: {one.problem}" for one in lines if one.problem],
        )
    )


def render_bytes(count: int | None) -> str:
    """A size for people.

    >>> render_bytes(1_500_000), render_bytes(None)
    ('1.5 MB', '—')
    """
    return UNKNOWN if count is None else render_scaled(count, "B")


_FIELDS: tuple[Field[FetchedFile], ...] = (
    Field(key="name", title="file", read=lambda one: one.name),
    Field(key="size_bytes", title="size", read=lambda one: one.size_bytes, show=render_bytes, right=True),
    Field(key="outcome", title="outcome", read=lambda one: one.outcome),
    Field(key="from_cache", read=lambda one: one.outcome == "from cache"),
    Field(key="verified_by", title="verified by", read=lambda one: one.verified_by, show=str, folds=1, wraps=True),
    Field(key="sha256", title="sha256", read=lambda one: one.sha256, show=lambda text: (text or "")[:12], folds=3),
    Field(key="places", title="where", read=lambda one: one.places, show=", ".join, folds=2, wraps=True),
    Field(key="source", read=lambda one: one.source),
    Field(key="version", read=lambda one: one.version),
    Field(key="problem", read=lambda one: one.problem or None),
)


def verify_report(lines: Sequence[VerifiedFile]) -> Report:
    """Every file of the manifests, as it is now."""
    bad = sum(one.state != "ok" for one in lines)
    fields: tuple[Field[VerifiedFile], ...] = (
        Field(key="name", title="file", read=lambda one: one.name),
        Field(key="size_bytes", title="size", read=lambda one: one.size_bytes, show=render_bytes, right=True),
        Field(key="state", title="state", read=lambda one: one.state),
        Field(key="target", title="target", read=lambda one: one.target, folds=1, wraps=True),
        Field(key="sha256", read=lambda one: one.sha256),
        Field(key="found_sha256", read=lambda one: one.found_sha256),
    )
    return listing_report(
        Listing(
            schema="tonnage/fetch-verify@1",
            title=f"{plural(len(lines), 'file')} read again, {bad or 'none'} changed or missing",
            name="files",
            head={"files_total": len(lines), "files_bad": bad},
            fields=fields,
            items=lines,
        )
    )
