"""The server of `tonnage ui`: each resource as a page and under /api/v1, what may be done to runs, and signing in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from errno import EDQUOT, ENOSPC
from hashlib import blake2b
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from tonnage import __version__
from tonnage.errors import DataError, InputError, MissingExtra, NothingFits, PlanRefused, TonnageError, UnknownName
from tonnage.reports.documents import cut_longest
from tonnage.reports.plain import dump_csv, dump_json
from tonnage.settings import Settings
from tonnage.store.answers import AskedOnce
from tonnage.web.access import COOKIE, Access, Denied, RequestFacts, Scope, WebCaller, host_of
from tonnage.web.asked import EVERYWHERE, PageRequest, Resource, Shown
from tonnage.web.described import MOST_LISTED, describe
from tonnage.web.keys import Role, now_utc
from tonnage.web.layout import render_layout, render_problem
from tonnage.web.once import OnceOnly
from tonnage.web.project_files import NO_FOLDER, without_files
from tonnage.web.recent import RecentAnswers
from tonnage.web.resources import RESOURCES
from tonnage.web.run_pages import visible_run
from tonnage.web.signing_in import add_signing_in
from tonnage.web.verbs import VERBS, PostVerb

if TYPE_CHECKING:
    from tonnage.gateway.top.keeping import GatewayLooks
    from tonnage.web.oidc import OidcSignIn

API: Final = "/api/v1"
LARGEST_BODY: Final = 1 << 20
MOST_ADDRESS: Final = 400
CSP: Final = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CSP, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "cache-control": "private, no-cache", "cross-origin-opener-policy": "same-origin",
}  # fmt: skip
STATIC: Final = {"page.js": "text/javascript", "page.css": "text/css"}


class WebServer:
    """What the addresses share. `folder`: where workload files are; `audit`: records every change, and who made it;
    nothing is done where it raises OSError. `audit_later` (else `audit`) records how it ended, and holds what a full
    disk refuses."""

    def __init__(
        self, settings: Settings, folder: Path, access: Access, *, secure: bool, audit: Callable[..., object],
        gateways: GatewayLooks | None = None, sign_in: OidcSignIn | None = None,
        audit_later: Callable[..., object] | None = None,
    ) -> None:  # fmt: skip
        from tonnage.gateway.top.keeping import GatewayLooks

        self.gateways, self.sign_in = gateways or GatewayLooks(), sign_in
        self.settings, self.folder, self.access, self.secure, self.audit = settings, folder, access, secure, audit
        self._audit_later = audit_later or audit
        self._computing = Semaphore(max(2, os.cpu_count() or 1))
        self._recent = RecentAnswers()
        self._once = OnceOnly(settings.database_url)

    def read(self, resource: Resource, request: Request, name: str) -> tuple[WebCaller, Shown]:
        """The answer to a reader. Raises TonnageError."""
        who = self.admit(request, resource.role, resource.scope)
        query = dict(request.query_params)

        def make() -> Shown:
            with self._computing:
                return resource.answer(self._asked(who, name, query))

        if not resource.shared:
            return who, make()
        beside = tuple(sorted((key, value) for key, value in query.items() if key not in EVERYWHERE))
        stamp = None if resource.stamp is None else resource.stamp(self._asked(who, name, query))
        return who, self._recent.get((resource.path, name, beside, who.projects), make, stamp)

    def _asked(self, who: WebCaller, name: str, query: Mapping[str, str]) -> PageRequest:
        return PageRequest(
            name=name, query=query, settings=self.settings, folder=self.folder, gateways=self.gateways, who=who
        )

    def admit(self, request: Request, role: Role, scope: Scope = "all") -> WebCaller:
        """Who asks. Raises Denied."""
        headers = request.headers
        bearer = headers.get("authorization", "")
        key = bearer[7:].strip() if bearer[:7].lower() == "bearer " else headers.get("x-api-key")
        return self.access.admit(
            RequestFacts(
                method=request.method,
                host=host_of(headers.get("host", "")),
                authority=headers.get("host", ""),
                origin=headers.get("origin"),
                address=_address(request),
                key=key,
                session=request.cookies.get(COOKIE),
            ),
            role,
            scope,
        )

    def act(self, verb: PostVerb, request: Request, name: str, body: Mapping[str, Any]) -> Response:
        """Do what is asked, once for an Idempotency-Key, also where two ask at once. Raises TonnageError."""
        who = self.admit(request, verb.role, verb.scope)
        key = request.headers.get("idempotency-key")

        def do() -> str:
            return self._do(verb, who, name, body, _address(request))

        if not key:
            return _tagged(do(), "application/json", request)
        asked = AskedOnce(caller=who.name, address=request.url.path[:MOST_ADDRESS], key=key)
        return _tagged(self._once.answer(asked, body, do), "application/json", request)

    def _do(self, verb: PostVerb, who: WebCaller, name: str, body: Mapping[str, Any], address: str) -> str:
        if not verb.of_run:
            own = who.projects is not None
            with self._computing:
                said = without_files(body) if own and "workload" in body else body
                return dump_json(verb.do(name, said, self.settings, NO_FOLDER if own else Path.cwd()).document())
        run = visible_run(self._asked(who, name, {}))
        said = {"who": who.name, "name": name, "address": address}
        before = run.state().state.value
        try:
            self.audit(at=now_utc(), what=f"ui {verb.name}", **said, before=before, body=dict(body))
        except OSError as error:
            words = f"nothing was done: the audit cannot be written: {error.strerror}"
            hint = f"make room on the disk of the home; on the machine itself `tonnage {verb.name} {name}` still works"
            raise Denied(HTTPStatus.INSUFFICIENT_STORAGE, words, hint=hint) from error
        end = "failed"
        try:
            with self._computing:
                document = dump_json(verb.do(name, body, self.settings, self.folder).document())
            end = "done"
        except TonnageError as error:
            end = f"refused: {error.message}"
            raise
        finally:
            self._recent.forget()
            self._audit_later(
                at=now_utc(), what=f"ui {verb.name} ended", **said, after=run.state().state.value, end=end
            )
        return document


class Guard:
    """Every answer gets the headers of `HEADERS`; a body whose length is not stated or over 1 MiB is refused before it
    is read. Plain ASGI: it costs a tenth of what Starlette's middleware over requests and responses does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = None if scope["method"] == "GET" else _refused_body(Request(scope))
        await (self._app if refused is None else refused)(scope, receive, with_headers)


