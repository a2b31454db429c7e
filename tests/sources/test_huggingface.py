"""config.json from the hub, against a server of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tonnage.errors import InputError, SourceError
from tonnage.sources.huggingface import LARGEST_CONFIG_BYTES, HuggingFaceConfigs

CONFIG = {"model_type": "gpt2", "n_layer": 12}


class Hub:
    """A local stand-in for the hub: answers by path, counts requests, remembers their tokens."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append((self.path, self.headers.get("Authorization")))
                queue = hub.answers.get(self.path, [(404, b"")])
                status, body = queue.pop(0) if len(queue) > 1 else queue[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """No log on stderr."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def put(self, repository: str, *answers: tuple[int, bytes]) -> None:
        self.answers[f"/{repository}/resolve/main/config.json"] = list(answers)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    local = Hub()
    yield local
    local.server.shutdown()
    local.server.server_close()


def configs(hub: Hub, cache: Path, **changes: str) -> HuggingFaceConfigs:
    found = HuggingFaceConfigs.from_environment(cache, {"HF_ENDPOINT": hub.url + "/"} | changes)
    object.__setattr__(found, "wait_s", 0.0)
    return found


def test_fetched_once_then_cached(hub: Hub, tmp_path: Path) -> None:
    """The second look is answered from disk, also offline; the token goes along."""
    hub.put("org/model", (200, json.dumps(CONFIG).encode()))
    assert configs(hub, tmp_path, HF_TOKEN="secret").fetch("org/model") == CONFIG
    assert configs(hub, tmp_path, HF_HUB_OFFLINE="1").fetch("org/model") == CONFIG
    assert hub.asked == [("/org/model/resolve/main/config.json", "Bearer secret")]


def test_token_is_not_shown() -> None:
    """The repr of the fetcher, as a traceback may print it, holds no token."""
    found = HuggingFaceConfigs.from_environment(Path("x"), {"HF_TOKEN": "secret"})
    assert found.token == "secret"
    assert "secret" not in repr(found)


def test_temporary_failures_are_retried(hub: Hub, tmp_path: Path) -> None:
    """503, then 429, then the file."""
    hub.put("org/model", (503, b""), (429, b""), (200, json.dumps(CONFIG).encode()))
    assert configs(hub, tmp_path).fetch("org/model") == CONFIG
    assert len(hub.asked) == 3


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ((404, b""), InputError, "no config.json"),
        ((401, b""), InputError, "not open to us"),
        ((403, b""), InputError, "not open to us"),
        ((500, b""), SourceError, "failed 3 times, last with status 500"),
        ((418, b""), SourceError, "answered status 418"),
        ((200, b"<html>"), SourceError, "a web page instead of data"),
        ((200, b"config"), SourceError, "is not JSON"),
        ((200, b"[1]"), SourceError, "holds no JSON object"),
        ((200, b"\xff\xfe"), SourceError, "is not UTF-8"),
        ((200, b" " * (LARGEST_CONFIG_BYTES + 1)), SourceError, "is larger than"),
    ],
)
def test_bad_answers(hub: Hub, tmp_path: Path, answer: tuple[int, bytes], error: type[Exception], said: str) -> None:
    """Each is an error that says what came, and nothing is cached."""
    hub.put("org/model", answer)
    with pytest.raises(error, match=said):
        configs(hub, tmp_path).fetch("org/model")
    assert list(tmp_path.rglob("*.json")) == []


def test_offline_and_not_cached(hub: Hub, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE is obeyed: nothing is asked."""
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):
        configs(hub, tmp_path, HF_HUB_OFFLINE="yes").fetch("org/model")
    assert hub.asked == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b/c", "", "org/model?x=1", "/abs"])
def test_names_that_are_no_repositories(hub: Hub, tmp_path: Path, name: str) -> None:
    """A name cannot leave the cache folder or change the address."""
    with pytest.raises(InputError, match="is not a repository"):
        configs(hub, tmp_path).fetch(name)
    assert hub.asked == []


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that cannot be reached is a SourceError with a way out."""
    monkeypatch.setenv("NO_PROXY", "*")
    away = HuggingFaceConfigs(cache=tmp_path, endpoint="http://127.0.0.1:9", wait_s=0.0)
    with pytest.raises(SourceError, match="failed 3 times") as caught:
        away.fetch("org/model")
    assert "config.json" in (caught.value.hint or "")


def test_unwritable_cache_still_answers(hub: Hub, tmp_path: Path) -> None:
    """A file where the cache folder should be costs the next fetch, nothing more."""
    (tmp_path / "cache").write_text("in the way")
    hub.put("org/model", (200, json.dumps(CONFIG).encode()))
    assert configs(hub, tmp_path / "cache").fetch("org/model") == CONFIG
