"""Every slider of the what-if pages: processor time until the page is drawn anew, ranking and ledger included.

    python benchmarks/slider_speed.py examples serve-bert gptj-6b-lora

The server is in this process, so its processor time is counted and not what the machine does beside it. Each slider is
moved `--times` times to values that were not asked for before; the first look at a page, which loads the catalog, is
left out.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from tonnage.settings import current_settings
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer, make_app
from tonnage.web.asked import workload_files
from tonnage.web.keys import KeyFile
from tonnage.web.whatif import Slider, changed_workload


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="workloads of the folder; left out: all of them")
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        access = Access(keys=KeyFile(Path(home) / "keys.json"), open_here=True, hosts=LOCAL_NAMES)
        server = WebServer(current_settings(), asked.folder, access, secure=False, audit=lambda **_: None)
        asyncio.run(_measure(make_app(server), asked))
    return 0


async def _measure(app: object, asked: argparse.Namespace) -> None:
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    print(f"{'page':<40} {'slider':<16} {'median ms':>10} {'most ms':>8}")
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:
        for name, file in workload_files(asked.folder).items():
            if (asked.names and name not in asked.names) or (await client.get(f"/plan/{name}")).status_code != 200:
                continue
            _, chosen = changed_workload(file, {})
            for slider, value in chosen:
                took_ms = []
                for number in range(asked.times):
                    query = {slider.name: f"{_moved(slider, value, number):.6g}", "fragment": "1"}
                    began_s = time.process_time()
                    answer = await client.get(f"/plan/{name}", params=query)
                    took_ms.append((time.process_time() - began_s) * 1000)
                    if answer.status_code not in (200, 422):
                        raise SystemExit(f"{name}, {query}: {answer.status_code} {answer.text[:200]}")
                print(f"{name:<40} {slider.name:<16} {statistics.median(took_ms):>10.0f} {max(took_ms):>8.0f}")


def _moved(slider: Slider, value: float | None, number: int) -> float:
    """Up and down by some percent more each time; an open slider begins in the middle of what it may be."""
    middle = (slider.least * slider.most) ** 0.5 if value is None else value
    moved = min(max(middle * (1 + 0.07 * (number + 1)) ** (-1) ** number, slider.least), slider.most)
    return max(round(moved), 1) if slider.whole else moved


if __name__ == "__main__":
    raise SystemExit(main())
