"""The pool of connections: answers of every framing, connections that end, TLS that is verified."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvloop")

from tonnage.http import pool as pools
from tonnage.http.pool import ExchangeFault, HttpAnswer, HttpPool, read_endpoint, request_bytes, run_in_loop

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, times: int = 1, tls: ssl.SSLContext | None = None, timeout_s: float = 5.0) -> list[HttpAnswer]:
    """The answers to so many requests, one after another, of a server whose connections `serve` handles."""

    async def work() -> list[HttpAnswer]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        pool = HttpPool(read_endpoint(f"http{'s' if tls else ''}://localhost:{port}/base"))
        request = request_bytes(pool.endpoint, "/path", b"{}", {"X": "y"})
        try:
            return [await pool.send(request, timeout_s=timeout_s) for _ in range(times)]
        finally:
            pool.close()
            server.close()

    return run_in_loop(work())


def answering(*answers: bytes, close: bool = False) -> tuple[Serve, list[bytes]]:
    """A server that gives each connection these answers in turn, and the requests that it got."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            try:
                got.append(await reader.readuntil(b"{}"))
            except asyncio.IncompleteReadError:
                break
            writer.write(answer)
            await writer.drain()
        if close:
            writer.close()
        else:
            await reader.read()
            writer.close()

    return serve, got


@pytest.mark.parametrize(
    ("answer", "close"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", True),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
    ],
)
def test_every_framing_is_read(answer: bytes, close: bool) -> None:
    """A length, chunks, the end of the connection; an interim answer before. The request is whole."""
    serve, got = answering(answer, close=close)
    (found,) = asked(serve)
    assert (found.status, found.body) == (200, b"hello")
    assert found.sent_s <= found.first_byte_s <= found.last_byte_s
    head, _, body = got[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/path HTTP/1.1\r\nHost: localhost:")
    assert b"X: y" in head
    assert body == b"{}"


def test_a_connection_is_kept_and_replaced_once_it_ends() -> None:
    """Two requests on the first connection; the server closes it, and a third goes over a new one unnoticed."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    serve, got = answering(ok, ok, close=True)
    assert [one.body for one in asked(serve, times=5)] == [b"ok"] * 5
    assert len(got) == 5


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not-http"),
        (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", "closed"),
    ],
)
def test_what_is_no_answer_is_a_fault(answer: bytes, kind: str) -> None:
    """Another protocol, nothing at all, half of an answer."""
    serve, _ = answering(answer, close=True)
    with pytest.raises(ExchangeFault) as fault:
        asked(serve)
    assert fault.value.kind == kind


def test_an_answer_that_is_too_large_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it fills the memory."""
    monkeypatch.setattr(pools, "LARGEST_ANSWER_BYTES", 1000)
    serve, _ = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
    with pytest.raises(ExchangeFault, match="over 1,000 bytes") as fault:
        asked(serve)
    assert fault.value.kind == "too-large"


def test_a_silent_server_times_out() -> None:
    """After the time given, whatever was connected."""
    serve, _ = answering(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(ExchangeFault, match=r"in 0\.1 s") as fault:
        asked(serve, timeout_s=0.1)
    assert fault.value.kind == "timeout"


def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with a certificate that nobody signed is refused; one that is trusted answers."""
    certificate = self_signed(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)
    serve, _ = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    with pytest.raises(ExchangeFault, match="certificate") as fault:
        asked(serve, tls=server)
    assert (fault.value.kind, fault.value.sent) == ("connect", False)
    monkeypatch.setattr(pools, "tls_context", lambda: ssl.create_default_context(cafile=certificate))
    assert asked(serve, tls=server)[0].body == b"ok"


def self_signed(folder: Path) -> Path:
    """A key and its certificate for localhost, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    place = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    place.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return place
