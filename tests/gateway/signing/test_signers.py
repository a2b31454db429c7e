"""How the gateway signs in: as the providers' own libraries do, renewed ahead, and without showing a secret."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import pytest

from tonnage.errors import InputError
from tonnage.gateway.signing import SignIn, make_signer
from tonnage.gateway.signing.tokens import SignInError, Token, TokenSigner

URL = "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude%3A0/converse"


class Source:
    """Gives the tokens 0, 1, 2, ...: each lives for a thousand seconds."""

    def __init__(self) -> None:
        self.given = 0
        self.broken = False

    def __call__(self, url: str, now_s: float) -> Token:
        if self.broken:
            raise SignInError(f"{url} is broken", hint="mend it")
        self.given += 1
        return Token(f"t{self.given - 1}", now_s + 1000.0)


def sent(signer: TokenSigner, now_s: float) -> bytes:
    return dict(signer.headers("POST", "https://a.example/v1", b"{}", now_s))[b"authorization"]


def test_tokens_are_renewed_ahead_and_aside() -> None:
    """A request near the expiry has the token before; the next one has the new."""
    signer = TokenSigner(Source())
    assert [sent(signer, at) for at in (0.0, 699.0, 700.0)] == [b"Bearer t0"] * 3
    signer.wait()
    assert sent(signer, 701.0) == b"Bearer t1"


def test_a_renewal_that_fails_costs_nothing_until_the_expiry() -> None:
    """Then the request is told; once the provider gives tokens again, it has one."""
    source = Source()
    signer = TokenSigner(source)
    sent(signer, 0.0)
    source.broken = True
    assert sent(signer, 999.0) == b"Bearer t0"
    signer.wait()
    with pytest.raises(SignInError, match="broken"):
        sent(signer, 1000.0)
    source.broken = False
    assert sent(signer, 1001.0) == b"Bearer t1"


def test_no_token_is_shown() -> None:
    """A token that is printed shows when it expires, nothing else."""
    assert "secret" not in repr(Token("secret", 5.0))


def test_aws_signs_as_botocore_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same signature as a client of botocore sends, with the session's token, over the same instant."""
    pytest.importorskip("botocore")
    import botocore.auth
    import botocore.session
    from botocore.awsrequest import AWSRequest

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    instant = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: instant)
    signer = make_signer(SignIn(kind="aws", region="us-east-1"))
    made = dict(signer.headers("POST", URL, b'{"messages":[]}', 0.0))
    assert made[b"x-amz-date"] == b"20261123T120000Z"
    assert made[b"x-amz-security-token"] == b"a-session"
    assert b"/20261123/us-east-1/bedrock/aws4_request" in made[b"authorization"]
    client = botocore.session.get_session().create_client("bedrock-runtime", region_name="us-east-1")
    request = AWSRequest(method="POST", url=URL, data=b'{"messages":[]}')
    client._request_signer.sign("Converse", request, region_name="us-east-1")
    assert made[b"authorization"].decode() == request.headers["Authorization"]


def test_aws_without_a_region_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the file and the environment name none."""
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="region"):
        make_signer(SignIn(kind="aws"))
    with pytest.raises(InputError, match="nowhere"):
        make_signer(SignIn(kind="aws", profile="nowhere", region="us-east-1"))


class Workspace(BaseHTTPRequestHandler):
    """The token address of a Databricks workspace."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        right = self.headers["authorization"] == "Basic " + b64encode(b"client-1:s3cret").decode()
        right = right and self.path == "/oidc/v1/token" and form["grant_type"] == ["client_credentials"]
        body = json.dumps({"access_token": "dapi-1", "expires_in": 3600} if right else {"error": "invalid_client"})
        self.send_response(200 if right else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_databricks_gives_a_token_for_a_service_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    """By client credentials at the workspace's own address; a wrong secret is told without showing it."""
    with HTTPServer(("127.0.0.1", 0), Workspace) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/serving-endpoints/chat/completions"
        monkeypatch.setenv("DATABRICKS_SECRET", "s3cret")
        sign_in = SignIn(kind="databricks", profile="client-1", key="env:DATABRICKS_SECRET")
        assert make_signer(sign_in).headers("POST", url, b"", 0.0) == [(b"authorization", b"Bearer dapi-1")]
        monkeypatch.setenv("DATABRICKS_SECRET", "wr0ng")
        with pytest.raises(SignInError, match="answered 401") as raised:
            make_signer(sign_in).headers("POST", url, b"", 0.0)
        assert "wr0ng" not in f"{raised.value} {raised.value.hint}"
        server.shutdown()


def test_databricks_needs_a_client_and_a_secret() -> None:
    """Said when the file is read, not at the first request."""
    with pytest.raises(InputError, match="`profile` and `key`"):
        make_signer(SignIn(kind="databricks"))


def test_google_needs_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is named and not there is told when the gateway starts."""
    pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(InputError, match=r"none\.json"):
        make_signer(SignIn(kind="google"))
