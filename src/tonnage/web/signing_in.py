"""The addresses of signing in and out: by a key, and by an issuer where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tonnage.web.access import COOKIE, SESSION, Denied, host_of
from tonnage.web.keys import now_utc
from tonnage.web.layout import render_login, render_signed_in

if TYPE_CHECKING:
    from tonnage.web.app import WebServer

STATE: Final = "tonnage_login"
STATE_S: Final = 600


def add_signing_in(app: FastAPI, server: WebServer) -> None:
    """`/login`, `/logout`; `/login/oidc` and its callback where people sign in by an issuer."""
    issuer = None if server.sign_in is None else server.sign_in.file.issuer

    def form() -> HTMLResponse:
        return HTMLResponse(render_login("", issuer))

    async def login(request: Request) -> Response:
        said = parse_qs((await request.body()).decode("utf-8", errors="replace"))
        begun = server.access.begin_session(said.get("key", [""])[0].strip())
        if begun is None:
            return HTMLResponse(render_login("That key is not known here, or its time is over.", issuer), 401)
        _write_down(server, request, begun[0].name, "ui login")
        return _with_session(server, RedirectResponse("/", status_code=303), begun[1])

    def logout(request: Request) -> Response:
        server.access.end_session(request.cookies.get(COOKIE))
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    app.add_api_route("/login", form, include_in_schema=False)
    app.add_api_route("/login", login, methods=["POST"], include_in_schema=False)
    app.add_api_route("/logout", logout, methods=["POST"], include_in_schema=False)
    if issuer is not None:
        _add_issuer(app, server, issuer)


def _with_session(server: WebServer, answer: Response, token: str) -> Response:
    answer.set_cookie(COOKIE, token, max_age=int(SESSION.total_seconds()), httponly=True, samesite="strict",
                      secure=server.secure)  # fmt: skip
    return answer


def _add_issuer(app: FastAPI, server: WebServer, issuer: str) -> None:
    """`/login/oidc` leads to the issuer's page, which leads back to the callback."""

    def begin(request: Request) -> Response:
        assert server.sign_in is not None
        server.access.check_host(host_of(request.headers.get("host", "")))
        address, state = server.sign_in.begin()
        answer = RedirectResponse(address, status_code=303)
        # the issuer's page leads back, so the cookie cannot be strict; it opens nothing by itself
        answer.set_cookie(STATE, state, max_age=STATE_S, httponly=True, samesite="lax", secure=server.secure,
                          path="/login/oidc")  # fmt: skip
        return answer

    def back(request: Request) -> Response:
        assert server.sign_in is not None
        server.access.check_host(host_of(request.headers.get("host", "")))
        try:
            person = server.sign_in.finish(dict(request.query_params), request.cookies.get(STATE))
        except Denied as error:
            words = f"{error.message}. {error.hint or ''}"
            answer: Response = HTMLResponse(render_login(words, issuer), error.status)
        else:
            _write_down(server, request, person.name, "ui login", issuer=issuer, role=person.role)
            # a page of ours leads on: a redirect from the issuer's would not carry a strict cookie
            token = server.access.begin_session_of(person)
            answer = _with_session(server, HTMLResponse(render_signed_in(person.name)), token)
        answer.delete_cookie(STATE, path="/login/oidc")
        return answer

    app.add_api_route("/login/oidc", begin, include_in_schema=False)
    app.add_api_route("/login/oidc/callback", back, include_in_schema=False)


def _write_down(server: WebServer, request: Request, who: str, what: str, **fields: Any) -> None:
    address = request.client.host if request.client else ""
    server.audit(at=now_utc(), who=who, what=what, address=address, **fields)
