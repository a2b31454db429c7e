"""Encoders served on a measured device: seconds of a batch from the profile's curves, and what measured services teach.

A pass of a reference encoder gives seconds a FLOP over the tokens of the pass, at several lengths and widths; another
model's pass has its own FLOP at the rate between the two nearest widths and lengths. A bench row is read as a slowness:
how many times as slow as predicted the server's every batch is, for the simulated queue to show what was measured.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import exp, isfinite, log
from typing import Final

from tonnage.calibration.local_profile import DeviceCurve, DeviceProfile
from tonnage.calibration.local_rows import device_names
from tonnage.calibration.local_update import LEAST_NOISE, LocalObservation, observed, repeat_log_sd
from tonnage.errors import InputError
from tonnage.sizing.encoder_queue import EncoderQueue, LatencyCurve, latency_curve, tuned_batch_tokens
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.shapes import ModelShape

PASS, REQUEST = "encoder pass", "encoder request"  # names of curves; a pass's goes on with width and length
ENGINE: Final = "onnxruntime"  # what the curves are of: Tonnage's encoder server on ONNX Runtime
PRECISION: Final = "fp32"
_PASS: Final = re.compile(rf"{PASS} (\d+) x (\d+)")
_RATE: Final = re.compile(r"request_rate_qps=([\d.eE+-]+)")
_ASKED: Final = re.compile(r"input mean=([\d.]+) longest=(\d+)")
_CLIENT: Final = re.compile(r"client takes s=([\d.eE+-]+)")
# How far one service's latency differs from bench to bench, in logarithms, before benches on the device tell
# (judgement, range 0.02 to 0.1: the machine, not the queue, which is simulated).
REPEATS: Final = 0.04
SATURATED: Final = 0.97  # answers over requests offered, below which a service answers as fast as it can
# Figures of a bench that tell how fast the service was; its rate does where it could not follow.
_LATENCIES: Final = {"latency_ms_mean": "mean", "latency_ms_p50": "p50", "latency_ms_p95": "p95"}


def forward_flop(shape: ModelShape, *, texts: int, tokens: int) -> float:
    """FLOP of the products of one forward pass over `texts` of `tokens` each, heads of the model left out.

    2 for each weight of a layer and token, and 4·tokens·width for each token's scores and values (Kaplan et al. 2020,
    arXiv:2001.08361, table 1).
    """
    width, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    ups = 2 if shape.gated_mlp else 1
    weights = shape.hidden * (2 * width + 2 * kv) + (ups + 1) * shape.hidden * shape.ffn
    return float(shape.layers * texts * tokens) * (2.0 * weights + 4.0 * tokens * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderWork:
    """One encoder service: what its seconds depend on."""

    shape: ModelShape
    lengths: Lengths
    precision: str
    engine: str
    p95_s: float | None = None  # bounds batches

    @property
    def configuration(self) -> str:
        """What two services have alike whose batches take the same time."""
        one = self.shape
        dims = f"{one.layers}x{one.hidden}x{one.heads}x{one.ffn}"
        return f"{dims} {self.precision} {self.engine} {self.lengths.mean:g}/{self.lengths.maximum}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchedLoad:
    """One bench of a service as its rows tell it. Seconds; `latency_s` by name of percentile."""

    id: str
    work: EncoderWork
    offered_per_s: float
    answered_per_s: float
    latency_s: tuple[tuple[str, float], ...]
    client_s: float = 0.0  # processor time a request of a client on the same cores


def check_served(work: EncoderWork) -> None:
    """InputError where the profile's curves do not hold the service."""
    if work.shape.architecture != "encoder" or work.shape.relative_projections:
        raise InputError(f"{work.shape.name}: a local profile holds services of plain encoders only")
    if work.precision != PRECISION or work.engine != ENGINE:
        raise InputError(
            f"{work.precision} on {work.engine} is not measured by a local profile",
            hint=f"serve.weights: {PRECISION} and serve.engine: {ENGINE}",
        )


def check_passes(profile: DeviceProfile, shape: ModelShape, precision: str) -> None:
    """InputError where the profile has no passes of such an encoder in this number format."""
    if shape.architecture != "encoder" or shape.relative_projections:
        raise InputError(f"{shape.name}: a local profile holds services of plain encoders only")
    timed = {curve.precision for curve in profile.curves if curve.operation.startswith(PASS)}
    if precision not in timed:
        what = f"{precision} was not timed" if timed else "no encoder was timed"
        raise InputError(f"{profile.name}: {what}", hint="tonnage calibrate --local --services")


