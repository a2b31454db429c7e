"""The same run at several places, turn by turn, and whether they differ: `tonnage.bench_places`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.reports.place_bench import PlacesBenched
    from tonnage.side_by_side.places import PlaceCell

MOST_REPEATS: Final = 50
LOOK_EVERY_S: Final = 1.0
RunOnce = Callable[[str, int], float | str]  # place, turn -> samples a second, or why there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlacesOptions(Options):
    """Where, how often, and what counts as a difference."""

    places: tuple[str, ...] = option(
        "--on", "A place of places.toml, or local; name two or more.", default=(), metavar="PLACE"
    )
    repeats: int = option("--repeats", "Runs at each place.", default=3, metavar="N")
    limit: float = option(
        "--limit", "The variation, and the difference, that is to be stayed under (a fraction).", default=0.05,
        metavar="X",
    )  # fmt: skip
    timeout_minutes: float = option("--timeout", "A run that takes longer is a failed cell.", default=60.0, metavar="M")


def bench_places(
    file: Path | str,
    options: BenchPlacesOptions | None = None,
    *,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer[PlacesBenched]:
    """A workload file run so often at each place, in turn; variation at each, differences between them, confidence.

    A bench file with `run` and `places` says all of that itself: options are then refused.
    A place that fails is a failed cell with its reason, and the rest goes on. Raises InputError for options that cannot
    be used and a file without a run, UnknownName for a place that is not in places.toml.
    """
    from tonnage.api.launching import read_spec
    from tonnage.api.placing import executor_at
    from tonnage.reports.place_bench import PlacesBenched, place_bench_report
    from tonnage.side_by_side.places import compare_places

    settings = settings or current_settings()
    if options is not None and options.places:
        _check(options)
    run_file, name, options = _asked(Path(file), options)
    _check(options)
    run_name = read_spec(run_file).name
    for place in options.places:
        executor_at(settings, place)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    once = _runs(run_file, f"{run_name}-{stamp}", options, settings)
    cells = carry_out(options.places, options.repeats, once, say=say or (lambda _: None))
    found = PlacesBenched(
        name=name or run_name, limit=options.limit, cells=cells, compared=compare_places(cells, options.limit)
    )
    done = any(one.rate_per_s is not None for one in cells)
    fault = None if done else TonnageError("no run came to its end at any place", hint="the reasons are in the report")
    return Answer(found, place_bench_report, fault=fault)


def _asked(file: Path, options: BenchPlacesOptions | None) -> tuple[str, str | None, BenchPlacesOptions]:
    """The workload file, the bench's name where a bench file gives one, and what is asked for."""
    from tonnage.side_by_side.places import compares_places, load_place_bench

    if not compares_places(file):
        return str(file), None, options or BenchPlacesOptions()
    if options is not None and options != BenchPlacesOptions():
        raise InputError(f"{file} says itself at which places and how often", hint="leave the options out")
    spec = load_place_bench(file)
    return str(spec.run), spec.name, BenchPlacesOptions(
        places=spec.places, repeats=spec.repeats, limit=spec.limit, timeout_minutes=spec.timeout_s / 60.0
    )  # fmt: skip


def _check(options: BenchPlacesOptions) -> None:
    if len(options.places) < 2 or len(set(options.places)) < len(options.places):
        raise InputError("two or more different places are compared", hint="--on local --on PLACE")
    if not 2 <= options.repeats <= MOST_REPEATS:
        raise InputError(f"--repeats: found {options.repeats}, expected 2 to {MOST_REPEATS}: one has no variation")
    if not 0 < options.limit < 1:  # NaN fails too
        raise InputError(f"--limit: found {options.limit}, expected a fraction such as 0.05")
    if not options.timeout_minutes > 0:
        raise InputError(f"--timeout: found {options.timeout_minutes}, expected minutes above 0")


def carry_out(
    places: Sequence[str], repeats: int, once: RunOnce, *, say: Callable[[str], None]
) -> tuple[PlaceCell, ...]:
    """Each place in every turn, so that an hour of the day meets all alike. A failure is a cell with its reason."""
    from tonnage.side_by_side.places import PlaceCell

    cells = []
    for turn in range(repeats):
        for place in places:
            try:
                found = once(place, turn)
            except TonnageError as error:
                found = str(error)
            rate, reason = (None, found) if isinstance(found, str) else (found, None)
            cells.append(PlaceCell(place=place, turn=turn, rate_per_s=rate, reason=reason))
            say(f"turn {turn + 1}/{repeats}, {place}: {reason if rate is None else f'{rate:.4g} samples/s'}")
    return tuple(cells)


def _runs(file: str, name: str, options: BenchPlacesOptions, settings: Settings) -> RunOnce:
    from tonnage.api.runs import RunOptions, run, show, stop
    from tonnage.places.file import LOCAL
    from tonnage.runs.states import RunStatus

    def once(place: str, turn: int) -> float | str:
        own = f"{name}-{place}-{turn + 1}"
        run(file, RunOptions(name=own, on=None if place == LOCAL else place), settings=settings)
        end = time.monotonic() + 60.0 * options.timeout_minutes
        while True:
            found = show(own, settings=settings).found
            if found.state.state.ended:
                break
            if time.monotonic() > end:
                stop(own, settings=settings)
                return f"not done after {options.timeout_minutes:g} minutes"
            time.sleep(LOOK_EVERY_S)
        rate = found.measured.samples_per_s
        if found.state.state is not RunStatus.SUCCEEDED or rate is None:
            return f"{found.state.state}: {found.state.message or 'no steps were timed'}"
        return rate

    return once
