"""An issuer of this machine whose answers can be made wrong in one way each."""

from __future__ import annotations

import hmac
import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "tonnage"


class Issuer:
    """`fault` names what is wrong with the next answers; "" nothing."""

    def __init__(self, port: int) -> None:
        self.url, self.fault = f"http://127.0.0.1:{port}", ""
        self.claims: dict[str, Any] = {"email": "ann@example.org", "groups": ["search"]}
        self.userinfo: dict[str, Any] = {"sub": "u1"}
        self.key, self.other = (RSAKey.generate_key(2048, {"kid": name}, auto_kid=False) for name in ("one", "two"))
        self.codes: dict[str, dict[str, str]] = {}

    def authorize(self, query: dict[str, str]) -> str:
        """As a person who agrees: the address that the browser is sent back to."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?code={code}&state={query['state']}&iss={self.url}"

    def document(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            said = self.url if self.fault != "another issuer" else "http://elsewhere.example"
            return {
                "issuer": said, "authorization_endpoint": f"{self.url}/authorize", "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token", "userinfo_endpoint": f"{self.url}/me",
                "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            }  # fmt: skip
        if path == "/keys":
            return {"keys": [self.key.as_dict(private=False)]}
        return self.userinfo if path == "/me" else None

    def tokens(self, form: dict[str, str]) -> Any:
        query = self.codes.pop(form.get("code", ""), None)
        if query is None:
            return {"error": "invalid_grant"}
        verifier = _base64(sha256(form["code_verifier"].encode()).digest())
        assert verifier == query["code_challenge"]
        assert form["redirect_uri"] == query["redirect_uri"]
        return {"access_token": "planted-access-token", "token_type": "Bearer", "id_token": self.id_token(query)}

    def id_token(self, query: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": "u1", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": query["nonce"],
            **self.claims,
        }  # fmt: skip
        wrong: dict[str, dict[str, Any]] = {
            "nonce": {"nonce": "another"}, "audience": {"aud": "another"}, "issuer": {"iss": "http://elsewhere"},
            "expired": {"exp": now - 3600}, "two audiences": {"aud": [CLIENT, "another"], "azp": "another"},
        }  # fmt: skip
        claims |= wrong.get(self.fault, {})
        if self.fault == "shared secret":  # the public key taken as a secret: RFC 8725, section 2.1
            head = f"{_part({'alg': 'HS256'})}.{_part(claims)}"
            mac = hmac.digest(self.key.as_pem(private=False), head.encode(), "sha256")
            return f"{head}.{_base64(mac)}"
        if self.fault == "not signed":
            return f"{_part({'alg': 'none'})}.{_part(claims)}."
        key = self.other if self.fault == "key" else self.key
        return jwt.encode({"alg": "RS256", "kid": self.key.as_dict()["kid"]}, claims, key)


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _part(values: Any) -> str:
    return _base64(json.dumps(values).encode())


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(made.document(urlsplit(self.path).path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer(made.tokens({key: values[0] for key, values in parse_qs(body).items()}))

        def _answer(self, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 400 if "error" in found else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Issuer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