def has_services(profile: DeviceProfile) -> bool:
    return any(curve.operation == REQUEST for curve in profile.curves)


def encoder_queue(profile: DeviceProfile, work: EncoderWork, *, client_s: float = 0.0) -> EncoderQueue:
    """The server on this device, as it sets itself up: a worker for each core measured, batches as it finds them.

    `client_s`: processor seconds a request that its client takes of the same cores. InputError where the profile has no
    such curves."""
    check_served(work)
    if not has_services(profile):
        raise InputError(f"{profile.name}: no encoder was timed", hint="tonnage calibrate --local --services")
    workers = max(curve.threads for curve in profile.curves if curve.operation.startswith(PASS))
    longest, alone = work.lengths.maximum, batch_seconds(profile, work.shape)
    bound = tuned_batch_tokens(alone, workers, longest=longest, p95_s=work.p95_s)
    batch_s = batch_seconds(profile, work.shape, client_s=client_s) if client_s else alone
    return EncoderQueue(batch_s=batch_s, workers=workers, batch_tokens=bound)


def batch_seconds(
    profile: DeviceProfile, shape: ModelShape, *, client_s: float = 0.0
) -> Callable[[int, int, int], float]:
    """Seconds of a batch by texts, tokens of the longest and workers that compute: the pass, and what the server does
    for each text besides."""

    @cache
    def seconds(texts: int, tokens: int, busy: int) -> float:
        besides = request_seconds(profile, tokens) + client_s
        return pass_seconds(profile, shape, texts=texts, tokens=tokens, busy=busy) + texts * besides

    return seconds


def pass_seconds(
    profile: DeviceProfile, shape: ModelShape, *, texts: int, tokens: int, busy: int, precision: str = PRECISION
) -> float:
    """Seconds of one forward pass in one worker while `busy` workers compute (the nearest count measured).

    Straight between measured widths, lengths and tokens of a pass, all in logarithms; level beyond the ends.
    """
    found: dict[int, list[tuple[int, DeviceCurve]]] = {}
    passes = [one for one in profile.curves if one.operation.startswith(PASS) and one.precision == precision]
    counts = sorted({curve.threads for curve in passes})
    nearest = min(counts, key=lambda one: abs(one - busy))
    for curve in passes:
        named = _PASS.fullmatch(curve.operation)
        if named is not None and curve.threads == nearest:
            found.setdefault(int(named[1]), []).append((int(named[2]), curve))
    size = float(texts * tokens)
    by_width = [
        (width, _between([(length, curve.per_unit_s(size)) for length, curve in sorted(curves, key=_first)], tokens))
        for width, curves in sorted(found.items())
    ]
    return _between(by_width, shape.hidden) * forward_flop(shape, texts=texts, tokens=tokens)


def _first(pair: tuple[int, DeviceCurve]) -> int:
    return pair[0]


def _between(points: Sequence[tuple[int, float]], at: float) -> float:
    """Straight between points in logarithms, level beyond the ends.

    >>> [round(_between([(1, 1.0), (100, 100.0)], at), 6) for at in (0.5, 10, 200)]
    [1.0, 10.0, 100.0]
    """
    places = [place for place, _ in points]
    right = bisect_right(places, at)
    if right == 0 or right == len(points):
        return points[0 if right == 0 else -1][1]
    (low, below), (high, above) = points[right - 1], points[right]
    share = log(at / low) / log(high / low)
    return exp(log(below) + share * log(above / below))


def request_seconds(profile: DeviceProfile, tokens: int) -> float:
    """Processor seconds of the server for one text besides its pass: HTTP, tokenizing, the queue. Straight between the
    measured lengths, and on beyond them: text is read token by token."""
    points = [(one.size, one.per_unit_s) for one in profile.curve(REQUEST, PRECISION, 1).points]
    if len(points) == 1:
        return points[0][1]
    pairs = list(pairwise(points))
    (low, below), (high, above) = next((pair for pair in pairs if tokens <= pair[1][0]), pairs[-1])
    slope = max((above - below) / (high - low), 0.0)
    return max(below + slope * (tokens - low), 0.0)


def time_parts(profile: DeviceProfile, work: EncoderWork) -> dict[str, float]:
    """Seconds of one text of the mean length, alone, by what they go to."""
    tokens = max(round(work.lengths.mean), 1)
    return {
        "pass": pass_seconds(profile, work.shape, texts=1, tokens=tokens, busy=1),
        "request": request_seconds(profile, tokens),
    }


