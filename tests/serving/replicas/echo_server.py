"""A tiny HTTP server for tests of replicas: `python echo_server.py PORT [READY_AFTER_S]`.

POST /work?s=0.1 answers after that time with its own pid; /stream?n=5&s=0.02 sends pieces; /die ends the process in
the middle of an answer. ECHO_STATUS, ECHO_SLOWER_S and ECHO_VERSION make it another version.
SIGTERM ends it at once: what it is doing then is lost, as with most engines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from urllib.parse import parse_qs, urlsplit


async def serve(port: int, ready_after_s: float) -> None:
    ready_at = time.monotonic() + ready_after_s

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await one(reader, writer, ready_at):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    await server.serve_forever()


async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ready_at: float) -> bool:
    """One request of a connection; False at its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    url = urlsplit(lines[0].split()[1])
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
    body = await reader.readexactly(length)
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    if url.path == "/health":
        answer(writer, 200 if time.monotonic() >= ready_at else 503, b"{}")
    elif url.path == "/stream":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(int(asked.get("n", "3"))):
            await asyncio.sleep(float(asked.get("s", "0")))
            piece = f"data: {number}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            if asked.get("die") == str(number):
                os._exit(9)
        writer.write(b"0\r\n\r\n")
    elif url.path == "/die":
        marker = asked["once"]
        if not os.path.exists(marker):
            open(marker, "w").close()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")
            await writer.drain()
            os._exit(9)
        answer(writer, 200, b'{"alive": true}')
    else:
        await asyncio.sleep(float(asked.get("s", "0")) + float(os.environ.get("ECHO_SLOWER_S", "0")))
        found = {"pid": os.getpid(), "bytes": len(body), "version": os.environ.get("ECHO_VERSION", "")}
        answer(writer, int(os.environ.get("ECHO_STATUS", "200")), json.dumps(found).encode())
    await writer.drain()
    return True


def answer(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(
        b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    )
    writer.write(body)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
