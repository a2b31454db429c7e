"""Secrets by reference: each form is read from its store, and no message holds a secret or what may be one."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.places.conftest import aws, azure, google, google_key, moto_url

import tonnage
from tonnage import BackupOptions
from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.gateway.signing import SignIn, make_signer
from tonnage.http import retries
from tonnage.monitoring.alerts.reading import read_rules
from tonnage.secret_references import SCHEMES, parse_reference, read_reference
from tonnage.secret_references import asking as asking_module
from tonnage.secret_references import aws as aws_module
from tonnage.settings import load_settings
from tonnage.testing.azure.cloud import FakeAzure, azure_fault
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.google.storage import google_fault
from tonnage.testing.http_service import Asked, HTTPAnswer
from tonnage.testing.vault import TOKEN, FakeVault, fake_vault

__all__ = ["aws", "azure", "google", "google_key", "moto_url"]
pytestmark = pytest.mark.heavy
SECRET = "s3cr3t-of-the-test"
JSON = f'{{"token": "{SECRET}", "port": 8200, "more": ["x"]}}'
GCP = "secretmanager/v1/projects/my-project/secrets"


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVault]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("VAULT_NAMESPACE", raising=False)
    with fake_vault() as found:
        monkeypatch.setenv("VAULT_ADDR", found.url)
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        yield found


@pytest.fixture
def key_vault(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> FakeAzure:
    """A Key Vault beside the subscription; it takes tokens for Key Vault alone."""
    monkeypatch.setenv("TONNAGE_AZURE_VAULT_URL", azure.url)

    def answer(asked: Asked) -> HTTPAnswer | None:
        if not asked.path.startswith("/secrets/"):
            return None
        assert asked.headers["authorization"] == "Bearer test-token of https://vault.azure.net"
        assert asked.query["api-version"] == "7.4"
        if asked.path in azure.there:
            return HTTPAnswer(document=azure.there[asked.path])
        return azure_fault(404, "SecretNotFound", "A secret with (name/id) was not found in this key vault.")

    azure.before.append(answer)
    return azure


def read(reference: str) -> str:
    return read_reference(reference, os.environ, "--key")


def refused(reference: str, kind: type[TonnageError] = InputError) -> str:
    """Message and hint of the refusal, which hold no secret."""
    with pytest.raises(kind) as caught:
        read(reference)
    assert type(caught.value) is kind
    said = f"{caught.value.message} | {caught.value.hint}"
    assert SECRET not in said
    assert TOKEN not in said
    assert said.startswith("--key: ") or kind is MissingExtra
    return said


def test_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ever; what is not there, empty or no text is said."""
    monkeypatch.setenv("MINE", SECRET)
    monkeypatch.setenv("EMPTY", " ")
    (tmp_path / "key").write_text(f"{SECRET}\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert read("env:MINE") == read(f"file:{tmp_path}/key") == SECRET
    assert "env:EMPTY is empty | export EMPTY=..." in refused("env:EMPTY")
    assert "cannot be read: No such file" in refused(f"file:{tmp_path}/none")
    assert "is not UTF-8 text" in refused(f"file:{tmp_path}/bytes")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SECRET, "never the secret itself"),
        ("azur:v/n", "did you mean 'azure:'"),
        ("vualt:secret/app#key", "did you mean 'vault:'"),
        ("awsssm:x", "did you mean 'aws-ssm:'"),
        (f"hunter:{SECRET}", "expected a reference to a secret: env:NAME, file:PATH, keyring:SERVICE/NAME"),
        ("vault:secret/app", "expected vault:MOUNT/PATH#KEY after 'vault:'"),
        ("gcp:my-project/key", "expected gcp:projects/PROJECT/secrets/SECRET"),
        ("azure:keys", "expected azure:VAULT/NAME"),
        ("keyring:alone", "expected keyring:SERVICE/NAME"),
        ("aws:two words", "expected aws:SECRET_ID"),
        ("env:", "expected env:NAME"),
    ],
)
def test_what_is_no_reference_is_refused_unshown(wrong: str, words: str) -> None:
    """Near schemes are named; what was written may be the secret, and is not shown."""
    assert words in refused(wrong)


def test_every_form_parses() -> None:
    """The table's own forms, with and without their parts in brackets."""
    for scheme, one in SCHEMES.items():
        bare = one.form.replace("[/versions/VERSION]", "").replace("[/VERSION]", "").replace("[#JSON_KEY]", "")
        assert parse_reference(bare).scheme == scheme
        assert str(parse_reference(bare)) == bare


