"""Requests to the master of a Spark standalone cluster: its REST server and the JSON of its page.

Source: Spark 3.5, core/src/main/scala/org/apache/spark/deploy/rest/ (RestSubmissionServer, SubmitRestProtocolRequest)
and deploy/JsonProtocol.scala.
"""

from __future__ import annotations

import time
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
