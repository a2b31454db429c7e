"""An API server for tests, on 127.0.0.1: the verdicts of a real one, its error words, and faults on request.

with fake_cluster(folder) as cluster: ...        # cluster.kubeconfig names its context, `fake`
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

from tonnage.places.kubernetes.checking.judging import Server
from tonnage.testing.http_service import QuietHandler
from tonnage.testing.kubernetes.controller import Controller
from tonnage.testing.kubernetes.store import FakeObjectStore, FakeServerRefusal

Document = dict[str, Any]
TOKEN: Final = "let-me-in"
WAIT_S: Final = 10.0
ACCEPT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
GROUPS: Final = {
    "batch/v1": ("jobs",), "networking.k8s.io/v1": ("networkpolicies",), "jobset.x-k8s.io/v1alpha2": ("jobsets",),
    "ray.io/v1": ("rayjobs",), "trainer.kubeflow.org/v1alpha1": ("trainjobs",),
}  # fmt: skip
ITEM: Final = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?"
    r"(?:/(?P<part>[a-z]+))?"
)
Fault = Callable[[str, str], "int | FakeServerRefusal | None"]  # (method, path) -> an answer instead; None: none


class FakeCluster:
    """A running one. `faults` are asked before each request, `after` once it is done: the answer is then lost."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.store = folder, FakeObjectStore(server)
        self.controller = Controller(self.store, folder)
        self.faults: list[Fault] = []
        self.after: list[Fault] = []
        self.denied: set[tuple[str, str]] = set()  # (verb, resource)
        self.groups = dict(GROUPS)
        self.requests: list[tuple[str, str]] = []
        self.said: dict[str, Callable[[], Iterable[bytes]]] = {}  # by pod: its log, in place of what it has written
        self.tokens = {TOKEN}
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_APIServerHandler,), {"cluster": self}))
        self.http.daemon_threads = True
        for name in server.namespaces or ("default",):
            self.lay("/api/v1/namespaces", "", {"metadata": {"name": name}})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    @property
    def kubeconfig(self) -> Path:
        """A file whose context `fake` leads here."""
        path = self.folder / "kubeconfig"
        made = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "fake", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(made))
        return path

    def lay(self, path: str, namespace: str, document: Document) -> Document:
        """Put an object there, unchecked."""
        return self.store.put(path, namespace, document)

    def wait_for_pod(self, path: str) -> None:
        """Until the controller has made one."""
        until = time.monotonic() + WAIT_S
        while not self.store.find(path):
            if time.monotonic() > until:
                raise TimeoutError("no pod was made")
            time.sleep(0.005)


