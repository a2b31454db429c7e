"""A gateway under mixed load with faults, for many requests: memory, files, holds, and every token it was told.

    python benchmarks/gateway_soak.py [--requests 200000] [--workers 2] [--at-once 32]

`tonnage gateway` runs as processes of its own before a pretended upstream. A third of the requests are streams; of all,
one in a hundred is answered with 500 or 503, with rubbish, or cut in the middle, and one stream in thirty loses its
client. Heads and bodies vary: four keys in turns on the same connections, chats beside completions and embeddings, half
the requests with headers of their own, bodies of 100 bytes to 60 KB, some in chunks, some that close their connection.
Resident memory and open files of the workers are sampled. At the end no hold may be open but those kept for answers
that may have been billed, the ledger's rows that are no estimates must be the tokens that the upstream told, to the
token, and a sample of the answers must be booked on the key that asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import aiohttp
import psutil

from gateway import free_port, running
from tonnage.api.gateway import gateway_key
from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.upstream import PretendedUpstream

FAULTS = ("status-500", "status-503", "rubbish", "cut")
FAULTY = 0.01  # of all requests
SAMPLE_S = 2.0
WORDS = ("hello", "there", "my", "friend", "of", "the", "gateway", "größer", "価格", "\\n", '"model":', "und")
SAMPLED = 0.02  # of the answers: whose key is compared with the ledger's


class Requests:
    """What is asked: each request drawn anew. `keys`: by name; `asked_by`: sampled request ids, and whose they are."""

    def __init__(self, keys: dict[str, str], draw: random.Random) -> None:
        self.keys, self.draw = keys, draw
        self.asked_by: dict[str, str] = {}

    def body(self, number: int) -> tuple[str, dict[str, Any]]:
        """Path and body. Most are short, some long; the order of keys and the faults are drawn too."""
        draw = self.draw
        words = draw.choices(WORDS, k=min(int(draw.paretovariate(0.9) * 5), 9_000))
        fault = [draw.choice(FAULTS)] if draw.random() < FAULTY else []
        text = " ".join([*words, str(number), *fault])
        kind = draw.random()
        if kind < 0.05:
            return "/v1/embeddings", {"model": "chat", "input": text}
        body: dict[str, Any] = {"max_tokens": draw.randint(1, 6), "temperature": draw.choice((0, 0.5, 1.0))}
        if kind < 0.15:
            path = "/v1/completions"
            body["prompt"] = text
        else:
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
        if draw.random() < 0.33:
            body["stream"] = True
        places = [*body.items(), ("model", "chat")]
        draw.shuffle(places)
        return path, dict(places)

    def headers(self, key: str) -> dict[str, str]:
        """Half of them as the same client sends them each time, half with lines of their own."""
        draw = self.draw
        found = {"Authorization": f"Bearer {self.keys[key]}", "Content-Type": "application/json"}
        if draw.random() < 0.5:
            return found
        found["User-Agent"] = f"client/{draw.randint(1, 50)}" + "x" * draw.randint(0, 200)
        if draw.random() < 0.5:
            found["traceparent"] = f"00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01"
        if draw.random() < 0.2:
            found["X-Stainless-Retry-Count"] = str(draw.randint(0, 12))
        if draw.random() < 0.02:
            found["Connection"] = "close"
        if draw.random() < 0.1:
            found = {"x-api-key": self.keys[key], **{name: one for name, one in found.items() if name[0] != "A"}}
        return found


async def in_chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def drive(url: str, asking: Requests, requests: int, at_once: int) -> Counter[str]:
    """The load; answers by what became of them."""
    found: Counter[str] = Counter()
    left, draw, names = iter(range(requests)), asking.draw, list(asking.keys)

    async def client(session: aiohttp.ClientSession) -> None:
        for number in left:
            path, body = asking.body(number)
            leaves = "stream" in body and draw.random() < 0.03
            key = draw.choice(names)
            written = json.dumps(body, ensure_ascii=draw.random() < 0.5, indent=draw.choice((None, None, 1))).encode()
            data = in_chunks(written, draw.randint(20, 2000)) if draw.random() < 0.01 else written
            with suppress(aiohttp.ClientError):
                async with session.post(url + path, data=data, headers=asking.headers(key)) as answer:
                    if draw.random() < SAMPLED and (name := answer.headers.get("x-tonnage-request-id")):
                        asking.asked_by[name] = key
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

    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(at_once)))
    return found


async def sample(workers: list[psutil.Process], samples: list[tuple[float, float, int]]) -> None:
    """Every few seconds: (time, resident MB, open files), summed over the workers."""
    while True:
        with suppress(psutil.Error):
            resident = sum(one.memory_info().rss for one in workers) / 1e6
            samples.append((monotonic(), resident, sum(one.num_fds() for one in workers)))
        await asyncio.sleep(SAMPLE_S)


async def soak(port: int, asking: Requests, given: argparse.Namespace, workers: list[psutil.Process]) -> None:
    samples: list[tuple[float, float, int]] = []
    sampling = asyncio.ensure_future(sample(workers, samples))
    began = monotonic()
    found = await drive(f"http://127.0.0.1:{port}", asking, given.requests, given.at_once)
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


def compare(folder: Path, upstream: PretendedUpstream, asking: Requests) -> int:
    """The ledger against what the upstream told and who asked; 0 where they are equal."""
    accounts = SharedAccounts(str(folder / "gateway" / "accounts.db"))
    accounts.open()
    rows = accounts.attempts()
    accounts.close()
    sure = [row for row in rows if not row["estimated"]]
    recorded = (sum(row["input_tokens"] or 0 for row in sure), sum(row["output_tokens"] or 0 for row in sure))
    outcomes = dict(Counter(row["outcome"] for row in rows))
    print(f"ledger: {len(rows):,} attempts, {len(rows) - len(sure):,} of them estimated; {outcomes}")
    print(f"tokens in and out, ledger: {recorded}; reported by the upstream: {tuple(upstream.reported_tokens)}")
    booked = {row["request"]: row["key"] for row in rows}
    known = {name: key for name, key in asking.asked_by.items() if name in booked}
    wrong = sum(booked[name] != key for name, key in known.items())
    print(f"keys of {len(known):,} sampled requests: {wrong} are booked on another; attempts by key:", end=" ")
    print(dict(Counter(row["key"] for row in rows)))
    return int(recorded != tuple(upstream.reported_tokens) or wrong > 0 or not known)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("requests", 200_000), ("workers", 2), ("at-once", 32), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    made = {name: gateway_key() for name in ("ann", "bob", "cy", "di")}
    asking = Requests({name: key for name, (key, _) in made.items()}, random.Random(given.seed))
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    with tempfile.TemporaryDirectory() as scratch, PretendedUpstream() as upstream, ExitStack() as stack:
        folder, port = Path(scratch), free_port()
        file = folder / "gateway.yaml"
        file.write_text(json.dumps({
            "listen": {"port": port, "workers": given.workers},
            "deployments": {"up": {"url": f"{upstream.url}/v1", "model": "tiny", "price": price},
                            "other": {"url": f"{upstream.url}/v1", "model": "tiny", "price": price}},
            "routes": {"chat": {"deployments": ["up", "other"], "policy": "fastest"}},
            "keys": {name: {"key": hashed, "team": name[0]} for name, (_, hashed) in made.items()},
            "budgets": [{"of": "total", "usd": 100_000, "per": "day"}, {"of": "key:*", "usd": 50_000}],
        }))  # fmt: skip
        command = [sys.executable, "-m", "tonnage", "gateway", str(file)]
        parent = stack.enter_context(running(command, port, TONNAGE_HOME=str(folder)))
        asyncio.run(soak(port, asking, given, parent.children()))
        stack.close()
        return compare(folder, upstream, asking)


if __name__ == "__main__":
    sys.exit(main())
