"""Droplets: one for each submission, made for it and deleted after it.

DigitalOcean has no client token: a request whose answer is lost may have made a droplet. So the droplets of a token
are listed before another one is asked for, and the machines agree through the bucket on the one that works.
It has no identity of machines either: each submission gets a key of Spaces for the one bucket, deleted at its end.

Sources: the OpenAPI document of API v2 (digitalocean/openapi); DigitalOcean, «Droplet metadata», «Droplet pricing»
(a droplet is billed until it is deleted, powered off too).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.body_shapes import check_body, recorded_schemas
from tonnage.http.retries import TemporaryError
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.boot import POWER_OFF, first_script
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding, read_tag
from tonnage.places.digitalocean.checks import questions_of
from tonnage.places.digitalocean.client import API, DigitalOceanClient, DigitalOceanError
from tonnage.places.digitalocean.place import KEYS_FILE, DigitalOceanPlace
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

CREATE: Final = "droplets_create"  # the document's own words for the operations
KEY: Final = "spacesKey_create"
LOGIN: Final = "registries_get_dockerCredentials"
METADATA: Final = "http://169.254.169.254/metadata/v1"
MOST_USER_DATA: Final = 64 << 10  # bytes
PULL_S: Final = 6 * 3600  # how long the registry's key is good for: the image is pulled once
ACCESS, SECRET, DOCKER = "{{spaces_key.access_key}}", "{{spaces_key.secret_key}}", "{{docker_credentials}}"
PHASES: Final[Mapping[str, Phase]] = {
    "new": Phase.PROVISIONING, "active": Phase.RUNNING, "off": Phase.ENDED, "archive": Phase.ENDED,
}  # fmt: skip
JOB_NAME: Final = re.compile(r"t-(?P<run>[a-z0-9-]+)-(?P<home>[0-9a-f]{8})-(?P<token>[0-9a-f]{12})")
UNBORN: Final = "no droplet"  # in place of its number
UNBORN_AGE: Final = timedelta(hours=1)  # of a key: until then its droplet may be on its way
NO_ROOM: Final = "more of it at cloud.digitalocean.com/support, another size or region, or `--on any`"


@dataclass(frozen=True, kw_only=True)
class Droplets:
    """One place of the kind `digitalocean`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when the droplet is asked for"),
        DeclaredGap(
            verb="teardown",
            reason="DigitalOcean ends no droplet by itself: one whose client never comes back is billed until it is "
            "deleted, unless its image has a `token_file`",
        ),
        DeclaredGap(verb="preemption", whole=True, reason="DigitalOcean takes no droplet away: it sells no spot"),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ()
    name: str
    place: DigitalOceanPlace
    attempts: int = ATTEMPTS  # of each call
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def client(self) -> DigitalOceanClient:
        return DigitalOceanClient(attempts=self.attempts, sleep=self.sleep)

    def requests(self, work: Work) -> tuple[Request, ...]:
        """A key for the bucket, one for the registry where it is the account's own, then the droplet.

        The droplet's user data name what the keys will be: they are known when they are made, and kept nowhere here.
        """
        schemas = recorded_schemas(__package__, "schema.json")
        key = {"name": work.name, "grants": [{"bucket": self.place.space, "permission": "readwrite"}]}
        droplet = merged(droplet_of(self.place, work), self.place.patch.get(CREATE, {}))
        check_body(key, schemas, "SpacesKey", KEY)
        check_body(droplet, schemas, "Droplet", CREATE)
        size = len(str(droplet.get("user_data", "")).encode())
        if size > MOST_USER_DATA:
            raise InputError(f"the machine's first script has {size} bytes, {MOST_USER_DATA} at most", hint="`setup`")
        login: list[Request] = []
        if self.place.registry is not None:
            path = f"GET {API}/v2/registries/{self.place.registry}/docker-credentials?expiry_seconds={PULL_S}"
            login = [Request(service=path, operation=LOGIN, body={})]
        return (
            Request(service=f"POST {API}/v2/spaces/keys", operation=KEY, body=key), *login,
            Request(service=f"POST {API}/v2/droplets", operation=CREATE, body=droplet),
        )  # fmt: skip

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The droplet's number. Keys of an earlier try are replaced: their secrets are lost with it."""
        if (found := self.find(token)) is not None:
            return found
        bodies = {one.operation: one.body for one in requests}
        self._remove_keys(token)
        key = self.client.call("POST", self.client.address("spaces/keys"), body=bodies[KEY])["key"]
        known = {ACCESS: key["access_key"], SECRET: key["secret_key"], DOCKER: "{}"}
        if LOGIN in bodies:
            path = self.client.address(f"registries/{self.place.registry}/docker-credentials")
            login = self.client.call("GET", path, params={"expiry_seconds": PULL_S, "read_write": "false"})
            known[DOCKER] = json.dumps(login)
        body = {**bodies[CREATE], "user_data": filled(str(bodies[CREATE]["user_data"]), known)}
        made = self._create(body, token)
        ours = self._of_token(token)
        first = min((one["id"] for one in ours), default=int(made))
        for other in (one["id"] for one in ours if one["id"] != first):
            self._delete(str(other))
        return str(first)

    def _create(self, body: Body, token: str) -> str:
        """Asked once, and again only where no droplet of the token is there."""
        address = self.client.address("droplets")
        policy = self.client.policy(address)
        while True:
            try:
                answer = self.client.once("POST", address, json=body)
                return str(answer.json()["droplet"]["id"])
            except TemporaryError as error:
                policy.failed(error, "the droplet")
                if (found := self.find(token)) is not None:
                    return found
            except DigitalOceanError as error:
                self._remove_keys(token)
                if error.status == 422:
                    raise TonnageError(f"{self.name}: no droplet: {error.message}", hint=NO_ROOM) from error
                raise

    def find(self, token: str) -> str | None:
        """The oldest droplet that was made for a submission."""
        found = [one["id"] for one in self._of_token(token)]
        return str(min(found)) if found else None

    def view(self, job_id: str) -> JobView:
        try:
            droplet = self.client.call("GET", self.client.address(f"droplets/{job_id}"))["droplet"]
        except DigitalOceanError as error:
            if error.status == 404:
                return JobView(phase=Phase.GONE, job_id=job_id)
            raise
        return view_of(droplet)

    def end(self, job_id: str, token: str) -> None:
        """Every droplet of the submission, its key and its tag. A droplet is deleted at once, without a signal."""
        for one in {job_id, *(str(one["id"]) for one in self._of_token(token))} - {UNBORN}:
            self._delete(one)
        self._remove_keys(token)
        for tag in [str(one["name"]) for one in self.client.listed("tags", "tags")]:
            if _token_in(tag) == token:
                self.client.send("DELETE", self.client.address(f"tags/{tag}"), accept=(404,))

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """Those that are switched off are among them: they are billed. So are keys that no droplet has."""
        found, born = [], set()
        for one in self._droplets():
            tag = next((text for tag in one["tags"] if (text := plain_tag(tag)) and read_tag(text)), "")
            parts = read_tag(tag)
            if parts is None or parts[0] != home:
                continue
            born.add(parts[1])
            view = view_of(one)
            phase = Phase.ENDING if view.phase is Phase.ENDED else view.phase
            view = JobView(phase=phase, job_id=view.job_id, word=view.word)
            found.append(TaggedCloudJob(job_id=str(one["id"]), tag=tag, view=view))
        return [*found, *self._unborn(home, born)]

    def _unborn(self, home: str, born: set[str]) -> Iterator[TaggedCloudJob]:
        """What is left of submissions whose client died before the droplet was made: a key of Spaces."""
        now = datetime.now(UTC)
        for key in self.client.listed("spaces/keys", "keys"):
            named = JOB_NAME.fullmatch(str(key.get("name")))
            if named is None or named["home"] != home or named["token"] in born:
                continue
            if now - datetime.fromisoformat(key["created_at"]) > UNBORN_AGE:
                tag = f"tonnage:{home}:{named['token']}:{named['run']}"
                view = JobView(phase=Phase.ENDING, job_id=UNBORN, word="a key of Spaces")
                yield TaggedCloudJob(job_id=UNBORN, tag=tag, view=view)

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.client, self.place, name=self.name)

    def _droplets(self) -> Iterator[dict[str, Any]]:
        """Of the account: those without GPUs are one list, those with GPUs another."""
        for kind in ("droplets", "gpus"):
            yield from self.client.listed("droplets", "droplets", type=kind)

    def _of_token(self, token: str) -> list[dict[str, Any]]:
        return [one for one in self._droplets() if any(_token_in(tag) == token for tag in one["tags"])]

    def _delete(self, job_id: str) -> None:
        self.client.send("DELETE", self.client.address(f"droplets/{job_id}"), accept=(404,))

    def _remove_keys(self, token: str) -> None:
        """Keys of Spaces that bear the name of a submission's job."""
        for key in list(self.client.listed("spaces/keys", "keys")):
            named = JOB_NAME.fullmatch(str(key.get("name")))
            if named is not None and named["token"] == token:
                path = self.client.address(f"spaces/keys/{key['access_key']}")
                self.client.send("DELETE", path, accept=(404,))


