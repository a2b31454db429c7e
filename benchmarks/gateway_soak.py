"""A gateway under mixed load with faults, for many requests: memory, files, holds, and every token it was told.

    python benchmarks/gateway_soak.py [--requests 200000] [--workers 2] [--at-once 32]

`tonnage gateway` runs as processes of its own before a pretended upstream. A third of the requests are streams; of all,
one in a hundred is answered with 500 or 503, with rubbish, or cut in the middle, and one stream in thirty loses its
client. Resident memory and open files of the workers are sampled. At the end no hold may be open but those kept for
answers that may have been billed, and the ledger's rows that are no estimates must be the tokens that the upstream
told, to the token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from time import monotonic

import aiohttp
import psutil

from gateway import free_port, running
from tonnage.api.gateway import gateway_key
from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.upstream import PretendedUpstream

FAULTS = ("status-500", "status-503", "rubbish", "cut")
FAULTY = 0.01  # of all requests
SAMPLE_S = 2.0
WORDS = "hello there my friend of the gateway"


async def drive(url: str, key: str, requests: int, at_once: int, draw: random.Random) -> Counter[str]:
    """The load; answers by what became of them."""
    found: Counter[str] = Counter()
    left = iter(range(requests))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in left:
            fault = draw.choice(FAULTS) if draw.random() < FAULTY else ""
            stream = draw.random() < 0.33
            leaves = stream and draw.random() < 0.03
            text = f"{WORDS} {number} {fault}".strip()
            body = {"model": "chat", "messages": [{"role": "user", "content": text}], "max_tokens": draw.randint(1, 6)}
            if stream:
                body["stream"] = True
            with suppress(aiohttp.ClientError):
                async with session.post(url, json=body) as answer:
                    if leaves:
                        await answer.content.readany()
                        answer.close()
                        found["left"] += 1
                        continue
                    await answer.read()
                    found[str(answer.status)] += 1
                    if answer.status == 503:  # both deployments rest: as a client that is told to come again
                        await asyncio.sleep(0.2)
                    continue
            found["broken"] += 1

    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(at_once)))
    return found


async def sample(workers: list[psutil.Process], samples: list[tuple[float, float, int]]) -> None:
    """Every few seconds: (time, resident MB, open files), summed over the workers."""
    while True:
        with suppress(psutil.Error):
            resident = sum(one.memory_info().rss for one in workers) / 1e6
            samples.append((monotonic(), resident, sum(one.num_fds() for one in workers)))
        await asyncio.sleep(SAMPLE_S)


async def soak(port: int, key: str, given: argparse.Namespace, workers: list[psutil.Process]) -> None:
    samples: list[tuple[float, float, int]] = []
    sampling = asyncio.ensure_future(sample(workers, samples))
    began = monotonic()
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    found = await drive(url, key, given.requests, given.at_once, random.Random(given.seed))
    spent_s = monotonic() - began
    await asyncio.sleep(3.0)
    sampling.cancel()
    print(f"{given.requests:,} requests in {spent_s:.0f} s ({given.requests / spent_s:,.0f} a second): {dict(found)}")
    quarter = max(len(samples) // 4, 1)
    for name, at in (("MB resident", 1), ("open files", 2)):
        second, newest = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
        first, last = (median([one[at] for one in part]) for part in (second, newest))
        most = max(one[at] for one in samples)
        print(f"{name}: {first:.0f} in the second quarter, {last:.0f} in the last, {most:.0f} at most")
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    print(
        *(line for line in lines if line.startswith(("tonnage_gateway_open_holds", "tonnage_gateway_uncertain"))),
        sep="\n",
    )


def compare(folder: Path, upstream: PretendedUpstream) -> int:
    """The ledger against what the upstream told; 0 where they are equal."""
    accounts = SharedAccounts(str(folder / "gateway" / "accounts.db"))
    accounts.open()
    rows = accounts.attempts()
    accounts.close()
    sure = [row for row in rows if not row["estimated"]]
    told = (sum(row["input_tokens"] or 0 for row in sure), sum(row["output_tokens"] or 0 for row in sure))
    outcomes = dict(Counter(row["outcome"] for row in rows))
    print(f"ledger: {len(rows):,} attempts, {len(rows) - len(sure):,} of them estimated; {outcomes}")
    print(f"tokens in and out, ledger: {told}; told by the upstream: {tuple(upstream.told)}")
    return int(told != tuple(upstream.told))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("requests", 200_000), ("workers", 2), ("at-once", 32), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    key, hashed = gateway_key()
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    with tempfile.TemporaryDirectory() as scratch, PretendedUpstream() as upstream, ExitStack() as stack:
        folder, port = Path(scratch), free_port()
        file = folder / "gateway.yaml"
        file.write_text(json.dumps({
            "listen": {"port": port, "workers": given.workers},
            "deployments": {"up": {"url": f"{upstream.url}/v1", "model": "tiny", "price": price},
                            "other": {"url": f"{upstream.url}/v1", "model": "tiny", "price": price}},
            "routes": {"chat": {"deployments": ["up", "other"], "policy": "fastest"}},
            "keys": {"me": {"key": hashed, "team": "a"}}, "budgets": [{"of": "total", "usd": 100_000, "per": "day"}],
        }))  # fmt: skip
        command = [sys.executable, "-m", "tonnage", "gateway", str(file)]
        parent = stack.enter_context(running(command, port, TONNAGE_HOME=str(folder)))
        asyncio.run(soak(port, key, given, parent.children()))
        stack.close()
        return compare(folder, upstream)


if __name__ == "__main__":
    sys.exit(main())
