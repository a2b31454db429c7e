"""EC2's instant fleets with the documented life of an instance; what else is asked goes to another server (moto's).

with fake_ec2(folder, rest=MOTO_URL) as service: ...      # AWS_ENDPOINT_URL_EC2 = service.url

An instance is a process of this machine: the script that its user data lays down for systemd. A `docker` beside it runs
what a container would.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl
from urllib.request import ProxyHandler, Request, build_opener

from tonnage.http.aws_shapes import request_shape, shape_faults
from tonnage.testing.aws.query_protocol import operation_model, read_form, write_answer, write_error
from tonnage.testing.http_service import QuietHandler, running
from tonnage.testing.machines import FakeMachine, laid_script, lay_docker, start_machine
from tonnage.values import dataclass

Document = dict[str, Any]
Fault = Callable[[str, Document], "FakeEC2Error | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEC2Error:
    """An error answer."""

    code: str
    message: str
    status: int = 400


@dataclass(slots=True, kw_only=True)
class FakeInstance:
    """One instance."""

    data: Document  # of its launch template
    launched: datetime
    subnet: str
    spot: bool
    state: str = "pending"
    since: float = 0.0
    reason: tuple[str, str] = ("", "")
    machine: FakeMachine | None = None
    taken: bool = False
    notice: datetime | None = None  # when spot takes it

    @property
    def tags(self) -> dict[str, str]:
        given: Document = next((one for one in self.data["TagSpecifications"] if one["ResourceType"] == "instance"), {})
        return {tag["Key"]: tag["Value"] for tag in given.get("Tags", ())}


class FakeEC2:
    """A running one. `before`: faults instead of an answer; `after`: it is carried out, and its answer is lost."""

    def __init__(self, folder: Path, rest: str) -> None:
        self.folder, self.rest = folder, rest
        self.templates = dict[str, Document]()
        self.instances = dict[str, FakeInstance]()
        self.fleets = dict[str, Document]()  # by client token: what was answered
        self.full = dict[str, str]()  # subnets without capacity: the error's code
        self.groups = dict[str, str]()  # placement groups: their strategy
        self.has = dict[str, int]()  # how many instances a subnet has left; else enough
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.requests: list[tuple[str, Document]] = []
        self.page, self.boot_s, self.unseen_s, self.grace_s, self.notice_s = 1000, 0.1, 0.0, 20.0, 5.0
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.bin = lay_docker(folder)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_EC2Handler,), {"service": self}))
        self.http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, operation: str, body: Document) -> Document | FakeEC2Error:
        """What the service says."""
        found = list(shape_faults(body, request_shape("ec2", operation)))
        if found:
            return FakeEC2Error(code="InvalidParameterValue", message="; ".join(found))
        with self.lock:
            answer: Document | FakeEC2Error = self.verbs[operation](body)
        return answer

    @property
    def verbs(self) -> dict[str, Callable[[Document], Document | FakeEC2Error]]:
        return {
            "CreateLaunchTemplate": self._create_template, "DescribeLaunchTemplates": self._describe_templates,
            "DeleteLaunchTemplate": self._delete_template, "CreateFleet": self._create_fleet,
            "DescribeInstances": self._describe, "TerminateInstances": self._terminate,
            "GetConsoleOutput": self._console, "DescribePlacementGroups": self._groups,
        }  # fmt: skip

    def interrupt(self, name: str) -> None:
        """Spot tells the instance that it goes, and takes it when its notice is over."""
        with self.lock:
            self.instances[name].notice = datetime.now(UTC) + timedelta(seconds=self.notice_s)

    def vanish(self, name: str) -> None:
        """The machine is lost, and the service no longer knows it."""
        with self.lock:
            found = self.instances.pop(name)
        if found.machine is not None:
            found.machine.kill()

    # verbs

    def _create_template(self, body: Document) -> Document | FakeEC2Error:
        name = body["LaunchTemplateName"]
        if any(one["body"]["LaunchTemplateName"] == name for one in self.templates.values()):
            return FakeEC2Error(
                code="InvalidLaunchTemplateName.AlreadyExistsException", message=f"{name}: already in use"
            )
        made = f"lt-{next(self._numbers):017x}"
        self.templates[made] = {"body": body}
        return {"LaunchTemplate": {"LaunchTemplateId": made, "LaunchTemplateName": name}}

    def _describe_templates(self, body: Document) -> Document:
        found = [
            {"LaunchTemplateId": name, "LaunchTemplateName": one["body"]["LaunchTemplateName"]}
            for name, one in self.templates.items()
            if _matches(_template_tags(one["body"]), body)
        ]
        return {"LaunchTemplates": found}

    def _delete_template(self, body: Document) -> Document | FakeEC2Error:
        if self.templates.pop(body["LaunchTemplateId"], None) is None:
            return FakeEC2Error(code="InvalidLaunchTemplateId.NotFound", message="no such template")
        return {"LaunchTemplate": {"LaunchTemplateId": body["LaunchTemplateId"]}}

    def _create_fleet(self, body: Document) -> Document | FakeEC2Error:
        if body["ClientToken"] in self.fleets:
            return self.fleets[body["ClientToken"]]
        [config] = body["LaunchTemplateConfigs"]
        wanted = config["LaunchTemplateSpecification"]["LaunchTemplateName"]
        data = next((one["body"]["LaunchTemplateData"] for one in self.templates.values()
                     if one["body"]["LaunchTemplateName"] == wanted), None)  # fmt: skip
        if data is None:
            return FakeEC2Error(code="InvalidLaunchTemplateName.NotFoundException", message=f"{wanted}: not there")
        errors, made = [], []
        count = int(body["TargetCapacitySpecification"]["TotalTargetCapacity"])
        options = body.get("SpotOptions") or body.get("OnDemandOptions") or {}
        market = body["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        for override in config["Overrides"]:
            if code := self.full.get(override["SubnetId"]):
                template = {"Overrides": {"SubnetId": override["SubnetId"]}}
                errors.append({"LaunchTemplateAndOverrides": template, "ErrorCode": code, "ErrorMessage": "not now"})
                continue
            has = min(count, self.has.get(override["SubnetId"], count))
            if has < count:
                template = {"Overrides": {"SubnetId": override["SubnetId"]}}
                errors.append({"LaunchTemplateAndOverrides": template, "ErrorCode": "InsufficientInstanceCapacity",
                               "ErrorMessage": f"{has} are left"})  # fmt: skip
                if has < int(options.get("MinTargetCapacity") or 0):  # all or nothing
                    continue
            names = [f"i-{next(self._numbers):017x}" for _ in range(has)]
            for name in names:
                self.instances[name] = FakeInstance(
                    data=data, launched=datetime.now(UTC), subnet=override["SubnetId"], spot=market == "spot",
                    since=time.monotonic(),
                )  # fmt: skip
            made = [{"InstanceIds": names, "InstanceType": data["InstanceType"], "Lifecycle": market}]
            break
        answer = {"FleetId": f"fleet-{next(self._numbers):08x}", "Errors": errors, "Instances": made}
        self.fleets[body["ClientToken"]] = answer
        return answer

    def _describe(self, body: Document) -> Document | FakeEC2Error:
        found = [
            self._document(name, one)
            for name, one in self.instances.items()
            if time.monotonic() - one.since >= self.unseen_s
            or one.state != "pending"
            if _matches({f"tag:{key}": value for key, value in one.tags.items()}
                        | {"instance-id": name, "instance-state-name": one.state}, body)
        ]  # fmt: skip
        at = int(body.get("NextToken", 0))
        some = found[at : at + self.page]
        more = {"NextToken": str(at + self.page)} if at + self.page < len(found) else {}
        return {"Reservations": [{"ReservationId": "r-1", "Instances": [one]} for one in some], **more}

    def _document(self, name: str, one: FakeInstance) -> Document:
        reason = {"StateReason": {"Code": one.reason[0], "Message": one.reason[1]}} if one.reason[0] else {}
        return {
            "InstanceId": name, "InstanceType": one.data["InstanceType"], "LaunchTime": one.launched,
            "State": {"Code": 0, "Name": one.state}, "SubnetId": one.subnet, **reason,
            "Tags": [{"Key": key, "Value": value} for key, value in one.tags.items()],
        }  # fmt: skip

    def _terminate(self, body: Document) -> Document | FakeEC2Error:
        for name in body["InstanceIds"]:
            if name not in self.instances:
                return FakeEC2Error(code="InvalidInstanceID.NotFound", message=f"{name} does not exist")
            self._take(self.instances[name], ("Client.UserInitiatedShutdown", "User initiated shutdown"))
        return {"TerminatingInstances": [{"InstanceId": name} for name in body["InstanceIds"]]}

    def _groups(self, body: Document) -> Document | FakeEC2Error:
        found = {name: self.groups[name] for name in body["GroupNames"] if name in self.groups}
        if len(found) < len(body["GroupNames"]):
            return FakeEC2Error(code="InvalidPlacementGroup.Unknown", message="the placement group is unknown")
        return {"PlacementGroups": [{"GroupName": name, "Strategy": one} for name, one in found.items()]}

    def _console(self, body: Document) -> Document:
        log = self.folder / f"{body['InstanceId']}.console"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        text = "".join(f"[ {at}.0] tonnage-run[812]: {line}\n" for at, line in enumerate(lines))
        return {"InstanceId": body["InstanceId"], "Output": base64.b64encode(text.encode()).decode()}

    # time

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for name, one in list(self.instances.items()):
                if not one.taken:
                    self._advance(name, one)

    def _advance(self, name: str, one: FakeInstance) -> None:
        if one.state == "pending" and time.monotonic() - one.since > self.boot_s:
            script = laid_script(base64.b64decode(one.data["UserData"]).decode())
            env = {"PATH": f"{self.bin}:/usr/bin:/bin", "TONNAGE_AWS_METADATA_URL": f"{self.url}/{name}"}
            one.machine = start_machine(["bash", "-c", script], env, self.folder / f"{name}.console")
            one.state = "running"
        elif one.state == "running" and one.machine is not None and one.machine.ended() is not None:
            one.machine.kill()
            one.state = "terminated"
            one.reason = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
        elif one.notice is not None and datetime.now(UTC) > one.notice:
            self._take(one, ("Server.SpotInstanceTermination", "Spot instance termination"))

    def _take(self, one: FakeInstance, reason: tuple[str, str]) -> None:
        if one.taken or one.state == "terminated":
            return
        one.taken, one.state, one.reason = True, "shutting-down", reason
        threading.Thread(target=self._end, args=(one,), daemon=True).start()

    def _end(self, one: FakeInstance) -> None:
        try:
            if one.machine is not None:
                one.machine.take_away(self.grace_s)
        finally:
            one.state = "terminated"

    def close(self) -> None:
        """Nothing is left running."""
        for one in self.instances.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()


class _EC2Handler(QuietHandler):
    service: FakeEC2

    def do_POST(self) -> None:
        """One request of EC2's protocol."""
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        form = dict(parse_qsl(raw.decode(), keep_blank_values=True))
        operation, service = form["Action"], self.service
        if operation not in service.verbs:
            self._pass_on(raw)
            return
        model = operation_model("ec2", operation)
        body = read_form(form, model.input_shape) or {}
        service.requests.append((operation, body))
        found: Document | FakeEC2Error | None = next(
            (one for ask in service.before if (one := ask(operation, body))), None
        )
        if found is None:
            found = service.answer(operation, body)
            found = next((one for ask in service.after if (one := ask(operation, body))), None) or found
        if isinstance(found, FakeEC2Error):
            self.say(found.status, write_error(found.code, found.message), "text/xml")
        else:
            self.say(200, write_answer(operation, found, model.output_shape), "text/xml")

    def do_PUT(self) -> None:
        """The token of an instance's metadata service."""
        self.say(200, b"token", "text/plain")

    def do_GET(self) -> None:
        """What the metadata service of an instance says: `/INSTANCE/latest/meta-data/spot/instance-action`."""
        one = self.service.instances.get(self.path.split("/")[1])
        if one is None or one.notice is None or not self.path.endswith("/spot/instance-action"):
            self.say(404, b"", "text/plain")
            return
        when = one.notice.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.say(200, json.dumps({"action": "terminate", "time": when}).encode(), "application/json")

    def _pass_on(self, raw: bytes) -> None:
        names = ("Authorization", "X-Amz-Date", "Content-Type", "X-Amz-Security-Token")
        headers = {name: self.headers[name] for name in names if self.headers[name]}
        try:
            with build_opener(ProxyHandler({})).open(Request(self.service.rest, data=raw, headers=headers)) as answer:
                self.say(answer.status, answer.read(), "text/xml")
        except HTTPError as error:
            self.say(error.code, error.read(), "text/xml")


def _template_tags(body: Document) -> dict[str, str]:
    return {
        f"tag:{tag['Key']}": tag["Value"] for one in body.get("TagSpecifications", ()) for tag in one["Tags"]
    }  # fmt: skip


def _matches(known: dict[str, str], body: Document) -> bool:
    return all(known.get(one["Name"]) in one["Values"] for one in body.get("Filters", ()))


def fake_ec2(folder: Path, *, rest: str) -> AbstractContextManager[FakeEC2]:
    """A running service; instances are processes of this machine, with their consoles in the folder."""
    return running(FakeEC2(folder, rest))