def _refused_body(request: Request) -> Response | None:
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > LARGEST_BODY:
        return _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is over 1 MiB", "", request)
    if "chunked" in request.headers.get("transfer-encoding", ""):
        return _problem(HTTPStatus.LENGTH_REQUIRED, "the body's length must be stated", "", request)
    return None


def _address(request: Request) -> str:
    """Where the request comes from, as the connection says it."""
    return request.client.host if request.client else ""


def make_app(server: WebServer) -> FastAPI:
    """The application. `server.access` decides who is let in."""
    app = FastAPI(
        title="Tonnage", version=__version__, openapi_url=f"{API}/openapi.json", docs_url=None, redoc_url=None
    )
    for resource in RESOURCES:
        _add(app, server, resource)
    for verb in VERBS:
        _add_verb(app, server, verb)
    add_signing_in(app, server)
    _add_errors(app)

    def health() -> dict[str, str]:
        return {"status": "ok"}

    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404)
        return Response((files("tonnage.web") / "static" / name).read_bytes(), media_type=STATIC[name])

    app.add_middleware(Guard)
    describe(app.openapi(), API)
    app.add_api_route("/health", health, include_in_schema=False)
    app.add_api_route("/static/{name}", static, include_in_schema=False)
    return app


def _add(app: FastAPI, server: WebServer, resource: Resource) -> None:
    """The resource at its three addresses."""

    def document(request: Request, name: str = "") -> Response:
        _, shown = server.read(resource, request, name)
        if shown.document_text is not None and not {"limit", "offset"} & request.query_params.keys():
            return _tagged(shown.document_text(), "application/json", request)
        return _tagged(dump_json(_paged(dict(shown.report.document()), request)), "application/json", request)

    def csv(request: Request, name: str = "") -> Response:
        _, shown = server.read(resource, request, name)
        return _tagged(dump_csv(shown.report.columns, shown.report.rows()), "text/csv; charset=utf-8", request)

    def page(request: Request, name: str = "") -> Response:
        who, shown = server.read(resource, request, name)
        fragment = request.query_params.get("fragment") == "1"
        text = render_layout(shown, resource, request.url.path, request.url.query, who, fragment=fragment)
        return _tagged(text, "text/html; charset=utf-8", request)

    name = resource.path.replace("/", "_").replace("{name}", "of") or "home"
    path = f"/{resource.path}"
    app.add_api_route(f"{API}{path if resource.path else '/home'}", document, methods=["GET"], name=f"read_{name}",
                      summary=resource.about, responses=PROBLEMS)  # fmt: skip
    app.add_api_route(f"{API}{path if resource.path else '/home'}.csv", csv, methods=["GET"], include_in_schema=False)
    app.add_api_route(f"{path if resource.path else '/home'}.json", document, methods=["GET"], include_in_schema=False)
    app.add_api_route(path, page, methods=["GET"], include_in_schema=False)


