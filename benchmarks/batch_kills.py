"""`tonnage batch` killed with SIGKILL again and again: rows lost, rows written twice, rows asked for twice.

    python benchmarks/batch_kills.py --kills 100 --rows 100000

A service of our own (`tonnage.testing.upstream`) counts what was asked for, by idempotency key. Of five kills four come
at a random moment after new rows were recorded, one at a random moment after the start.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tonnage.testing.upstream import PretendedUpstream


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--longest-s", type=float, default=0.5, help="from new rows to a kill")
    parser.add_argument("--delay-s", type=float, default=0.01, help="of one answer")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, PretendedUpstream(delay_s=given.delay_s) as upstream:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        with source.open("w") as stream:
            stream.writelines(json.dumps({"id": f"r{at}", "text": f"text {at}"}) + "\n" for at in range(given.rows))
        draw, sizes, torn = random.Random(given.seed), [], 0
        for number in range(given.kills):
            process = start(source, out, upstream.url)
            if number % 5:
                wait_for_growth(out, sizes[-1])
                time.sleep(draw.uniform(0.0, given.longest_s))
            else:
                time.sleep(draw.uniform(0.0, 4.0))
            process.kill()
            process.wait()
            text = out.read_bytes()[-1:] if out.exists() else b""
            torn += text not in (b"", b"\n")
            sizes.append(out.stat().st_size if out.exists() else 0)
        upstream.delay_s = 0.0
        code = start(source, out, upstream.url).wait()
        found = Counter(json.loads(line)["custom_id"] for line in out.open())
        lost = sum(f"r{at}" not in found for at in range(given.rows))
        twice = sum(count > 1 for count in found.values())
        again = sum(count - 1 for count in upstream.seen.values())
    advanced = sum(after > before for before, after in zip([0, *sizes], sizes, strict=False))
    print(
        f"{given.rows:,} rows, {given.kills} kills ({advanced} after new rows, {torn} with a torn line): {lost} lost,"
    )
    print(f"{twice} twice in the output, {again:,} asked for again on the wire; last run ended with {code}")
    return int(bool(lost or twice or code))


def wait_for_growth(out: Path, from_bytes: int) -> None:
    for _ in range(6000):
        if out.exists() and out.stat().st_size > from_bytes:
            return
        time.sleep(0.01)
    raise TimeoutError(out)


def start(source: Path, out: Path, url: str) -> subprocess.Popen[bytes]:
    words = ["batch", str(source), str(out), "--url", url, "--model", "tiny", "--concurrency", "16", "-q"]
    return subprocess.Popen([sys.executable, "-m", "tonnage", *words], stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
