"""Autoscalers compared on a load: `tonnage.simulate_scaling`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_range, read_seconds
from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.scaling.comparing import PolicyComparison, Tuning
    from tonnage.scaling.load import Load
    from tonnage.scaling.service import WeekSchedule


def _read_names(flag: str, text: str) -> tuple[str, ...]:
    del flag
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions(Options):
    """The load, the service and the policies that `simulate_scaling` compares."""

    burst: str | None = option(
        "--burst", "A generated load in place of a trace: steady, waves, daily, ramps, on-off, spikes, rare-spikes, "
        "silent-nights.", default=None, metavar="KIND",
    )  # fmt: skip
    hours: float = option("--hours", "Length of a generated load.", default=4.0, metavar="H", least=0.1, most=48.0)
    peak_slots: float = option("--peak-slots", "Slots in use at the peak of a generated load.", default=128.0,
                               metavar="N", least=0.1, most=100_000.0)  # fmt: skip
    times: float = option("--times", "Scale the trace: so many times the requests, the same course.", default=1.0,
                          metavar="N", least=0.001, most=10_000.0)  # fmt: skip
    wave: bool = option("--wave", "Thin the trace to a wave of 20 minutes.", default=False)
    slots: int = option("--slots", "Requests that a replica answers at once.", default=16, metavar="N", least=1)
    start_up_s: float = option("--start-up", "From a replica's start to its first request.", default=60.0,
                               metavar="TIME", read=read_seconds, text="60s")  # fmt: skip
    start_up_variation: float = option("--start-up-variation", "Standard deviation of start-ups over their mean.",
                                       default=0.0, metavar="V", least=0.0, most=3.0)  # fmt: skip
    promise_s: float = option("--promise", "The longest wait for a slot.", default=2.0, metavar="TIME",
                              read=read_seconds, text="2s")  # fmt: skip
    kept_percent: float = option("--kept", "Requests, in %, to which that is promised.", default=99.0, metavar="N",
                                 least=1.0, most=99.999)  # fmt: skip
    replicas: tuple[int, int] = option("--replicas", "Fewest and most replicas.", default=(0, 20), metavar="N..M",
                                       read=read_range, text="0..20")  # fmt: skip
    to_zero_after_s: float | None = option(
        "--to-zero-after", "Without a request for so long, no replica stays. Of the policy tonnage alone. "
        "[default: where the promise allows it]", default=None, metavar="TIME", read=read_seconds,
    )  # fmt: skip
    policies: tuple[str, ...] = option(
        "--policy", "all, or names with commas: tonnage, static, ray-serve, keda-queue, keda-rate, skyserve, knative.",
        default=("all",), metavar="NAMES", read=_read_names, text="all",
    )  # fmt: skip
    at_least: tuple[str, ...] = option(
        "--at-least", "At least so many replicas at these hours: 8-20=4, mon-fri:22-6=1. The load begins on a Monday "
        "at 0:00. Of the policy tonnage alone.", default=(), metavar="HOURS=N", repeated=True,
        read=lambda _, texts: tuple(texts),
    )  # fmt: skip
    warm: int = option("--warm", "Replicas of a warm pool.", default=0, metavar="N", least=0, most=1000)
    learn_fraction: float = option("--learn", "The part of the load that is the past: not judged.", default=0.5,
                                   metavar="FRACTION", least=0.0, most=0.9)  # fmt: skip
    tuning: str = option("--tune", "Rivals are tuned in hindsight on what is judged, or on the past.",
                         default="hindsight", metavar="HOW")  # fmt: skip
    usd_per_hour: float | None = option("--usd-per-hour", "A replica-hour; gives bills.", default=None, metavar="USD",
                                        least=0.0)  # fmt: skip
    prefill_tokens_per_s: float = option("--prefill-rate", "Prompt tokens that a slot reads a second.",
                                         default=10_000.0, metavar="N", least=0.001)  # fmt: skip
    decode_s_per_token: float = option("--token-time", "Time of one answer token.", default=0.02, metavar="TIME",
                                       read=read_seconds, text="20ms")  # fmt: skip
    files: str | None = option(
        "--files", "Write the tuned settings of KEDA, the HPA, Ray Serve, SkyServe and Knative to this folder.",
        default=None, metavar="FOLDER",
    )  # fmt: skip
    name: str = option("--name", "The deployment's name in those files.", default="service", metavar="NAME")
    seed: int = option("--seed", "Fixes what is drawn at random.", default=0, metavar="N", least=0)


def simulate_scaling(
    trace: Path | str | None = None,
    options: ScalingOptions | None = None,
    *,
    on_step: Callable[[str], None] | None = None,
) -> Answer[PolicyComparison]:
    """Autoscalers side by side on a trace (columns `arrived_at`, `num_prefill_tokens`, `num_decode_tokens`) or a
    generated load: promises kept, replica-hours, beside the best fixed number and the clairvoyant.

    Raises InputError for options that contradict one another, WorkloadError for a file that is no trace.

    >>> asked = ScalingOptions(burst="ramps", hours=0.5, peak_slots=40, policies=("tonnage", "static"))
    >>> [one.policy for one in simulate_scaling(options=asked).found.results]
    ['tonnage', 'static']
    """
    from tonnage.reports.scaling import scaling_report
    from tonnage.scaling.comparing import POLICIES, compare_policies
    from tonnage.scaling.fleet import StartUp
    from tonnage.scaling.service import ScaledService

    asked = options or ScalingOptions()
    service = ScaledService(
        slots=asked.slots, start_up_s=asked.start_up_s, promise_s=asked.promise_s,
        promised_fraction=asked.kept_percent / 100.0, least=asked.replicas[0], most=asked.replicas[1],
        to_zero_after_s=asked.to_zero_after_s,
    )  # fmt: skip
    start_up = StartUp(mean_s=asked.start_up_s, variation=asked.start_up_variation, warm=asked.warm)
    found = compare_policies(
        _load(trace, asked), service, policies=POLICIES if asked.policies == ("all",) else asked.policies,
        start_up=start_up, schedule=_schedule(asked), learn_fraction=asked.learn_fraction,
        tuning=cast("Tuning", asked.tuning), seed=asked.seed, on_step=on_step,
    )  # fmt: skip
    if asked.files is not None:
        _write_files(Path(asked.files), found, asked)
    return Answer[Any](found, partial(scaling_report, usd_per_hour=asked.usd_per_hour))


def _write_files(folder: Path, found: PolicyComparison, asked: ScalingOptions) -> None:
    from tonnage.files import save_for_user
    from tonnage.scaling.cluster_files import cluster_files

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="make it first, or name another --files")
    for name, text in cluster_files(found, name=asked.name).items():
        save_for_user(folder / name, text, hint="name another --files")


def _load(trace: Path | str | None, asked: ScalingOptions) -> Load:
    from tonnage.scaling.load import ServiceTimes, generated, load_of_trace, scaled, with_wave
    from tonnage.sizing.traces import load_trace

    if (trace is None) == (asked.burst is None):
        raise InputError("one load is needed: a trace or --burst", hint="give TRACE.csv, or --burst waves")
    if trace is None:
        assert asked.burst is not None
        if asked.times != 1 or asked.wave:
            raise InputError("--times and --wave are of traces", hint="--peak-slots sets the size of a generated load")
        return generated(asked.burst, peak_slots=asked.peak_slots, hours=asked.hours, seed=asked.seed)
    times = ServiceTimes(prefill_tokens_per_s=asked.prefill_tokens_per_s, decode_s_per_token=asked.decode_s_per_token)
    load = scaled(load_of_trace(load_trace(Path(trace)), times), asked.times, seed=asked.seed)
    return with_wave(load, seed=asked.seed) if asked.wave else load


def _schedule(asked: ScalingOptions) -> WeekSchedule | None:
    from tonnage.scaling.service import WeekSchedule, parse_hours

    return WeekSchedule(hours=tuple(parse_hours(text) for text in asked.at_least)) if asked.at_least else None