def _add_verb(app: FastAPI, server: WebServer, verb: PostVerb) -> None:
    def act(request: Request, body: Annotated[dict[str, Any] | None, Body()] = None, name: str = "") -> Response:
        return server.act(verb, request, name, body or {})

    app.add_api_route(f"{API}/{verb.path}", act, methods=["POST"], name=f"post_{verb.name}", summary=verb.about,
                      responses=PROBLEMS)  # fmt: skip


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": words, "content": {"application/problem+json": {}}}
    for status, words in (
        (400, "Bad input, with a hint"), (401, "No key that holds"), (403, "The role does not allow it"),
        (404, "No such thing, with the nearest names"), (409, "Refused, as the command does with exit code 4"),
        (422, "Nothing fits"), (429, "Too many requests"), (501, "An extra is missing"),
        (503, "A file or database of the server's cannot be used"), (507, "The server's disk is full"),
    )
}  # fmt: skip


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TonnageError)
    def refused(request: Request, error: TonnageError) -> Response:
        status = _status(error)
        if status == HTTPStatus.UNAUTHORIZED and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", status_code=303)
        return _problem(status, str(error), error.hint or "", request)

    @app.exception_handler(OSError)
    def disk(request: Request, error: OSError) -> Response:
        words, hint = f"the server's disk: {error.strerror or 'it cannot be used'}", "tell who looks after this server"
        full = error.errno in (ENOSPC, EDQUOT)
        status = HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.SERVICE_UNAVAILABLE
        return _problem(status, words, hint, request)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        said = error.errors()[0]
        return _problem(
            HTTPStatus.BAD_REQUEST, f"the body: {said.get('msg', 'cannot be read')}", "a JSON object", request
        )

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        return _problem(
            HTTPStatus(error.status_code), HTTPStatus(error.status_code).phrase, f"{API}/openapi.json", request
        )


def _status(error: TonnageError) -> HTTPStatus:
    kinds: tuple[tuple[type[TonnageError], HTTPStatus], ...] = (
        (UnknownName, HTTPStatus.NOT_FOUND), (MissingExtra, HTTPStatus.NOT_IMPLEMENTED),
        (DataError, HTTPStatus.SERVICE_UNAVAILABLE),  # a file of the server's, not of the request
        (InputError, HTTPStatus.BAD_REQUEST), (NothingFits, HTTPStatus.UNPROCESSABLE_ENTITY),
        (PlanRefused, HTTPStatus.CONFLICT),
    )  # fmt: skip
    if isinstance(error, Denied):
        return error.status
    return next((status for kind, status in kinds if isinstance(error, kind)), HTTPStatus.SERVICE_UNAVAILABLE)


def _problem(status: HTTPStatus, detail: str, hint: str, request: Request) -> Response:
    """RFC 9457; a page for a browser."""
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(API):
        return HTMLResponse(render_problem(status, detail, hint), status_code=status)
    said = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail, "hint": hint}
    return JSONResponse(said, status_code=status, media_type="application/problem+json")


def _paged(document: dict[str, Any], request: Request) -> dict[str, Any]:
    """`limit` and `offset` cut the longest list; `total` says how long it is. Raises InputError."""
    asked = {key: request.query_params.get(key) for key in ("limit", "offset")}
    if asked["limit"] is None and asked["offset"] is None:
        return document
    cut = {}
    for key, default in (("limit", MOST_LISTED), ("offset", 0)):
        text = asked[key]
        if text is not None and not (text.isascii() and text.isdigit() and int(text) <= MOST_LISTED):
            raise InputError(f"{key}: found '{text[:40]}', expected a whole number up to {MOST_LISTED}")
        cut[key] = default if text is None else int(text)
    return cut_longest(document, limit=cut["limit"], offset=cut["offset"])


def _tagged(text: str, media_type: str, request: Request) -> Response:
    """With an ETag of its bytes; 304 where the client has them."""
    body = text.encode()
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    if request.method == "GET" and tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type=media_type, headers={"etag": tag})
