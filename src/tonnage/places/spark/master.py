"""Requests to the master of a Spark standalone cluster: its REST server, the JSON of its page, and the Java class by
which it starts a driver.

The master lists drivers by the name of their class, and by nothing else that a client may choose. Each submission
therefore has a class of its own, `tonnage.HOME.TOKEN.RUN`, whose `main` is that of org.apache.spark.deploy.SparkSubmit:
so a driver is found by its token whatever became of the answer, and while it waits for a worker too.

Sources: Spark 3.5, core/src/main/scala/org/apache/spark/deploy/rest/ (RestSubmissionServer, SubmitRestProtocolRequest)
and deploy/JsonProtocol.scala; the Java Virtual Machine Specification, chapter 4: version 49 (Java 5) needs no stack
maps.
"""

from __future__ import annotations

import io
import struct
import time
import zipfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.api_client import ApiClient
from tonnage.places.spark.place import SparkPlace

if TYPE_CHECKING:
    import httpx
ATTEMPTS: Final = 5
UNKNOWN_DRIVER: Final = "driver-0"  # of a question whose answer tells the version alone
REST_HOW: Final = "`spark.master.rest.enabled true` in the master's spark-defaults.conf, and start it again"
STARTED: Final = "org/apache/spark/deploy/SparkSubmit"
MAGIC, VERSION = 0xCAFEBABE, 49
PUBLIC_SUPER, PUBLIC_STATIC = 0x0021, 0x0009


class MasterRefused(TonnageError):
    """What the master refused, in its own words."""


class SparkMaster(ApiClient):
    """One cluster's."""

    def __init__(
        self, name: str, place: SparkPlace, *, attempts: int = ATTEMPTS, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(attempts=attempts, sleep=sleep)
        self._name, self._place = name, place

    def signed(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """Spark's REST server knows no callers."""
        return dict(headers or {})

    def refusal(self, answer: httpx.Response, url: str) -> TonnageError:
        """In the master's words."""
        try:
            said = str(answer.json().get("message") or answer.reason_phrase)
        except ValueError:
            said = f"{answer.status_code} {answer.reason_phrase}: is it Spark's?"
        said = said.strip().splitlines()[0][:500]
        return MasterRefused(f"{url}: {said}", hint=f"`tonnage places check {self._name}`")

    def page(self) -> dict[str, Any]:
        """Workers, drivers and applications. TonnageError where nothing answers as a master does."""
        found = self._json("GET", f"{self._place.web_url}/json/", f"places.{self._name}.web: http://MASTER:8080")
        if not isinstance(found.get("workers"), list):
            raise TonnageError(f"{self._place.web_url} is not the page of a Spark master",
                               hint=f"places.{self._name}.web: http://MASTER:8080")  # fmt: skip
        return found

    def version(self) -> str:
        """Of Spark there, by its REST server."""
        found = self._json("GET", f"{self._submissions}/status/{UNKNOWN_DRIVER}", REST_HOW)
        return str(found.get("serverSparkVersion") or "")

    def create(self, body: Mapping[str, Any]) -> str:
        """A driver's id. Tried once: a master starts a driver for each request. TemporaryError without an answer."""
        answer = self.once("POST", f"{self._submissions}/create", json=body).json()
        if not answer.get("success"):
            said = str(answer.get("message") or "no reason").splitlines()[0][:500]
            raise MasterRefused(f"{self._place.rest_url} refuses the run: {said}",
                                hint=f"`tonnage places check {self._name}`")  # fmt: skip
        return str(answer["submissionId"])

    def kill(self, driver: str) -> None:
        """End a driver; nothing where it has ended."""
        self._json("POST", f"{self._submissions}/kill/{driver}", REST_HOW)

    @property
    def _submissions(self) -> str:
        return f"{self._place.rest_url}/v1/submissions"

    def _json(self, method: str, url: str, hint: str) -> dict[str, Any]:
        try:
            return self.call(method, url)
        except MasterRefused:
            raise
        except (TonnageError, ValueError) as error:
            said = error.message if isinstance(error, TonnageError) else f"{url} is not answered as Spark does"
            raise TonnageError(said, hint=hint) from error


def class_name(tag: str) -> str:
    """Of a run's tag. A colon would make an address of it.

    >>> class_name("tonnage:0a1b2c3d:0123456789ab:first.run")
    'tonnage.0a1b2c3d.0123456789ab.first.run'
    """
    return ".".join(tag.split(":", 3))


def tag_in(name: str) -> str:
    """The tag of a class's name; of any other name something that is no tag.

    >>> tag_in("tonnage.0a1b2c3d.0123456789ab.first.run")
    'tonnage:0a1b2c3d:0123456789ab:first.run'
    """
    return ":".join(name.split(".", 3))


def starter(tag: str) -> bytes:
    """A jar with the class: the same bytes for the same tag."""
    inside = class_name(tag).replace(".", "/")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{inside}.class"), _class(inside))
    return out.getvalue()


def _class(name: str) -> bytes:
    """`public class NAME { public static void main(String[] words) { SparkSubmit.main(words); } }`."""
    pool = [
        _text(name), b"\x07\x00\x01",  # 1, 2: this class
        _text("java/lang/Object"), b"\x07\x00\x03",  # 3, 4: what it extends
        _text(STARTED), b"\x07\x00\x05",  # 5, 6: what it calls
        _text("main"), _text("([Ljava/lang/String;)V"), b"\x0c\x00\x07\x00\x08",  # 7, 8, 9: the method's name and type
        b"\x0a\x00\x06\x00\x09", _text("Code"),  # 10: the method of the class; 11
    ]  # fmt: skip
    body = b"\x2a\xb8\x00\x0a\xb1"  # aload_0, invokestatic 10, return
    code = struct.pack(">HHI", 1, 1, len(body)) + body + struct.pack(">HH", 0, 0)
    method = struct.pack(">HHHHHI", PUBLIC_STATIC, 7, 8, 1, 11, len(code)) + code
    head = struct.pack(">IHHH", MAGIC, 0, VERSION, len(pool) + 1) + b"".join(pool)
    return head + struct.pack(">HHHHHH", PUBLIC_SUPER, 2, 4, 0, 0, 1) + method + struct.pack(">H", 0)


def _text(text: str) -> bytes:
    return b"\x01" + struct.pack(">H", len(text.encode())) + text.encode()
