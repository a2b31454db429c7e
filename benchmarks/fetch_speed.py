"""`tonnage fetch` beside curl and huggingface_hub on a server of this machine: once as fast as it goes, once with the
rate of each connection held down, as object stores and mirrors do.

    python benchmarks/fetch_speed.py [--size-mib 1024] [--rate-mib 40] [--rounds 3]

Every run writes a fresh file and knows its SHA-256 at the end (curl by `sha256sum`). Printed: seconds, MiB/s, and the
rival's seconds over ours (above 1: we are faster).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

BLOCK = 256 * 1024


def serve(path: Path, rate_mib: float) -> None:
    """One file with ranges, each answer at `rate_mib` MiB/s at most (0: as fast as it goes). Prints its port."""
    size = path.stat().st_size

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            start = int(asked[1]) if asked else 0
            end = min(int(asked[2]) + 1, size) if asked and asked[2] else size
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            for name, value in {
                "Content-Length": str(end - start),
                "ETag": '"fixed"',
                "X-Repo-Commit": "a" * 40,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.flush()
            begun = time.monotonic()
            with path.open("rb") as stream:
                at = start
                while at < end:
                    at += os.sendfile(self.connection.fileno(), stream.fileno(), at, min(BLOCK, end - at))
                    if rate_mib:
                        time.sleep(max(0.0, (at - start) / (rate_mib * 2**20) - (time.monotonic() - begun)))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


def by_tonnage(url: str, folder: Path) -> str:
    from tonnage.fetching import FetchRequest, fetch

    done = fetch(
        FetchRequest(sources=(url,), targets=(str(folder / "out"),), cache=folder / "cache", now=datetime.now(UTC))
    )
    if done.failures or done.files[0].sha256 is None:
        raise SystemExit(f"tonnage fetch failed: {done.files[0].problem}")
    return done.files[0].sha256


def by_curl(url: str, folder: Path) -> str:
    goal = str(folder / "curl")
    subprocess.run(["curl", "-s", "--fail", "-o", goal, url], check=True)
    return subprocess.run(["sha256sum", goal], check=True, capture_output=True, text=True).stdout.split()[0]


def by_aria2(url: str, folder: Path) -> str:
    split = ["-x", "8", "-s", "8", "-k", "8M", "--file-allocation=none", "--quiet=true"]
    subprocess.run(["aria2c", *split, "-d", str(folder), "-o", "aria2", url], check=True)
    return subprocess.run(["sha256sum", folder / "aria2"], check=True, capture_output=True, text=True).stdout.split()[0]


def by_huggingface_hub(url: str, folder: Path) -> str:
    """Its own download of one file over http (no Xet storage here), then the digest."""
    from huggingface_hub.file_download import http_get

    with (folder / "hub").open("wb") as stream:
        http_get(url, stream)
    with (folder / "hub").open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def ways() -> dict[str, Callable[[str, Path], str]]:
    """Ours first, then every rival that is installed."""
    found: dict[str, Callable[[str, Path], str]] = {"tonnage": by_tonnage}
    if shutil.which("curl"):
        found["curl"] = by_curl
    if shutil.which("aria2c"):
        found["aria2c"] = by_aria2
    try:
        import huggingface_hub  # noqa: F401

        found["huggingface_hub"] = by_huggingface_hub
    except ModuleNotFoundError:
        print("huggingface_hub is not installed: left out")
    return found


def measure(url: str, digest: str, rounds: int, place: Path) -> dict[str, float]:
    """Median seconds of each way; the ways take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways()}
    for _ in range(rounds):
        for name, way in ways().items():
            folder = Path(tempfile.mkdtemp(dir=place))
            begun = time.perf_counter()
            found = way(url, folder)
            times[name].append(time.perf_counter() - begun)
            shutil.rmtree(folder)
            if found != digest:
                raise SystemExit(f"{name} brought other bytes")
    return {name: median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rate-mib", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve[0]), float(given.serve[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        place, file = Path(folder), Path(folder) / "weights.bin"
        block = os.urandom(2**20)
        with file.open("wb") as stream:
            for number in range(given.size_mib):
                stream.write(number.to_bytes(8, "big") + block[8:])
        with file.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        for rate in (0.0, given.rate_mib):
            command = [sys.executable, __file__, "--serve", str(file), str(rate)]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert server.stdout is not None
            try:
                url = f"http://127.0.0.1:{server.stdout.readline().strip()}/weights.bin"
                taken = measure(url, digest, given.rounds, place)
            finally:
                server.terminate()
                server.wait()
            said = f"{rate:g} MiB/s a connection" if rate else "no limit"
            print(f"{given.size_mib} MiB, {said}:")
            for name, seconds in taken.items():
                ratio = "" if name == "tonnage" else f"  {name} / tonnage = {seconds / taken['tonnage']:.2f}"
                print(f"  {name:16} {seconds:6.2f} s  {given.size_mib / seconds:7.0f} MiB/s{ratio}")


if __name__ == "__main__":
    main()
