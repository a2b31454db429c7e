"""Variables of a secret: a JSON object or lines, set in an environment; faults name neither values nor the text."""

from __future__ import annotations

import importlib
import socket
import time
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.places.conftest import aws, google, google_key, moto_url

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.secret_references import fill_environment, read_variables
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.http_service import Asked, HTTPAnswer

__all__ = ["aws", "google", "google_key", "moto_url"]
VALUE = "s3cr3t-of-the-test"


def variables(text: str) -> dict[str, str]:
    return read_variables("env:KEYS", {"KEYS": text}, "--secret")


def test_an_object_or_lines() -> None:
    """Both forms, from any store; numbers are texts, comments are passed over, a value may hold an equals sign."""
    assert variables('{"HF_TOKEN": "a=b", "PORT": 80}') == {"HF_TOKEN": "a=b", "PORT": "80"}
    assert variables("# of the Hub\n\nHF_TOKEN=a=b\n PORT=80") == {"HF_TOKEN": "a=b", "PORT": "80"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (VALUE, "holds no variables"),
        (f'["{VALUE}"]', "holds no variables"),
        (f"A=1\n{VALUE}", "holds no variables"),
        ("{}", "holds no variables"),
        (f"# of the Hub\n\n# {VALUE}", "holds no variables"),
        (f'{{"{VALUE}": "x"}}', "name 1 of the secret is no name of a variable"),
        (f"{VALUE} 2=x", "name 1 of the secret is no name of a variable"),
        (f'{{"A": ["{VALUE}"]}}', "the value of A is no text"),
    ],
)
def test_what_holds_no_variables_is_refused_unshown(text: str, words: str) -> None:
    """Named by its reference alone."""
    with pytest.raises(InputError, match=words) as caught:
        variables(text)
    said = f"{caught.value.message} | {caught.value.hint}"
    assert said.startswith("--secret: env:KEYS: ")
    assert "HF_TOKEN=... for each" in said or "as a text" in said
    assert VALUE not in said


@pytest.mark.usefixtures("aws")
def test_aws_is_asked_in_the_places_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever AWS_REGION says; only the variables change."""
    there = boto3.client("secretsmanager", region_name="eu-west-1")
    there.create_secret(Name="keys", SecretString=f'{{"HF_TOKEN": "{VALUE}"}}')
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    environment = {"AWS_REGION": "us-east-1", "HOME": str(tmp_path)}
    fill_environment("aws:keys", environment, "--secret", region="eu-west-1")
    assert environment == {"AWS_REGION": "us-east-1", "HOME": str(tmp_path), "HF_TOKEN": VALUE}
    with pytest.raises(InputError, match="there is no such secret"):
        fill_environment("aws:keys", environment, "--secret")


def test_a_machine_of_google_needs_no_google_auth(google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata server gives the token; where none answers, the package that is missing is named."""
    name = "secretmanager/v1/projects/my-project/secrets/keys/versions/latest"
    google.there[f"{name}:access"] = {"payload": {"data": b64encode(f"HF_TOKEN={VALUE}".encode()).decode()}}

    def metadata(asked: Asked) -> HTTPAnswer | None:
        if not asked.path.startswith("/computeMetadata/"):
            return None
        assert asked.headers["metadata-flavor"] == "Google"
        assert asked.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        return HTTPAnswer(document={"access_token": google_token, "expires_in": 3599})

    def absent(module: str, package: str | None = None) -> Any:
        if module.startswith("google"):
            raise ImportError(module)
        return found(module, package)

    google_token, found = "test-token", importlib.import_module
    google.before.append(metadata)
    monkeypatch.setattr("tonnage.secret_references.google.import_module", absent)
    environment = {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": f"{google.url}/secretmanager/",
        "GCE_METADATA_HOST": google.url.removeprefix("http://"),
    }
    fill_environment("gcp:projects/my-project/secrets/keys", environment, "--secret")
    assert environment["HF_TOKEN"] == VALUE
    for answer, words in (
        (HTTPAnswer(status=404), "answered 404 and gave no token"), (HTTPAnswer(status=403), "answered 403"),
        (HTTPAnswer(document={"token_type": "Bearer"}), "has no token"),
    ):  # fmt: skip
        google.before[:] = [partial(lambda given, _: given, answer)]
        with pytest.raises(TonnageError, match=words) as caught:
            fill_environment("gcp:projects/my-project/secrets/keys", environment, "--secret")
        assert not isinstance(caught.value, MissingExtra)
    google.before[:] = [late]
    monkeypatch.setattr("tonnage.secret_references.google.METADATA_TIMEOUT_S", 0.1)
    with pytest.raises(TonnageError, match="gave no token: ReadTimeout"):
        fill_environment("gcp:projects/my-project/secrets/keys", environment, "--secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment["GCE_METADATA_HOST"] = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(MissingExtra, match="gcp:projects/my-project/secrets/keys"):
        fill_environment("gcp:projects/my-project/secrets/keys", environment, "--secret")


def late(_: Asked) -> HTTPAnswer:
    time.sleep(0.4)
    return HTTPAnswer(status=503)