@pytest.mark.usefixtures("aws")
def test_secrets_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, by ARN (in its own region), a member of JSON, binary; what is missing is said with like keys."""
    client = boto3.client("secretsmanager")
    client.create_secret(Name="app/plain", SecretString=SECRET)
    client.create_secret(Name="app/json", SecretString=JSON)
    client.create_secret(Name="app/bytes", SecretBinary=b"\xff\xfe")
    there = boto3.client("secretsmanager", region_name="eu-west-1")
    arn = there.create_secret(Name="far", SecretString=SECRET)["ARN"]
    assert read("aws:app/plain") == read("aws:app/json#token") == read(f"aws:{arn}") == SECRET
    assert read("aws:app/json#port") == "8200"
    assert "no key 'tokens' | did you mean 'token'" in refused("aws:app/json#tokens")
    assert "what stands under 'more' is no text" in refused("aws:app/json#more")
    assert "is no JSON object" in refused("aws:app/plain#token")
    assert "the secret is binary" in refused("aws:app/bytes")
    assert "there is no such secret | `aws secretsmanager list-secrets`" in refused("aws:app/none")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    assert "no AWS region is set" in refused("aws:app/plain")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert read("aws:app/plain") == SECRET
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no sign-in to AWS" in refused("aws:app/plain")


@pytest.mark.usefixtures("aws")
def test_parameter_store() -> None:
    """Encrypted parameters come decrypted."""
    boto3.client("ssm").put_parameter(Name="/app/key", Value=SECRET, Type="SecureString")
    assert read("aws-ssm:/app/key") == SECRET
    assert "there is no such secret | `aws ssm describe-parameters`" in refused("aws-ssm:/app/none")


def test_secrets_manager_without_permission(vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own refusal, with the right that is missing; one that does not answer is an error of its own."""
    for name, value in {"AWS_ENDPOINT_URL": vault.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                        "AWS_DEFAULT_REGION": "us-east-1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    denied = {"__type": "AccessDeniedException", "Message": "User: arn:aws:iam::1:user/me is not authorized"}
    vault.before.append(lambda _: HTTPAnswer(status=400, document=denied))
    assert "allow secretsmanager:GetSecretValue" in refused("aws:app/plain")
    assert "allow ssm:GetParameter" in refused("aws-ssm:/app/plain")
    vault.before[:] = [lambda _: HTTPAnswer(status=400, document={"__type": "ExpiredTokenException", "Message": "old"})]
    assert "AWS refuses the sign-in: old" in refused("aws:app/plain")
    monkeypatch.setattr(aws_module, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(aws_module, "ATTEMPTS", 1)
    vault.before[:] = [late]
    assert "AWS does not answer after 1 tries" in refused("aws:app/plain", TonnageError)


def test_google(google: FakeGoogle) -> None:
    """The newest version or the one that is named, signed in by google-auth; refusals with the role that is missing."""
    for version, value in (("latest", JSON), ("3", SECRET)):
        name = f"projects/my-project/secrets/app/versions/{version}"
        payload = {"data": b64encode(value.encode()).decode()}
        google.there[f"{GCP}/app/versions/{version}:access"] = {"name": name, "payload": payload}
    reference = "gcp:projects/my-project/secrets/app"
    assert read(f"{reference}#token") == read(f"{reference}/versions/3") == SECRET
    assert "there is no such secret or version | `gcloud secrets list --project my-project`" in refused(f"{reference}s")
    google.there[f"{GCP}/app/versions/4:access"] = {"name": "..."}
    assert "the answer has no payload" in refused(f"{reference}/versions/4", TonnageError)
    for status, words in ((403, "roles/secretmanager.secretAccessor"), (401, "gcloud auth"), (400, "enabled")):
        fault = google_fault(status, "reason", "Permission 'secretmanager.versions.access' denied")
        google.before[:] = [lambda asked, fault=fault: fault if "secretmanager" in asked.path else None]
        assert words in refused(reference)


def test_google_without_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that are not there."""
    pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    assert "no sign-in to Google Cloud" in refused("gcp:projects/p/secrets/s")


def test_azure(key_vault: FakeAzure) -> None:
    """The newest version or the one that is named; refusals with the role that is missing."""
    version = "0123456789abcdef0123456789abcdef"
    key_vault.there["/secrets/app"] = {"value": JSON, "id": "..."}
    key_vault.there[f"/secrets/app/{version}"] = {"value": SECRET, "id": "..."}
    key_vault.there["/secrets/odd"] = {"id": "..."}
    assert read("azure:keys/app#token") == read(f"azure:keys/app/{version}") == SECRET
    assert "no such secret or version | `az keyvault secret list --vault-name keys`" in refused("azure:keys/none")
    assert "the answer has no value" in refused("azure:keys/odd", TonnageError)
    for status, words in ((403, "Key Vault Secrets User"), (401, "az login")):
        fault = azure_fault(status, "Forbidden", "Caller is not authorized to perform action on resource.")
        key_vault.before[:] = [lambda asked, fault=fault: fault if "/secrets/" in asked.path else None]
        assert words in refused("azure:keys/app")
    key_vault.before[:] = [lambda asked: azure_fault(400, "invalid", "no") if asked.path == "/token" else None]
    assert "no sign-in to Azure" in refused("azure:keys/app")


def test_vault(vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of a path; what is missing, deleted, denied or redirected is said, and the token goes nowhere else."""
    vault.secrets["secret/team/app"] = {"token": SECRET, "port": 8200, "more": {}}
    assert read("vault:secret/team/app#token") == SECRET
    assert read("vault:secret/team/app#port") == "8200"
    assert vault.asked[-1].path == "/v1/secret/data/team/app"
    assert "x-vault-namespace" not in vault.asked[-1].headers
    monkeypatch.setenv("VAULT_NAMESPACE", "team-a")
    read("vault:secret/team/app#token")
    assert vault.asked[-1].headers["x-vault-namespace"] == "team-a"
    assert "no key 'tokn' | did you mean 'token'" in refused("vault:secret/team/app#tokn")
    assert "is no text" in refused("vault:secret/team/app#more")
    assert "`vault kv get -mount=secret team/none`" in refused("vault:secret/team/none#token")
    vault.deleted.add("secret/team/old")
    assert "or it is deleted" in refused("vault:secret/team/old#token")
    vault.denied.add("secret/team/theirs")
    assert 'path "secret/data/team/theirs" { capabilities = ["read"] }' in refused("vault:secret/team/theirs#token")
    vault.before.append(lambda _: HTTPAnswer(status=307, headers={"Location": "https://active.example:8200/v1"}))
    assert "redirects to active.example:8200, and the token is not sent on" in refused("vault:secret/team/app#token")
    vault.before[:] = [lambda _: HTTPAnswer(document={"data": {"token": SECRET}})]  # version 1 of the engine
    assert "the answer has no values" in refused("vault:secret/team/app#token", TonnageError)
    for name, value, words in (
        ("VAULT_TOKEN", "", "VAULT_TOKEN holds no token"),
        ("VAULT_ADDR", "vault:8200", "VAULT_ADDR"),
    ):
        monkeypatch.setenv(name, value)
        assert words in refused("vault:secret/team/app#token")


def late(_: Asked) -> HTTPAnswer:
    time.sleep(0.6)
    return HTTPAnswer(status=503)


def test_stores_that_do_not_answer(vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried again where it may pass; late, sealed and closed ones are said, with the host and the number of tries."""
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(asking_module, "time", Hasty)
    vault.secrets["secret/app"] = {"key": SECRET}
    sealed = HTTPAnswer(status=503, document={"errors": ["Vault is sealed"]})
    vault.before.append(lambda _: sealed if len(vault.asked) < 3 else None)
    assert read("vault:secret/app#key") == SECRET
    vault.before[:] = [lambda _: sealed]
    assert "does not answer after 3 tries: 503 Vault is sealed" in refused("vault:secret/app#key", TonnageError)
    vault.before[:] = [late]
    monkeypatch.setattr(asking_module, "TIMEOUT_S", 0.2)
    assert "does not answer after 3 tries: ReadTimeout" in refused("vault:secret/app#key", TonnageError)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "ConnectError" in refused("vault:secret/app#key", TonnageError)


class Hasty:
    """A clock whose waits take no time."""

    @staticmethod
    def sleep(_: float) -> None:
        """At once."""


@pytest.mark.parametrize(
    ("reference", "module", "extra"),
    [
        ("keyring:service/name", "keyring", "keyring"),
        ("aws:app", "boto3.session", "fetch"),
        ("gcp:projects/p/secrets/s", "google.auth", "google"),
        ("azure:keys/app", "azure.identity", "azure"),
    ],
)
def test_a_missing_library_names_its_extra(
    reference: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install 'tonnage[{extra}]'" in refused(reference, MissingExtra)


def test_keyring() -> None:
    """By the real library with a backend of this test; no entry, no keyring, a locked and a broken one are said."""
    keyring = pytest.importorskip("keyring")
    errors, backend = pytest.importorskip("keyring.errors"), pytest.importorskip("keyring.backend")

    class Ring(backend.KeyringBackend):  # type: ignore[misc, name-defined]
        priority = 1
        fault: Exception | None = None

        def get_password(self, service: str, username: str) -> str | None:
            if self.fault is not None:
                raise self.fault
            return {("my/service", "me"): SECRET}.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            raise NotImplementedError

        def delete_password(self, service: str, username: str) -> None:
            raise NotImplementedError

    ring: Any = Ring()
    before = keyring.get_keyring()
    keyring.set_keyring(ring)
    try:
        assert read("keyring:my/service/me") == SECRET
        assert "there is no such secret | `keyring set my/service you`" in refused("keyring:my/service/you")
        ring.fault = errors.NoKeyringError("none")
        assert "there is no keyring here" in refused("keyring:my/service/me")
        ring.fault = errors.KeyringLocked("locked")
        assert "the keyring is locked" in refused("keyring:my/service/me")
        ring.fault = errors.KeyringError("dbus is away")
        assert "the keyring failed: dbus is away" in refused("keyring:my/service/me", TonnageError)
    finally:
        keyring.set_keyring(before)


def test_the_gateway_reads_a_store_aside(vault: FakeVault) -> None:
    """A key of a store is fetched in a thread, followed after five minutes, and held while the store is away."""
    vault.secrets["secret/app"] = {"key": SECRET}
    signer: Any = make_signer(SignIn(kind="x-api-key", key="vault:secret/app#key"))
    fetching = signer.preparing("https://a.example", 0.0)
    fetching.result(10)
    assert signer.headers("POST", "https://a.example", b"", 299.0) == [(b"x-api-key", SECRET.encode())]
    assert len(vault.asked) == 1
    vault.denied.add("secret/app")
    assert signer.headers("POST", "https://a.example", b"", 301.0) == [(b"x-api-key", SECRET.encode())]
    signer.wait()
    assert len(vault.asked) == 2
    vault.denied.clear()
    vault.secrets["secret/app"] = {"key": "changed"}
    signer.renew("https://a.example", 320.0)
    signer.wait()
    assert signer.headers("POST", "https://a.example", b"", 321.0) == [(b"x-api-key", b"changed")]


def test_every_caller_takes_every_form(vault: FakeVault, tmp_path: Path) -> None:
    """A gateway's file, a watch's file and a backup's seal, with the secret in a Vault."""
    vault.secrets["secret/app"] = {"key": "sk-" + SECRET * 2, "url": "https://hooks.example/x"}
    reference = "vault:secret/app#key"
    gateway = {
        "deployments": {"a": {"url": "http://127.0.0.1:1/v1", "model": "m",
                              "price": {"input_usd_per_million": 1, "output_usd_per_million": 2}}},
        "routes": {"chat": {"deployments": ["a"]}},
    }  # fmt: skip
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps({**gateway, "keys": {"me": {"key": reference}}}))
    assert tonnage.check_gateway(file).found.routes
    refused_file = tmp_path / "other.yaml"
    refused_file.write_text(json.dumps({**gateway, "keys": {"me": {"key": "vault:secret/none#key"}}}))
    with pytest.raises(InputError, match="there is no such secret"):
        tonnage.check_gateway(refused_file)
    watch = "channels:\n  chat: {slack: 'vault:secret/app#url'}\notlp:\n  endpoint: http://127.0.0.1:4318\n"
    rules = read_rules(f"{watch}  headers: {{authorization: '{reference}'}}\n", file="w.yaml")
    assert rules.otlp is not None
    assert dict(rules.otlp.headers)["authorization"].endswith(SECRET)
    settings = load_settings({}, {"TONNAGE_HOME": str(tmp_path / "home")}, tmp_path)
    settings.home.mkdir()
    (settings.home / "places.toml").write_text("")
    tonnage.backup(tmp_path / "kept", BackupOptions(key=reference), settings=settings)
    [sealed] = (tmp_path / "kept").glob("*.sealed")
    tonnage.verify_backup(sealed, key=reference)
    with pytest.raises(InputError, match="--key: vault:secret/none#key: there is no such secret"):
        tonnage.verify_backup(sealed, key="vault:secret/none#key")


@pytest.mark.parametrize("wrong", [f"sk-{SECRET}", f"hunter:{SECRET}"])
def test_a_secret_in_a_file_is_not_shown(wrong: str, tmp_path: Path) -> None:
    """Where a key stands in the file itself, the error names line and forms, and not the key."""
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps({
        "deployments": {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "sign_in": {"kind": "bearer", "key": wrong},
                              "price": {"input_usd_per_million": 1, "output_usd_per_million": 2}}},
        "routes": {"chat": {"deployments": ["a"]}}, "keys": {"me": {"key": wrong}},
    }))  # fmt: skip
    with pytest.raises(InputError) as caught:
        tonnage.check_gateway(file)
    said = f"{caught.value} {caught.value.hint}"
    assert SECRET not in said
    assert "gateway.yaml:1" in said
    assert "a reference to a secret: env:NAME" in said