def droplet_of(place: DigitalOceanPlace, work: Work) -> Body:
    """The machine. Nothing of others reaches it: no agent, no password, no public address unless it is wanted."""
    files = {KEYS_FILE: f"AWS_ACCESS_KEY_ID={ACCESS}\nAWS_SECRET_ACCESS_KEY={SECRET}"}
    lines = [f"export TONNAGE_MACHINE=$(curl -sf {METADATA}/id)"]
    if place.registry is not None:
        files["/opt/tonnage/docker/config.json"] = DOCKER
        lines.append("export DOCKER_CONFIG=/opt/tonnage/docker")
    body: Body = {
        "name": work.name, "region": place.region, "size": place.instance_type, "image": _number(place.boot_image),
        "ssh_keys": [_number(one) for one in place.ssh_keys], "tags": tags_of(work), "backups": False, "ipv6": False,
        "monitoring": False, "with_droplet_agent": False, "public_networking": place.public_address,
        "user_data": first_script(place, work, login=lines, end=end_script(place), files=files),
    }  # fmt: skip
    return body if place.vpc is None else {**body, "vpc_uuid": place.vpc}


def end_script(place: DigitalOceanPlace) -> str:
    """A machine with a token deletes itself when it is done; one without is switched off, and the client deletes it."""
    if place.token_file is None:
        return POWER_OFF
    header = f'-H "Authorization: Bearer $(cat {place.token_file})"'
    return f"curl -sf -X DELETE {header} {API}/v2/droplets/$(curl -sf {METADATA}/id) && exit 0\n{POWER_OFF}"