@contextmanager
def fake_cluster(folder: Path, server: Server | None = None) -> Iterator[FakeCluster]:
    """One that runs until the end of the block, with no process left."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = FakeCluster(folder, server or Server(namespaces=frozenset({"ml"}), kueue=False))
    thread = threading.Thread(target=cluster.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    cluster.controller.start()
    try:
        yield cluster
    finally:
        cluster.controller.close()
        cluster.http.shutdown()
        cluster.http.server_close()
        thread.join()


class _APIServerHandler(QuietHandler):
    cluster: FakeCluster

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        split = urlsplit(self.path)
        path, query = split.path, {key: values[-1] for key, values in parse_qs(split.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.cluster.requests.append((method, path))
        try:
            if self.headers.get("Authorization") not in {f"Bearer {one}" for one in self.cluster.tokens}:
                raise FakeServerRefusal(401, "Unauthorized", reason="Unauthorized")
            self._fault(self.cluster.faults, method, path)
            if path.endswith("/exec"):
                self._exec(path.removesuffix("/exec"), parse_qs(split.query).get("command", []))
                return
            if path.endswith("/log"):
                self._send_log(path.removesuffix("/log"), query)
                return
            found = self._done(method, path, query, body)
            self._fault(self.cluster.after, method, path)
            self._send(201 if method == "POST" else 200, json.dumps(found).encode())
        except FakeServerRefusal as error:
            self._send(error.code, json.dumps(error.status).encode())
        except ConnectionError:
            self.close_connection = True

    def _fault(self, faults: list[Fault], method: str, path: str) -> None:
        for fault in list(faults):
            found = fault(method, path)
            if isinstance(found, FakeServerRefusal):
                raise found
            if found is not None and found < 0:  # the connection breaks
                self.connection.close()
                raise ConnectionError
            if found is not None:
                raise FakeServerRefusal(found, f"pretended {found}")

    def _send(self, code: int, content: bytes, *, kind: str = "application/json") -> None:
        self.say(code, content, kind, {"Retry-After": "1"} if code == 429 else None)

    def _done(self, method: str, path: str, query: dict[str, str], body: bytes) -> Document:
        store = self.cluster.store
        if path == "/version":
            return {"major": "1", "minor": "36"}
        if path.endswith("/selfsubjectaccessreviews"):
            asked = json.loads(body)["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
            return {"status": {"allowed": (asked["verb"], resource) not in self.cluster.denied}}
        group = path.removeprefix("/apis/").removeprefix("/api/")
        if group in self.cluster.groups:
            return {"resources": [{"name": one} for one in self.cluster.groups[group]]}
        found = ITEM.fullmatch(path)
        if found is None:
            raise FakeServerRefusal(404, "the server could not find the requested resource")
        if ("list" if not found["name"] else "get", found["plural"]) in self.cluster.denied and method == "GET":
            raise FakeServerRefusal(403, f"{found['plural']} is forbidden")
        if method == "POST":
            return store.create(path, found["namespace"] or "", json.loads(body), dry_run="dryRun" in query)
        if method == "PATCH":
            manager, force = query.get("fieldManager", ""), query.get("force") == "true"
            return store.apply(path, found["namespace"] or "", json.loads(body), manager=manager, force=force)
        if method == "DELETE":
            with store.lock:
                self.cluster.controller.delete(path, grace_s=json.loads(body or b"{}").get("gracePeriodSeconds"))
            return {"kind": "Status", "status": "Success"}
        if found["name"] and not (found["plural"] == "namespaces" and found["part"]):
            return store.get(path)
        return self._list(path, query)

    def _list(self, path: str, query: dict[str, str]) -> Document:
        store = self.cluster.store
        found = store.find(path, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", ""))
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0) or len(found)
        more = str(start + limit) if start + limit < len(found) else ""
        return {"kind": "List", "metadata": {"continue": more}, "items": found[start : start + limit]}

    def _send_log(self, path: str, query: dict[str, str]) -> None:
        """All of it: sinceTime leaves out lines that the client knows, and it knows them."""
        del query
        pod = self.cluster.store.get(path)
        if pod["metadata"]["uid"] in self.cluster.controller.lost:
            raise FakeServerRefusal(500, "dial tcp 10.0.0.7:10250: connect: no route to host")
        if (said := self.cluster.said.get(pod["metadata"]["name"])) is not None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Connection", "close")  # no length is known before
            self.end_headers()
            self.close_connection = True
            for block in said():
                self.wfile.write(block)
            return
        process = self.cluster.controller.processes.get(pod["metadata"]["uid"])
        if process is None:
            raise FakeServerRefusal(400, "container is waiting to start: ContainerCreating")
        self._send(200, process.log.read_bytes(), kind="text/plain")

    def _exec(self, path: str, argv: list[str]) -> None:
        pod = self.cluster.store.get(path)
        if ("create", "pods/exec") in self.cluster.denied:
            raise FakeServerRefusal(403, "pods/exec is forbidden")
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + ACCEPT, usedforsecurity=False).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept),
                            ("Sec-WebSocket-Protocol", "v5.channel.k8s.io")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        done = subprocess.run(
            argv, env=self.cluster.controller.environment(pod, None), capture_output=True, check=False
        )
        for channel, content in ((b"\x01", done.stdout), (b"\x02", done.stderr)):
            for start in range(0, len(content), 1 << 16):
                self._frame(channel + content[start : start + (1 << 16)])
        status: Document = {"status": "Success"}
        if done.returncode:
            cause = {"reason": "ExitCode", "message": str(done.returncode)}
            status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        self._frame(b"\x03" + json.dumps(status).encode())
        self.close_connection = True

    def _frame(self, content: bytes) -> None:
        length = len(content)
        head = struct.pack("!BB", 0x82, length) if length < 126 else struct.pack("!BBH", 0x82, 126, length) if (
            length < 1 << 16) else struct.pack("!BBQ", 0x82, 127, length)  # fmt: skip
        self.wfile.write(head + content)
        self.wfile.flush()
