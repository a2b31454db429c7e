"""A container image: its Containerfile and command, and what became of the build."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from tonnage.reports.blocks import Block, Code, Heading, Page, Pairs
from tonnage.reports.rendering import Report
from tonnage.values import dataclass

_REGISTRY: Final = re.compile(r"[\w.-]+(:\d+)?/[\w./-]+(:[\w.-]+)?", re.ASCII)  # else a folder or an archive


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReport:
    """An image as it is to be built; from `image_id` on, what was built: None before."""

    name: str
    device: str
    platforms: tuple[str, ...]
    extras: tuple[str, ...]
    base: str
    base_pinned: bool
    command: tuple[str, ...]
    containerfile: str
    image_id: str | None = None
    digest: str | None = None
    size_bytes: int | None = None
    destination: str | None = None
    python_packages: int | None = None
    system_packages: int | None = None
    cuda: str | None = None  # that its PyTorch is built with
    nccl: str | None = None  # beside it


def image_report(image: ImageReport) -> Report:
    """Columns of the CSV: what the JSON has in one value each."""
    document = _document(image)
    columns = ("name", "device", "platforms", "extras", "base", "base_pinned", "image_id", "digest", "size_bytes")

    def rows() -> list[list[Any]]:
        return [[" ".join(value) if isinstance(value := document[key], list) else value for key in columns]]

    return Report(page=lambda: _page(image), document=lambda: document, columns=columns, rows=rows)


def _document(image: ImageReport) -> dict[str, Any]:
    return {
        "schema": "tonnage/image@1",
        "name": image.name,
        "device": image.device,
        "platforms": list(image.platforms),
        "extras": list(image.extras),
        "base": image.base,
        "base_pinned": image.base_pinned,
        "command": list(image.command),
        "containerfile": image.containerfile,
        "image_id": image.image_id,
        "digest": image.digest,
        "size_bytes": image.size_bytes,
        "destination": image.destination,
        "python_packages": image.python_packages,
        "system_packages": image.system_packages,
        "cuda": image.cuda,
        "nccl": image.nccl,
    }


def _page(image: ImageReport) -> Page:
    about = [
        ("device", image.device),
        ("platforms", ", ".join(image.platforms)),
        ("extras", ", ".join(image.extras)),
        ("begins with", image.base if image.base_pinned else f"{image.base} (a tag, not pinned)"),
    ]
    if image.image_id is None:
        blocks: tuple[Block, ...] = (
            Pairs(rows=tuple(about)),
            Heading(text="Containerfile"), Code(lines=tuple(image.containerfile.splitlines())),
            Heading(text="Command, where CONTEXT is the folder that --context writes"),
            Code(lines=(shlex.join(image.command),)),
        )  # fmt: skip
        return Page(title=f"Image {image.name}", blocks=blocks)
    return Page(title=f"Built {image.name}", blocks=(Pairs(rows=(*about, *_built(image))),))


def _built(image: ImageReport) -> list[tuple[str, str]]:
    rows = [("id", image.image_id or "")]
    if image.size_bytes is not None:
        rows.append(("size", f"{image.size_bytes / 1e6:,.0f} MB"))
    rows.append(("packages", f"{image.python_packages} of Python, {image.system_packages} of the system"))
    if image.digest is None:
        rows.append(("for places.toml", "push it first (--push): places name an image by its digest"))
    elif not _REGISTRY.fullmatch(where := (image.destination or "").removeprefix("docker://")):
        rows.append(("digest", image.digest))
    else:
        name = where.rpartition(":")[0] if ":" in where.rpartition("/")[2] else where
        rows.append(("for places.toml", f'image = "{name}@{image.digest}"'))
        rows += [("", f'{key} = "{value}"') for key, value in (("cuda", image.cuda), ("nccl", image.nccl)) if value]
    return rows
