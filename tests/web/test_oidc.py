"""People sign in by an issuer: the flow against a real one, each wrong answer refused, roles from claims."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from tests.ports import free_port

pytest.importorskip("fastapi")
pytest.importorskip("joserfc")

from tests.web.conftest import EXAMPLES, listening
from tests.web.issuer import CLIENT, Issuer, issuing

import tonnage
from tonnage.errors import InputError
from tonnage.settings import Settings
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer
from tonnage.web.keys import KeyFile
from tonnage.web.oidc import OidcSignIn
from tonnage.web.oidc_file import read_oidc_file

GRANTS = """
[[grants]]
claim = "groups"
value = "platform"
role = "admin"

[[grants]]
claim = "groups"
value = "search"
role = "operator"
projects = ["search"]
"""


def oidc_file(folder: Path, issuer: str, url: str) -> Path:
    path = folder / "oidc.toml"
    path.write_text(f'issuer = "{issuer}"\nclient_id = "{CLIENT}"\nurl = "{url}"\n{GRANTS}', encoding="utf-8")
    return path


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


class Page:
    """The server with a sign-in by an issuer, and a browser that follows no redirect by itself."""

    def __init__(self, settings: Settings, keys: KeyFile, audited: list[dict[str, Any]], folder: Path) -> None:
        self.settings, self.keys, self.audited, self.folder = settings, keys, audited, folder

    def open(self, issuer: str, secret: str | None = None) -> Iterator[httpx.Client]:
        access = Access(keys=self.keys, open_here=False, hosts=LOCAL_NAMES)
        made = WebServer(self.settings, EXAMPLES, access, secure=False, audit=lambda **one: self.audited.append(one))
        made.sign_in = OidcSignIn(read_oidc_file(oidc_file(self.folder, issuer, "http://127.0.0.1:1")), secret)
        with listening(made) as url:
            # the address is known only now: the port was free until here
            made.sign_in.file = read_oidc_file(oidc_file(self.folder, issuer, url))
            with httpx.Client(base_url=url, timeout=30) as client, closing(made.sign_in):
                yield client


@pytest.fixture
def page(settings: Settings, keys: KeyFile, audited: list[dict[str, Any]], tmp_path: Path) -> Page:
    return Page(settings, keys, audited, tmp_path)


@pytest.fixture
def browser(page: Page, issuer: Issuer) -> Iterator[httpx.Client]:
    yield from page.open(issuer.url)


def sign_in(browser: httpx.Client, issuer: Issuer) -> httpx.Response:
    """What the browser gets when it comes back from the issuer."""
    sent = browser.get("/login/oidc")
    assert sent.status_code == 303, sent.text
    query = {key: values[0] for key, values in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    return browser.get(issuer.authorize(query))


def test_roles_come_from_claims(browser: httpx.Client, issuer: Issuer, audited: list[dict[str, Any]]) -> None:
    """The first grant that holds: an operator of one project; the audit says who came, by whom, from where."""
    assert issuer.url in browser.get("/login").text
    answer = sign_in(browser, issuer)
    assert (answer.status_code, "ann@example.org" in answer.text) == (200, True)
    cookies = answer.headers.get_list("set-cookie")
    assert any("SameSite=strict" in one and "HttpOnly" in one for one in cookies)
    me = browser.get("/api/v1/me").json()
    assert (me["name"], me["role"], me["projects"]) == ("ann@example.org", "operator", ["search"])
    assert [(one["who"], one["what"], one["address"], one["issuer"]) for one in audited] == [
        ("ann@example.org", "ui login", "127.0.0.1", issuer.url)
    ]  # fmt: skip
    browser.post("/logout")
    assert browser.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize(
    "fault",
    ["nonce", "audience", "issuer", "expired", "two audiences", "key", "shared secret", "not signed"],
)
def test_a_wrong_token_signs_nobody_in(browser: httpx.Client, issuer: Issuer, fault: str) -> None:
    """401, the login with the reason, and no session; no token is in the answer."""
    issuer.fault = fault
    answer = sign_in(browser, issuer)
    assert (answer.status_code, "token" in answer.text) == (401, True)
    assert "planted-access-token" not in answer.text
    assert browser.get("/api/v1/me").status_code == 401


def test_an_issuer_that_changed_its_keys(browser: httpx.Client, issuer: Issuer) -> None:
    """The new ones are fetched once."""
    assert sign_in(browser, issuer).status_code == 200
    issuer.key = issuer.other
    assert sign_in(browser, issuer).status_code == 200


def test_who_has_no_role(browser: httpx.Client, issuer: Issuer) -> None:
    """403, and what to do; groups may come from userinfo, unless it is of another subject."""
    issuer.claims = {"email": "bob@example.org"}
    assert sign_in(browser, issuer).status_code == 403
    issuer.userinfo = {"sub": "someone-else", "groups": ["platform"]}
    assert sign_in(browser, issuer).status_code == 403
    issuer.userinfo = {"sub": "u1", "groups": ["platform"]}
    assert sign_in(browser, issuer).status_code == 200
    assert browser.get("/api/v1/audit").status_code == 200


def test_a_sign_in_that_was_not_begun_here(browser: httpx.Client, issuer: Issuer) -> None:
    """Another browser's state, a repeated one, a made-up one, a refusal of the issuer's: 401."""
    sent = browser.get("/login/oidc")
    query = {key: values[0] for key, values in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    back = issuer.authorize(query)
    with httpx.Client() as stranger:
        assert stranger.get(back).status_code == 401
    assert browser.get(back).status_code == 401  # a state is good for one try
    assert browser.get("/login/oidc/callback?state=x&code=y").status_code == 401
    sent = browser.get("/login/oidc")
    state = parse_qs(urlsplit(sent.headers["location"]).query)["state"][0]
    answer = browser.get(f"/login/oidc/callback?state={state}&error=access_denied")
    assert (answer.status_code, "access_denied" in answer.text) == (401, True)


def test_an_issuer_that_cannot_be_relied_on(browser: httpx.Client, issuer: Issuer) -> None:
    """Its document is of another: 502 with its name."""
    issuer.fault = "another issuer"
    answer = browser.get("/login/oidc")
    assert (answer.status_code, "elsewhere.example" in answer.text) == (502, True)


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("oidc_provider_mock") is None, reason="the extra dev brings it")
def test_the_flow_against_a_real_issuer(page: Page) -> None:
    """oidc-provider-mock (Authlib) in a process of its own: its form, its codes, its keys, with a client secret."""
    port = free_port()
    claims = '{"sub": "ann", "email": "ann@example.org", "groups": ["platform"]}'
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--user-claims", claims, "-n", "true"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            issuer = f"http://127.0.0.1:{port}"
            for _ in range(200):
                try:
                    httpx.get(f"{issuer}/.well-known/openid-configuration")
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
            for browser in page.open(issuer, secret="any"):
                sent = browser.get("/login/oidc")
                with httpx.Client(timeout=30) as there:
                    form = there.get(sent.headers["location"])
                    assert re.search(r"<form", form.text)
                    agreed = there.post(sent.headers["location"], data={"sub": "ann"})
                assert agreed.status_code in (302, 303), agreed.text
                answer = browser.get(agreed.headers["location"])
                assert answer.status_code == 200, answer.text
                me = browser.get("/api/v1/me").json()
                assert (me["name"], me["role"]) == ("ann@example.org", "admin")
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('issuer = "https', 'issuer = "http', "read along"),
        ('role = "admin"', 'role = "root"', "grants.0.role"),
        ("client_id", "client", "client_id"),
        (GRANTS, "", "grants"),
        ('value = "platform"\n', "", "grants.0.value"),
        ("url =", "scopes = ['email']\nurl =", "'openid' is missing"),
        ("url =", "client_secret = 'planted-secret'\nurl =", "client_secret"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, old: str, new: str, said: str) -> None:
    """InputError with the key, before anything listens; a secret written out is refused and not repeated."""
    path = oidc_file(tmp_path, "https://login.example", "https://tonnage.example")
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        tonnage.open_ui(tonnage.UiOptions(oidc=path, port=0))
    assert "planted-secret" not in f"{caught.value} {caught.value.hint}"
