"""One question to a store of secrets over HTTP: tried again where that may help, never redirected with a token."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import RetryPolicy, TemporaryError
from tonnage.secret_references.forms import SecretReference

if TYPE_CHECKING:
    import httpx

ATTEMPTS: Final = 3
TIMEOUT_S: Final = 10.0  # to connect, and between two pieces of an answer
LONGEST_WORDS: Final = 200


def ask(url: str, headers: Mapping[str, str], asked: SecretReference, params: Mapping[str, str] | None = None) -> Any:
    """The answer, whatever its status below 500. TonnageError where the store does not answer after all tries."""
    host = url.split("/")[2]

    def give_up(_: str, failures: int, error: TemporaryError) -> TonnageError:
        return TonnageError(
            f"{asked}: {host} does not answer after {failures} tries: {error}",
            hint="is the name right, and can this machine reach it? The same command tries again",
        )

    def once() -> httpx.Response:
        with (
            translated(lambda words: InputError(f"{asked}: {host}: {words}", hint="check the store's address")),
            open_client(timeout_s=TIMEOUT_S, follow_redirects=False) as client,
        ):
            answer = client.get(url, headers=headers, params=params)
        check_temporary(answer, f"{answer.status_code} {said_in(answer)}".strip())
        return answer

    return RetryPolicy(attempts=ATTEMPTS, wait=time.sleep, give_up=give_up).insist(once, "the secret")


def said_in(answer: httpx.Response) -> str:
    """The words of a refusal: `error.message` as Google and Azure write it, `errors` as Vault does; else none."""
    try:
        document = answer.json()
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    error, errors = document.get("error"), document.get("errors")
    words = error.get("message") if isinstance(error, dict) else " ".join(map(str, errors or ()))
    return " ".join(str(words or "").split())[:LONGEST_WORDS]


def document_of(answer: httpx.Response, asked: SecretReference) -> dict[str, Any]:
    """The document of an answer with status 200. TonnageError where it is another answer than documented."""
    try:
        document = answer.json() if answer.status_code == 200 else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        words = f": {said_in(answer)}" if said_in(answer) else ""
        raise TonnageError(
            f"{asked}: the store answered {answer.status_code}{words}", hint="is its address that of the store's API?"
        )
    return document
