"""Requests to an API server: tried again where that is safe, refused in the server's own words."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.places.kubernetes.kubeconfig import Cluster, Credentials, credentials, kubeconfig_files, read_cluster

if TYPE_CHECKING:
    import ssl

    import httpx

Document = dict[str, Any]
TRIES: Final = 6
TIMEOUT_S: Final = 20.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 20.0
AGAIN: Final = frozenset({429, 500, 502, 503, 504})
PAGE: Final = 500
BLOCK_BYTES: Final = 1 << 16
EXPIRY_MARGIN: Final = timedelta(seconds=30)


class ApiError(TonnageError):
    """What a server refused, with its code and its own word for why."""

    def __init__(self, code: int, reason: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code, self.reason = code, reason


class Unreachable(TonnageError):
    """No answer, or none that can be used, after all tries."""


class KubernetesClient:
    """One context's API server. `sleep` and `chance` are arguments, for tests."""

    def __init__(
        self, cluster: Cluster, *, sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.cluster, self._sleep, self._chance = cluster, sleep, chance
        self._signed: Credentials | None = None
        self._http: httpx.Client | None = None
        self.server_time: datetime | None = None  # by the newest answer: clocks differ

    # objects

    def get(self, path: str, **query: str) -> Document | None:
        """An object, or None where there is none of this name."""
        try:
            return self.ask("GET", path, query=query)
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def list(self, path: str, **query: str) -> list[Document]:
        """All objects there; a list that expires while it is read in pages (410) is read again."""
        for _ in range(TRIES):
            found: list[Document] = []
            more = ""
            try:
                while True:
                    page = self.ask("GET", path, query={**query, "limit": str(PAGE), "continue": more})
                    found += page.get("items") or []
                    more = (page.get("metadata") or {}).get("continue") or ""
                    if not more:
                        return found
            except ApiError as error:
                if error.code != HTTPStatus.GONE:
                    raise
        raise Unreachable(f"the list of {path} keeps expiring", hint="the server is overloaded: ask later")

    def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        return self.ask("POST", path, body=document, query=query)

    def delete(self, path: str, *, grace_s: int | None = None, **query: str) -> None:
        """With everything it owns; nothing where it is gone already."""
        body: Document = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self.ask("DELETE", path, body=body, query=query)
        except ApiError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    def allowed(self, namespace: str, verb: str, group: str, resource: str) -> bool:
        """Whether we may, by a SelfSubjectAccessReview."""
        name, _, part = resource.partition("/")
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name, "subresource": part}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": asked}}  # fmt: skip
        answer = self.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    @contextmanager
    def blocks(self, path: str, **query: str) -> Iterator[Iterator[bytes]]:
        """A text as it comes, in pieces of 64 KiB."""
        import httpx

        try:
            with self.http.stream("GET", path, params=query) as answer:
                self._note_time(answer)
                if answer.status_code >= HTTPStatus.BAD_REQUEST:
                    answer.read()
                    raise self._error(answer)
                yield answer.iter_bytes(BLOCK_BYTES)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.cluster.server} broke off: {error}", hint="ask again") from error

    # requests

    def ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> Document:
        """The answer. Every request here may be sent twice: what it creates has its name. ApiError, Unreachable."""
        import httpx

        content = None if body is None else json.dumps(body)
        signed_again = False
        said = ""
        for number in range(TRIES):
            try:
                answer = self.http.request(
                    method,
                    path,
                    content=content,
                    params=dict(query or {}),
                    headers={"Content-Type": "application/json"},
                )
            except httpx.HTTPError as error:
                said = str(error) or type(error).__name__
                self._wait(number, None)
                continue
            self._note_time(answer)
            if answer.status_code == HTTPStatus.UNAUTHORIZED and not signed_again:
                signed_again = True
                self._sign_out()
                continue
            if answer.status_code in AGAIN and not self._final(answer):
                said = f"{answer.status_code} {answer.reason_phrase}"
                self._wait(number, answer.headers.get("Retry-After"))
                continue
            if answer.status_code >= HTTPStatus.BAD_REQUEST:
                raise self._error(answer)
            found: Document = answer.json()
            return found
        raise Unreachable(f"{self.cluster.server} does not answer: {said}", hint="`kubectl --context "
                          f"{self.cluster.context} version`")  # fmt: skip

    def _final(self, answer: httpx.Response) -> bool:
        """A 500 by a webhook that says no is no fault of the server."""
        return answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR and "denied the request" in answer.text

    def _wait(self, number: int, retry_after: str | None) -> None:
        if number == TRIES - 1:
            return
        usual = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**number) * (0.5 + self._chance() / 2)
        self._sleep(min(LONGEST_WAIT_S, float(retry_after)) if retry_after and retry_after.isdigit() else usual)

    def _note_time(self, answer: httpx.Response) -> None:
        from email.utils import parsedate_to_datetime

        if date := answer.headers.get("Date"):
            self.server_time = parsedate_to_datetime(date).astimezone(UTC)

    def _error(self, answer: httpx.Response) -> ApiError:
        try:
            said = answer.json()
            message, reason = str(said.get("message") or ""), str(said.get("reason") or "")
        except (ValueError, AttributeError):
            message, reason = answer.text[:200], ""
        code = answer.status_code
        hint = {
            401: "sign in again: the credentials of the context are refused",
            403: f"`tonnage places check` says which right is missing in the context {self.cluster.context}",
        }.get(code, "`tonnage places check` asks the cluster")
        return ApiError(code, reason, message or f"{code} {answer.reason_phrase}", hint=hint)

    # the connection

    @property
    def http(self) -> httpx.Client:
        signed = self._signed
        if (
            signed is not None
            and signed.expires_at is not None
            and signed.expires_at - EXPIRY_MARGIN < datetime.now(UTC)
        ):
            self._sign_out()
        if self._http is None:
            import weakref

            self._signed = credentials(self.cluster)
            self._http = self._opened(self._signed)
            weakref.finalize(self, self._http.close)
        return self._http

    def _opened(self, signed: Credentials) -> httpx.Client:
        import httpx

        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if signed.token:
            headers["Authorization"] = f"Bearer {signed.token}"
        return httpx.Client(
            base_url=self.cluster.server, headers=headers, auth=signed.basic, timeout=TIMEOUT_S,
            verify=tls(self.cluster, signed), trust_env=self.cluster.server.startswith("https"),
        )  # fmt: skip

    @property
    def signed(self) -> Credentials:
        """What requests carry now."""
        assert self.http is not None
        assert self._signed is not None
        return self._signed

    def _sign_out(self) -> None:
        if self._http is not None:
            self._http.close()
        self._signed = self._http = None


def tls(cluster: Cluster, signed: Credentials) -> ssl.SSLContext | bool:
    """How the server proves itself, and we to it."""
    if not cluster.server.startswith("https"):
        return False
    import ssl
    import tempfile

    found = ssl.create_default_context(cadata=cluster.ca) if cluster.ca else ssl.create_default_context()
    if not cluster.verified:
        found.check_hostname = False
        found.verify_mode = ssl.CERT_NONE
    if signed.certificate and signed.key:
        descriptor, name = tempfile.mkstemp(prefix="tonnage-")  # the ssl module reads files only
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{signed.certificate}\n{signed.key}\n")
            found.load_cert_chain(name)
        finally:
            os.unlink(name)
    return found


def open_client(context: str, kubeconfig: str | None) -> KubernetesClient:
    """Of a context; nothing is asked yet."""
    return KubernetesClient(read_cluster(context, kubeconfig_files(kubeconfig, os.environ)))
