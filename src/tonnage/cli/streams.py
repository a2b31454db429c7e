"""Stdout, whatever it is connected to: a terminal, a pipe that closes, a full disk, nothing."""

from __future__ import annotations

import os
import sys

from tonnage.errors import TonnageError


def prepare_streams() -> None:
    """Make stdout and stderr fit for any text: a missing character is a «?», a closed stream takes it all."""
    if sys.stdout is None:  # `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def write_stdout(text: str) -> None:
    """Print `text`. A reader that stopped reading (`| head`) ends the command quietly, with exit code 0.

    Raises TonnageError when stdout cannot be written for another reason, such as a full disk.
    """
    import typer

    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        raise typer.Exit(0) from None
    except OSError as error:
        abandon_stdout()
        raise TonnageError(f"the output cannot be written: {error.strerror or error}") from error


def abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has somewhere to go."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
