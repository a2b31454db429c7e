"""CPU of a chunk of a stream through the gateway, everything on, beside nginx's proxy_pass and litellm's proxy.

    python benchmarks/gateway_streams.py --rounds 3 --litellm /path/to/its/bin/litellm

Clients read streams side by side; the upstream writes an event every two milliseconds to each. Every byte must arrive
as it was written, event for event: bytes are compared, and pieces counted, for a proxy that gathers events costs less.
CPU is that of the process that passes, from the operating system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil

import gateway as doors_of

EVENTS, PAUSE_S, CLIENTS = 250, 0.002, 16
USAGE = {"prompt_tokens": 7, "completion_tokens": EVENTS, "total_tokens": 7 + EVENTS}
END = b"data: " + json.dumps({"id": "c", "choices": [], "usage": USAGE}).encode() + b"\n\ndata: [DONE]\n\n"


def event(number: int) -> bytes:
    delta = {"index": 0, "delta": {"content": f" word{number:04}"}, "finish_reason": None}
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [delta]}
    return b"data: " + json.dumps(said).encode() + b"\n\n"


SENT = b"".join(event(number) for number in range(EVENTS)) + END


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection of the upstream: a stream for each request."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for piece in (*(event(number) for number in range(EVENTS)), END):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(PAUSE_S)
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def upstream(port: int) -> None:
    async def serve() -> None:
        await (await asyncio.start_server(stream, "127.0.0.1", port)).serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()


async def read_one(port: int, key: str) -> tuple[bytes, int]:
    """The stream as it came, without its framing, and in how many pieces."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"model": "chat", "max_tokens": EVENTS, "stream": True, "stream_options": {"include_usage": True},
             "messages": [{"role": "user", "content": "hello"}]}  # fmt: skip
    body = json.dumps(asked).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in answer.split(b"\r\n")[0]:
        raise SystemExit(f"port {port}: {answer.decode()}")
    found, pieces = b"", 0
    while size := int((await reader.readline()).split(b";")[0], 16):
        found += (await reader.readexactly(size + 2))[:-2]
        pieces += 1
    writer.close()
    return found, pieces


async def read_all(port: int, key: str) -> list[tuple[bytes, int]]:
    return await asyncio.gather(*(read_one(port, key) for _ in range(CLIENTS)))


def measured(name: str, port: int, processes: list[psutil.Process], key: str) -> tuple[float, float]:
    """(CPU in microseconds an event, pieces an event). SystemExit where the bytes are others."""
    before = doors_of.cpu_s(processes)
    found = asyncio.run(read_all(port, key))
    spent = doors_of.cpu_s(processes) - before
    if name != "litellm" and any(body != SENT for body, _ in found):
        raise SystemExit(f"{name} passes other bytes than it was sent")
    events = CLIENTS * (EVENTS + 1)
    return 1e6 * spent / events, sum(pieces for _, pieces in found) / events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--litellm", help="the program of litellm's proxy")
    given = parser.parse_args()
    key, hashed = doors_of.gateway_key()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder, behind = Path(scratch), doors_of.free_port()
        upstream(behind)
        doors = {"tonnage": doors_of.gateway(folder, behind, stack, hashed)}
        if shutil.which("nginx"):
            doors["nginx"] = doors_of.nginx(folder, behind, stack)
        else:
            print("nginx is left out: apt-get install nginx-light")
        if given.litellm:
            doors["litellm"] = doors_of.litellm(folder, behind, stack, given.litellm, key)
        else:
            print("litellm is left out: --litellm")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in doors}
        for _ in range(given.rounds):
            for name, (port, processes) in doors.items():
                found[name].append(measured(name, port, processes, key))
        base = median([cost for cost, _ in found["nginx"]]) if "nginx" in found else None
        print(f"{CLIENTS} streams side by side, {EVENTS + 1} events each")
        print("door     CPU us an event (min to max)  x nginx  pieces an event")
        for name, rounds in found.items():
            costs, pieces = [one[0] for one in rounds], median([one[1] for one in rounds])
            ratio = "" if base is None else f"{median(costs) / base:.2f}"
            print(f"{name:8} {median(costs):6.1f} ({min(costs):.1f} to {max(costs):.1f})".ljust(38)
                  + f"{ratio:>8}  {pieces:.3f}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