@lru_cache(maxsize=64)
def service_curve(profile: DeviceProfile, work: EncoderWork, client_s: float = 0.0) -> LatencyCurve:
    """The latencies of the service on this device; see `encoder_queue`."""
    queue = encoder_queue(profile, work, client_s=client_s)
    return latency_curve(queue, Requests(input_tokens=work.lengths, output_tokens=None))


def read_benches(
    rows: Iterable[Mapping[str, str]],
    shapes: Callable[[Mapping[str, str]], ModelShape | None],
    profile: DeviceProfile,
    planned: Lengths | None = None,
) -> tuple[tuple[BenchedLoad, ...], tuple[str, ...]]:
    """Benches of encoder services on the profile's device from rows in the inference facts' columns, and why the other
    rows teach nothing here, each reason once.

    `shapes`: the model of a row. `planned`: lengths of the service that is planned, of which rows hold mean and
    longest. A row of another device, engine or precision is of another service.
    """
    groups: dict[str, dict[str, Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["config_id"], {})[row["metric"]] = row
    found, left_out = [], []
    for name in sorted(groups):
        try:
            found.append(_bench(name, groups[name], shapes, profile, planned))
        except (InputError, ValueError) as error:
            left_out.append(f"{name}: {error}")
    return tuple(found), tuple(left_out)


def _bench(
    name: str, rows: Mapping[str, Mapping[str, str]], shapes: Callable[[Mapping[str, str]], ModelShape | None],
    profile: DeviceProfile, planned: Lengths | None,
) -> BenchedLoad:  # fmt: skip
    row = next(iter(rows.values()))
    if row["gpu"] not in device_names(profile):
        raise InputError(f"measured on '{row['gpu']}', not on {profile.name}")
    if row["kind"] != "encoder":
        raise InputError("it wrote tokens; a local profile holds encoders")
    shape = shapes(row)
    rate, asked, client = (pattern.search(row["note"]) for pattern in (_RATE, _ASKED, _CLIENT))
    if shape is None or rate is None or asked is None or not row["input_len"] or "requests_per_s" not in rows:
        raise InputError("its rows do not state a known model, the rate and the lengths in tokens")
    lengths = Lengths(mean=float(asked[1]), maximum=int(asked[2]))
    if planned is not None and (lengths.mean, lengths.maximum) == (planned.mean, planned.maximum):
        lengths = planned  # with its percentiles, where it has them
    work = EncoderWork(shape=shape, lengths=lengths, precision=row["precision"], engine=row["engine"])
    check_served(work)
    values = {metric: float(one["value"]) for metric, one in rows.items()}
    if not all(isfinite(value) and value > 0 for value in values.values()):
        raise InputError("a figure is not a number above zero")
    latencies = tuple((share, values[metric] / 1e3) for metric, share in _LATENCIES.items() if metric in values)
    return BenchedLoad(
        id=name, work=work, offered_per_s=float(rate[1]), answered_per_s=values["requests_per_s"], latency_s=latencies,
        client_s=float(client[1]) if client else 0.0,
    )  # fmt: skip


def bench_observations(profile: DeviceProfile, benches: Sequence[BenchedLoad]) -> list[LocalObservation]:
    """Each bench as one slowness beside the predicted batch times: the mean, in logarithms, of what its latencies say;
    where it could not follow the rate, what its rate says. The noise is what benches of one service differ by."""
    found = []
    for bench in benches:
        said = _slownesses(bench, service_curve(profile, bench.work, round(bench.client_s, 4)))
        if said:
            mean = sum(log(one) for one in said) / len(said)
            parts = time_parts(profile, bench.work)
            found.append(observed(bench.work.configuration, parts, exp(mean) * sum(parts.values()), 0.0, "serve"))
    repeat = max(repeat_log_sd(found, REPEATS), LEAST_NOISE)
    return [
        LocalObservation(
            configuration=one.configuration, method=one.method, shares=one.shares, log_ratio=one.log_ratio,
            noise_log_sd=repeat,
        )
        for one in found
    ]  # fmt: skip


def _slownesses(bench: BenchedLoad, curve: LatencyCurve) -> list[float]:
    if bench.answered_per_s < SATURATED * bench.offered_per_s:
        return [curve.saturation_per_s / bench.answered_per_s]
    said = [curve.slowness(share, bench.offered_per_s, value) for share, value in bench.latency_s]
    return [one for one in said if one is not None]
