"""A DigitalOcean account: droplets with their documented life, keys of Spaces, tags, and what `check` asks.

with fake_digitalocean(folder) as service: ...      # DIGITALOCEAN_API_URL = service.url, and a token

Bodies are held to the OpenAPI document. A droplet is a process of this machine.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tonnage.http.body_shapes import faults_of, recorded_schemas
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import FakeMachine, laid_script, lay_curl, lay_docker, lay_files, start_machine
from tonnage.values import dataclass

TOKEN: Final = "test-token"
SSH_KEY: Final = "3b:16:e4:bf:8b:00:8b:b8:59:8c:a9:d3:f0:19:fa:45"
TAG: Final = re.compile(r"[a-zA-Z0-9_:-]{1,255}")
ID_OF_MACHINE: Final = '*/metadata/v1/id*) echo "$TONNAGE_FAKE_ID";;\n*"-X DELETE"*) exit 0;;'


@dataclass(slots=True, kw_only=True)
class FakeDroplet:
    """One droplet."""

    number: int
    body: Document
    status: str = "new"
    since: float = 0.0
    machine: FakeMachine | None = None

    @property
    def document(self) -> Document:
        """As the API tells of it."""
        return {"id": self.number, "name": self.body["name"], "status": self.status, "tags": self.body["tags"]}


class FakeDigitalOcean:
    """A running account. `there`: what GET answers, by path; `lists`: members of lists, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, lay_docker(folder)
        lay_curl(folder, ID_OF_MACHINE)
        self.droplets: dict[int, FakeDroplet] = {}
        self.keys: dict[str, Document] = {}
        self.tags: set[str] = set()
        self.full = ""  # why no droplet is made
        self.hidden = 0  # so many lists of droplets do not show the newest one
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.page, self.boot_s = 200, 0.1
        self.space_keys = ("test-key", "test-secret")  # what a new key of Spaces is
        self.lock = threading.RLock()
        self._numbers = itertools.count(1001)
        self.http = server_of(self)
        self.there: dict[str, Document] = {
            "account": {"account": {"droplet_limit": 10, "status": "active"}},
            "images/gpu-h100x8-base": {"image": {"id": 7, "regions": ["tor1", "nyc2"]}},
            f"account/keys/{SSH_KEY}": {"ssh_key": {"id": 1}},
            "vpcs/5a4981aa-9653-4bd1-bef5-d6bff52042e4": {"vpc": {"region": "tor1"}},
            "registries/team/docker-credentials": {
                "auths": {"registry.digitalocean.com": {"auth": "b3BlbjpzZXNhbWU="}}
            },
        }
        self.lists: dict[str, list[Document]] = {
            "sizes": [
                {"slug": "s-4vcpu-8gb", "vcpus": 4, "memory": 8192, "regions": ["tor1"], "available": True},
                {"slug": "gpu-h100x8-640gb", "vcpus": 160, "memory": 1966080, "regions": ["tor1"], "available": True,
                 "gpu_info": {"count": 8, "model": "nvidia_h100"}},
                {"slug": "gpu-l40sx1-48gb", "vcpus": 8, "memory": 65536, "regions": [], "available": False},
            ],
            "vpc_nat_gateways": [{"region": "tor1", "vpcs": [{"vpc_uuid": "5a4981aa-9653-4bd1-bef5-d6bff52042e4"}]}],
            "firewalls": [],
            "registries/team/repositories/tonnage/digests": [{"digest": f"sha256:{'0' * 64}"}],
        }  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the account says."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return digitalocean_fault(401, "unauthorized", "Unable to authenticate you")
        path = asked.path.removeprefix("/v2/")
        with self.lock:
            if path.partition("/")[0] == "droplets":
                return self._droplets(asked, path.partition("/")[2])
            if path.startswith("spaces/keys"):
                return self._keys(asked, path.removeprefix("spaces/keys").strip("/"))
            if path.partition("/")[0] == "tags":
                return self._tags(asked, path.partition("/")[2])
            if path in self.lists:
                member = {"digests": "manifests"}.get(path.rpartition("/")[2], path.rpartition("/")[2])
                return self._paged(asked, member, self.lists[path])
            if path in self.there:
                return HTTPAnswer(document=self.there[path])
        return digitalocean_fault(404, "not_found", "The resource you requested could not be found.")

    def _paged(self, asked: Asked, member: str, found: list[Document]) -> HTTPAnswer:
        size = min(int(asked.query.get("per_page") or 20), self.page)
        number = int(asked.query.get("page") or 1)
        more = {"next": f"{self.url}/v2/...?page={number + 1}"} if number * size < len(found) else {}
        some = found[(number - 1) * size : number * size]
        return HTTPAnswer(document={member: some, "links": {"pages": more}, "meta": {"total": len(found)}})

    def _droplets(self, asked: Asked, rest: str) -> HTTPAnswer:
        if asked.method == "POST":
            return self._create(asked)
        if not rest:
            return self._list(asked)
        one = self.droplets.get(int(rest)) if rest.isdigit() else None
        if one is None:
            return digitalocean_fault(404, "not_found", "The resource you requested could not be found.")
        if asked.method == "DELETE":
            del self.droplets[one.number]
            if one.machine is not None:
                one.machine.kill()
            return HTTPAnswer(status=204)
        return HTTPAnswer(document={"droplet": one.document})

    def _list(self, asked: Asked) -> HTTPAnswer:
        if "tag_name" in asked.query and "type" in asked.query:
            return digitalocean_fault(422, "unprocessable_entity", "tag_name and type cannot be combined")
        gpus = asked.query.get("type") == "gpus"
        found = [one for one in self.droplets.values() if one.body["size"].startswith("gpu-") == gpus]
        if found and self.hidden:
            self.hidden -= 1
            found = found[:-1]
        return self._paged(asked, "droplets", [one.document for one in found])

    def _create(self, asked: Asked) -> HTTPAnswer:
        body = asked.body
        wrong = list(faults_of(body, {"$ref": "Droplet"}, "", _schemas()))
        wrong += [f"{tag} is no tag" for tag in body.get("tags", ()) if not TAG.fullmatch(tag)]
        if len(body.get("user_data", "").encode()) > 64 << 10:
            wrong.append("user_data is too long")
        if wrong or self.full:
            return digitalocean_fault(422, "unprocessable_entity", "; ".join(wrong) or self.full)
        made = FakeDroplet(number=next(self._numbers), body=body, since=time.monotonic())
        self.droplets[made.number] = made
        self.tags |= set(body["tags"])
        return HTTPAnswer(status=202, document={"droplet": made.document})

    def _keys(self, asked: Asked, access: str) -> HTTPAnswer:
        if asked.method == "POST":
            wrong = list(faults_of(asked.body, {"$ref": "SpacesKey"}, "", _schemas()))
            if wrong:
                return digitalocean_fault(400, "bad_request", "; ".join(wrong))
            made: Document = {**asked.body, "access_key": f"{self.space_keys[0]}-{next(self._numbers)}",
                              "created_at": datetime.now(UTC).isoformat()}  # fmt: skip
            self.keys[made["access_key"]] = made
            return HTTPAnswer(status=201, document={"key": {**made, "secret_key": self.space_keys[1]}})
        if asked.method == "DELETE":
            if self.keys.pop(access, None) is None:
                return digitalocean_fault(404, "not_found", "key not found")
            return HTTPAnswer(status=204)
        name = asked.query.get("name")
        return self._paged(asked, "keys", [one for one in self.keys.values() if name in {None, one["name"]}])

    def _tags(self, asked: Asked, name: str) -> HTTPAnswer:
        if asked.method == "DELETE":
            if name not in self.tags:
                return digitalocean_fault(404, "not_found", "tag not found")
            self.tags.discard(name)
            return HTTPAnswer(status=204)
        return self._paged(asked, "tags", [{"name": one} for one in sorted(self.tags)])

    # time

    def vanish(self, number: int) -> None:
        """The droplet is lost, and the account no longer knows it."""
        with self.lock:
            one = self.droplets.pop(number)
        if one.machine is not None:
            one.machine.kill()

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for one in list(self.droplets.values()):
                self._advance(one)

    def _advance(self, one: FakeDroplet) -> None:
        if one.status == "new" and time.monotonic() - one.since > self.boot_s:
            first, root = one.body["user_data"], self.folder / f"droplet-{one.number}"
            lay_files(first, root)
            env = {"PATH": f"{self.bin}:/usr/bin:/bin", "TONNAGE_FAKE_ID": str(one.number),
                   "TONNAGE_FAKE_ROOT": str(root)}  # fmt: skip
            console = self.folder / f"{one.number}.console"
            one.machine = start_machine(["bash", "-c", laid_script(first)], env, console)
            one.status = "active"
        elif one.status == "active" and one.machine is not None and one.machine.ended() is not None:
            one.machine.kill()
            one.status = "off"  # as the script at its end does

    def close(self) -> None:
        """Nothing is left running."""
        for one in self.droplets.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()


def digitalocean_fault(status: int, word: str, message: str) -> HTTPAnswer:
    """An error as the API writes it."""
    return HTTPAnswer(status=status, document={"id": word, "message": message})


def fake_digitalocean(folder: Path) -> AbstractContextManager[FakeDigitalOcean]:
    """A running account with an SSH key, an image, sizes, a registry and a private network."""
    return running(FakeDigitalOcean(folder))


def _schemas() -> Any:
    return recorded_schemas("tonnage.places.digitalocean", "schema.json")
