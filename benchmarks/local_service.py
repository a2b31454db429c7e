"""An encoder service on this machine: predicted from its profile alone and after one bench, beside what was measured.

    tonnage calibrate --local --services
    python benchmarks/local_service.py MODEL_FOLDER --rates 20,50,80,200

The folder's model must answer with embeddings (the protocol that counts tokens) and have the shape of `--model`. The
first rate is the one bench that corrects; each rate is then measured and set beside both predictions. Benches go into
a store of their own, so that no earlier one counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tonnage.api.bench import BenchServeOptions, bench_serve
from tonnage.api.inputs import load_workload
from tonnage.api.serving import ServeOptions
from tonnage.api.started_services import served_here
from tonnage.benchmarks.machine import host_identity
from tonnage.calibration.local_file import find_profile
from tonnage.calibration.local_inference import read_benches
from tonnage.planning.local_service import predict_service
from tonnage.settings import current_settings
from tonnage.sizing.estimates import Figure
from tonnage.traffic.bench import ServiceBench
from tonnage.workload.jobs import ServeJob

WORKLOAD = """kind: serve
model: {model}
serve: {{rate_per_s: 20, input_tokens: {{mean: 48, max: 128}}, p95_latency: 500ms, engine: onnxruntime, weights: fp32}}
"""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder")
    asked.add_argument("--model", default="minilm")
    asked.add_argument("--rates", default="20,50,80,200")
    asked.add_argument("--seconds", type=float, default=30.0)
    given = asked.parse_args()
    with TemporaryDirectory() as home:
        shutil.copytree(current_settings().home / "devices", Path(home) / "devices")
        os.environ["TONNAGE_HOME"] = home
        file = Path(home) / "service.yaml"
        file.write_text(WORKLOAD.format(model=given.model), encoding="utf-8")
        print("rate,load_average,figure,measured,before,before_low,before_high,after_one,after_low,after_high")
        with served_here(given.folder, ServeOptions(name="benched", p95_s=0.5), settings=current_settings()) as url:
            for line in _lines(url, file, [float(one) for one in given.rates.split(",")], given.seconds):
                print(line, flush=True)
    return 0


def _lines(url: str, file: Path, rates: list[float], seconds: float) -> Iterator[str]:
    """A line a figure; the cells of what has no steady state are blank."""
    settings = current_settings()
    job = load_workload(file, settings=settings).job
    assert isinstance(job, ServeJob)
    profile = find_profile("local", settings.home, host_identity())
    first = _measured(url, file, rates[0], seconds, seed=0)
    learnt, left_out = read_benches(first.rows, lambda _: job.model, profile, job.requests.input_tokens)
    assert learnt, left_out
    for number, rate in enumerate(rates, start=1):
        load, bench = os.getloadavg()[0], _measured(url, file, rate, seconds, seed=number)
        client_s, offered = bench.client_cpu_s_per_request, bench.result.offered_per_s
        made = [predict_service(job, profile, benches, client_s=client_s) for benches in ((), learnt)]
        seen = [("requests_per_s", bench.result.requests_per_s, [one.answered_per_s(offered) for one in made])]
        for share in ("p50", "p95") if bench.result.latency else ():
            figures = [one.latency_s(share, offered) for one in made]
            seen.append((f"{share}_s", getattr(bench.result.latency, share), figures))
        for name, measured, predicted in seen:
            cells = [cell for one in predicted for cell in _cells(one)]
            yield ",".join([f"{rate:g}", f"{load:.1f}", name, f"{measured:.4g}", *cells])


def _cells(figure: Figure | None) -> list[str]:
    return ["", "", ""] if figure is None else [f"{one:.4g}" for one in (figure.value, figure.low, figure.high)]


def _measured(url: str, file: Path, rate: float, seconds: float, *, seed: int) -> ServiceBench:
    options = BenchServeOptions(
        workload=str(file), protocol="openai-embeddings", rate_per_s=rate, duration_s=seconds, seed=seed
    )
    return bench_serve(url, options).found


if __name__ == "__main__":
    sys.exit(main())
