"""Encoder services timed on this machine: passes of reference encoders and the server's own work a request."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.serving import ServeOptions
from tonnage.errors import InputError
from tonnage.serving.encoder.folders import read_folder
from tonnage.settings import Settings
from tonnage.testing.tiny_encoders import write_tiny_encoder
from tonnage.workload.encoder_terms import Number
from tonnage.workload.shapes import ModelShape

if TYPE_CHECKING:
    import psutil

    from tonnage.calibration.local_profile import DeviceCurve, DeviceProfile
    from tonnage.workload.shapes import ModelShape

OnMeasure = Callable[[str, int, int], None]
# Width, heads and layers of the encoders that are timed: few layers, since each costs the same as the next.
ENCODERS: Final = ((64, 2, 4), (384, 12, 4), (768, 12, 2))
LENGTHS: Final = (8, 32, 128, 384)
# Texts of a pass by number format; the scales of dynamic int8 are those of a whole batch, so texts go alone.
FORMATS: Final[Mapping[Number, tuple[int, ...]]] = MappingProxyType({"fp32": (1, 4, 16), "int8": (1,)})
MOST_TOKENS: Final = 2048  # of one pass
REQUEST_LENGTHS: Final = (8, 128)
REQUESTS: Final = 300  # a length; processor times are counted in hundredths of a second
POSITIONS: Final = 512


def with_services(profile: DeviceProfile, settings: Settings, *, quick: bool, on_step: OnMeasure) -> DeviceProfile:
    """The profile with curves of encoder services on this machine's processor in place of those it had.

    Needs the extras `train` and `serve`; a server of a small model is started on a free port. Raises InputError for a
    profile of a GPU: the server's curves are those of ONNX Runtime on processors.
    """
    if profile.kind != "cpu":
        raise InputError("encoder services are timed on processors only", hint="--device cpu")
    with TemporaryDirectory(prefix="tonnage-encoders-") as folder:
        passes = tuple(_pass_curves(Path(folder), quick, on_step))
        request = _request_curve(replace(profile, curves=passes), Path(folder), settings, on_step)
    others = tuple(one for one in profile.curves if not one.of_service)
    return replace(profile, curves=(*others, *passes, request))


def reference_shape(hidden: int, heads: int, layers: int) -> ModelShape:
    """The shape of an encoder that is timed."""
    return ModelShape(
        name=f"encoder-{hidden}", architecture="encoder", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=4 * hidden, vocab=13, max_positions=POSITIONS,
    )  # fmt: skip


def _pass_curves(folder: Path, quick: bool, on_step: OnMeasure) -> Iterator[DeviceCurve]:
    """For each width and length: one worker alone, and one on every core; in fp32, and one text at a time in int8."""
    from tonnage.benchmarks.encoder_passes import time_passes
    from tonnage.calibration.local_inference import PASS, forward_flop
    from tonnage.calibration.local_profile import DeviceCurve, MeasuredPoint

    counts = sorted({1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1})
    many, done = len(FORMATS) * len(ENCODERS) * len(LENGTHS) * len(counts), 0
    for hidden, heads, layers, weights in ((*one, weights) for one in ENCODERS for weights in FORMATS):
        on_step(f"encoder of width {hidden}, {weights}: exported", done, many)
        make, shape = _opened(folder, hidden, heads, layers, weights), reference_shape(hidden, heads, layers)
        for tokens in LENGTHS:
            batches = [one for one in FORMATS[weights] if one * tokens <= MOST_TOKENS]
            for workers in counts:
                done += 1
                on_step(f"encoder of width {hidden}, {weights}: {tokens} tokens, {workers} at a time", done, many)
                points = tuple(
                    MeasuredPoint(
                        size=float(texts * tokens), amount=forward_flop(shape, texts=texts, tokens=tokens), timing=took
                    )
                    for texts, took in time_passes(make, batches, tokens=tokens, workers=workers, quick=quick)
                )
                yield DeviceCurve(
                    operation=f"{PASS} {hidden} x {tokens}", precision=weights, threads=workers, unit="flop",
                    points=points,
                )  # fmt: skip


def _opened(
    folder: Path, hidden: int, heads: int, layers: int, weights: Number
) -> Callable[[int, int], Callable[[], object]]:
    """The encoder as the server opens it; a pass of so many texts of so many tokens."""
    import numpy as np

    from tonnage.serving.encoder.runtimes import open_model
    from tonnage.serving.encoder.service import EncoderService

    place = folder / str(hidden)
    write_tiny_encoder(place, "classification", hidden=hidden, heads=heads, layers=layers, positions=POSITIONS)
    model = open_model(
        read_folder(place),
        EncoderService(model=str(place), name="timed", weights=weights),
        folder / "exported",
        threads=1,
    )
    if model.device != "cpu":
        raise InputError("ONNX Runtime computes on a GPU here; services are timed on processors only")

    def make(texts: int, tokens: int) -> Callable[[], object]:
        ids = np.full((texts, tokens), 5, dtype=np.int64)
        return lambda: model.outputs(ids, np.ones_like(ids), np.zeros_like(ids))

    return make


def _request_curve(timed: DeviceProfile, folder: Path, settings: Settings, on_step: OnMeasure) -> DeviceCurve:
    """Processor seconds of a real server for a request, its pass taken off, at two lengths."""
    from tonnage.api.started_services import served_here
    from tonnage.calibration.local_inference import PRECISION, REQUEST, pass_seconds
    from tonnage.calibration.local_profile import DeviceCurve, MeasuredPoint, Timing

    hidden, heads, layers = ENCODERS[0]
    own = replace(settings, home=folder)
    points = []
    asked = ServeOptions(workers=1, batch_tokens=1, name="timed", ready_timeout_s=120.0)
    with served_here(str(folder / str(hidden)), asked, settings=own) as url:
        server = _server_process()
        for done, tokens in enumerate(REQUEST_LENGTHS, start=1):
            on_step(f"server: requests of {tokens} tokens", done, len(REQUEST_LENGTHS))
            each = _request_cpu_s(url, tokens, server)
            shape = reference_shape(hidden, heads, layers)
            rest = each - pass_seconds(timed, shape, texts=1, tokens=tokens, busy=1)
            if rest <= 0:
                raise InputError(
                    "the server's own work could not be separated from its passes: the machine is too busy"
                )
            took = Timing(median_s=rest, low_quartile_s=rest, high_quartile_s=rest, repeats=REQUESTS)
            points.append(MeasuredPoint(size=float(tokens), amount=1.0, timing=took))
    return DeviceCurve(operation=REQUEST, precision=PRECISION, threads=1, unit="calls", points=tuple(points))


def _server_process() -> psutil.Process:
    """The encoder server that this process started."""
    import psutil

    for one in psutil.Process().children(recursive=True):
        if "tonnage.serving.encoder" in one.cmdline():
            return one
    raise InputError("the encoder server that was started is not there")


def _request_cpu_s(url: str, tokens: int, server: psutil.Process) -> float:
    """Processor seconds of the server for one request; one connection, one request after the other."""
    endpoint = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30.0)
    text = " ".join(["good"] * (tokens - 2))  # and one at each end
    body = json.dumps({"inputs": text})

    def ask(count: int) -> None:
        for _ in range(count):
            endpoint.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer: Any = endpoint.getresponse()
            if answer.read() and answer.status != 200:
                raise InputError(f"the encoder server answered {answer.status} to a request of {tokens} tokens")

    try:
        ask(REQUESTS // 10)
        before = _cpu_s(server)
        ask(REQUESTS)
        time.sleep(0.05)
        return (_cpu_s(server) - before) / REQUESTS
    finally:
        endpoint.close()


def _cpu_s(server: psutil.Process) -> float:
    found = server.cpu_times()
    return float(found.user + found.system)
