"""`tonnage image`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.images import ImageOptions
from tonnage.cli import options
from tonnage.cli.declared import Commands, ReportSession

commands = Commands(
    no_args_is_help=True, rich_markup_mode=None, help="Container images that carry out a workload at a place."
)


@commands.callback()
def group() -> None:
    """Container images that carry out a workload at a place."""


@commands.command("build", short_help="Build the image of a workload file")
def build(
    file: options.File,
    *,
    asked: ImageOptions,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="FOLDER", help="Write what a builder takes into this folder; build nothing.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the Containerfile and the command only.")] = False,
    session: ReportSession,
) -> None:  # fmt: skip
    """Build an image with the packages that a workload needs, at the versions that are installed here.

    It runs as a user without rights, has no compiler, and lists what is in it (--materials). --push gives the digest by
    which places.toml names an image. A service that generates tokens has an image of its engine's makers:
    `tonnage serve FILE --dry-run` names it.
    """
    if context is not None:
        for path in api.write_image_files(context, file, asked, settings=session.settings):
            session.say(f"wrote {path}")
    if dry_run or context is not None:
        session.show_answer(api.image_files(file, asked, settings=session.settings))
        return
    session.show_answer(api.build_image(file, asked, settings=session.settings))
