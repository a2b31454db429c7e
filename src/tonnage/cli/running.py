"""Run one command line: errors to stderr with a hint, and the exit code of the outcome."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import Final

from tonnage.cli.streams import abandon_stdout, prepare_streams
from tonnage.errors import TonnageError

OK: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130


class ReportedExit(int):
    """An exit code of which the command itself has said why."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
LASTING: Final = frozenset({"run", "sweep", "resume", "evaluate", "predict", "pipeline", "fetch", "logs"})
_COLLECT_EVERY: Final = 100_000  # container objects; CPython's own 700 is for programs that stay


def main() -> None:
    """Run the process's own arguments and leave with the exit code.

    A verb that answers and leaves makes little cyclic garbage, so its process collects seldom and, at the end, frees
    nothing: looking through all objects for cycles took a sixth of a plan's processor time.
    """
    prepare_streams()
    arguments = sys.argv[1:]
    lasting = not LASTING.isdisjoint(arguments[:1])
    if not lasting:
        gc.set_threshold(_COLLECT_EVERY)
    code = run(arguments)
    if not lasting:
        gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 bad input, 3 nothing fits, 4 refused."""
    try:
        return _flushed(_invoke(arguments))
    except TonnageError as error:
        complain(str(error), error.hint)
        return error.exit_code
    except BrokenPipeError:
        abandon_stdout()
        return OK
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        if error.errno not in NO_ROOM:
            return _internal_error(error)
        complain(f"{error.filename or 'a file'} cannot be written: {error.strerror}", "make room on its disk")
        return FAILED
    except Exception as error:
        return _internal_error(error)


def _invoke(arguments: Sequence[str]) -> int:
    import typer
    from typer.main import get_command

    from tonnage.cli.app import asked_verb, build_app

    app = build_app(asked_verb(arguments))
    try:
        outcome = get_command(app).main(list(arguments), prog_name="tonnage", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's usage errors have it, under every version's own name
            raise
        _usage_error(error)
        return BAD_INPUT
    if outcome == INTERRUPTED and not isinstance(outcome, ReportedExit):
        complain("interrupted")
    return outcome if isinstance(outcome, int) else OK


def _usage_error(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tonnage"
    message = error.format_message()  # type: ignore[attr-defined]
    if type(error).__name__ == "NoArgsIsHelpError":  # a group called without a command: the message is its help
        sys.stderr.write(message + "\n")
        return
    complain(message, f"`{command} --help` shows what it takes")


def complain(message: str, hint: str | None = None) -> None:
    """An error on stderr, with what to do next."""
    sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else ""))


def _flushed(code: int) -> int:
    sys.stdout.flush()
    return code


def _internal_error(error: Exception) -> int:
    complain(
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in tonnage; TONNAGE_DEBUG=1 shows where, please report it",
    )
    if os.environ.get("TONNAGE_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return FAILED