def tags_of(work: Work) -> list[str]:
    """Tags as DigitalOcean takes them: letters, digits, `:`, `-` and `_`; every other byte is `_` and its two digits.

    >>> tags_of(Work(name="t", run="r.1", token="0", home="1", tag="tonnage:1:0:r.1", owner="", command=(), env={},
    ...     max_cost_usd=None, tags={"tonnage": "tonnage:1:0:r.1", "tonnage-owner": "me"}))
    ['tonnage', 'tonnage:1:0:r_2e1', 'tonnage-owner:me']
    """
    first = ["tonnage", written_tag(work.tag)]
    pairs = (f"{written_tag(key)}:{written_tag(value)}" for key, value in work.tags.items() if key != "tonnage")
    return list(dict.fromkeys([*first, *(one[:255] for one in pairs)]))


def written_tag(text: str) -> str:
    """A text as a tag, from which `plain_tag` reads it back."""
    return re.sub(rb"[^A-Za-z0-9:-]", lambda found: b"_%02x" % ord(found[0]), text.encode()).decode()


def plain_tag(tag: str) -> str:
    """The text of such a tag.

    >>> plain_tag(written_tag("tonnage:1:0:modèle_v1.2"))
    'tonnage:1:0:modèle_v1.2'
    """
    read = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), tag.encode())
    return read.decode(errors="replace")


def filled(text: str, known: Mapping[str, str]) -> str:
    """The user data with the keys in their places."""
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def view_of(droplet: Mapping[str, Any]) -> JobView:
    """A droplet as the API tells of it.

    >>> view_of({"id": 3, "status": "new"}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    word = str(droplet.get("status") or "")
    return JobView(phase=PHASES.get(word, Phase.PROVISIONING), job_id=str(droplet["id"]), word=word)


def _token_in(tag: str) -> str | None:
    found = read_tag(plain_tag(tag))
    return None if found is None else found[1]


def _number(text: str) -> str | int:
    return int(text) if text.isdigit() else text
