"""hf:// against a stand-in of the Hub on this machine: its listing, resolve addresses, redirects and headers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import FetchError
from tonnage.fetching import Fetched, ProgressWatcher

pytest.importorskip("huggingface_hub", reason="the extra 'fetch' is not installed")

Run = Callable[..., Fetched]
COMMIT, LATER = "a" * 40, "b" * 40
SMALL = b'{"layers": 2}\n'


def git_blob(body: bytes) -> str:
    return hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()


class Hub:
    """Two repositories' worth of routes on the shop: a config in git, weights in LFS behind a redirect."""

    def __init__(self, shop: Any, weights: bytes) -> None:
        self.shop, self.weights = shop, weights
        self.publish(COMMIT, {"config.json": SMALL, "onnx/model.bin": b"onnx", "model.safetensors": weights})

    def publish(self, commit: str, files: dict[str, bytes], *, sha256: str | None = None, kind: str = "models") -> None:
        siblings = []
        prefix = "" if kind == "models" else f"/{kind}"
        for path, body in files.items():
            sibling: dict[str, Any] = {"rfilename": path, "size": len(body), "blobId": git_blob(body)}
            headers = {"X-Repo-Commit": commit}
            resolve = f"{prefix}/org/tiny/resolve/{commit}/{path}"
            if path.endswith(".safetensors"):
                digest = sha256 or hashlib.sha256(body).hexdigest()
                sibling["lfs"] = {"sha256": digest, "size": len(body), "pointerSize": 134}
                headers |= {"X-Linked-Size": str(len(body)), "X-Linked-Etag": f'"{digest}"'}
                cdn = self.shop.put(f"/cdn/{commit}/{path}", body)
                self.shop.put(resolve, b"", headers=headers, location=cdn)
            else:
                self.shop.put(resolve, body, etag=f'"{git_blob(body)}"', headers=headers)
            siblings.append(sibling)
        info = {"_id": "1", "id": "org/tiny", "sha": commit, "private": False, "tags": [], "downloads": 0, "likes": 0,
                "siblings": siblings}  # fmt: skip
        for revision in ("main", commit):
            self.shop.put(f"/api/{kind}/org/tiny/revision/{revision}", json.dumps(info).encode(), ranges=False)
        self.shop.put(f"/api/{kind}/org/tiny", json.dumps(info).encode(), ranges=False)


@pytest.fixture
def hub(shop: Any, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A stand-in of the Hub, and a Hub cache of this test's own."""
    monkeypatch.setenv("HF_ENDPOINT", shop.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return Hub(shop, content)


def test_a_repository_arrives_and_is_verified(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """Every file of the revision stands in the target, each verified by the digest the Hub states for it."""
    done = fetch_here("hf://org/tiny")
    assert (tmp_path / "out" / "config.json").read_bytes() == SMALL
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == hub.weights
    assert {one.name: one.verified_by for one in done.files} == {
        "config.json": "git-blob of the Hub (git)", "onnx/model.bin": "git-blob of the Hub (git)",
        "model.safetensors": "sha256 of the Hub (LFS)",
    }  # fmt: skip
    assert {one.version for one in done.files} == {f"commit {COMMIT}"}


def test_a_second_fetch_loads_no_file(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """The target's manifest is enough; another target is served from the Hub's cache."""
    fetch_here("hf://org/tiny")
    bodies = hub.shop.files[f"/cdn/{COMMIT}/model.safetensors"].bodies
    assert {one.outcome for one in fetch_here("hf://org/tiny").files} == {"already there"}
    assert {one.outcome for one in fetch_here("hf://org/tiny", to="other").files} == {"from cache"}
    assert hub.shop.files[f"/cdn/{COMMIT}/model.safetensors"].bodies == bodies
    assert (tmp_path / "other" / "model.safetensors").read_bytes() == hub.weights


@pytest.mark.usefixtures("hub")
def test_the_hubs_cache_serves_other_tools(fetch_here: Run, tmp_path: Path) -> None:
    """What was fetched is found by huggingface_hub itself, by branch name and offline."""
    from huggingface_hub import hf_hub_download

    fetch_here("hf://org/tiny", to=())
    found = hf_hub_download("org/tiny", "config.json", cache_dir=tmp_path / "hub", local_files_only=True)
    assert Path(found).read_bytes() == SMALL


@pytest.mark.usefixtures("hub")
def test_a_folder_a_file_and_patterns(fetch_here: Run, tmp_path: Path) -> None:
    """A path takes a folder or one file of the repository; patterns choose."""
    fetch_here("hf://org/tiny/onnx", to="a")
    fetch_here(f"hf://org/tiny@{COMMIT}/config.json", to="b")
    fetch_here("hf://org/tiny", to="c", include=("*.safetensors",))
    names = {folder: {path.name for path in (tmp_path / folder).iterdir()} for folder in "abc"}
    assert {folder: found - {".tonnage-fetch.json"} for folder, found in names.items()} == {
        "a": {"model.bin"}, "b": {"config.json"}, "c": {"model.safetensors"},
    }  # fmt: skip
    with pytest.raises(FetchError, match="no such file"):
        fetch_here("hf://org/tiny/nothing")


def test_a_data_set(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """hf://datasets/ asks the data sets' own addresses."""
    hub.publish(COMMIT, {"train.csv": b"a,b\n1,2\n"}, kind="datasets")
    fetch_here("hf://datasets/org/tiny")
    assert (tmp_path / "out" / "train.csv").read_bytes() == b"a,b\n1,2\n"


def test_cuts_and_refusals_are_gone_through(
    hub: Hub, fetch_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fold connections go on from the last whole block that arrived; a 503 of the listing is asked again."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 16 * 1024)  # its blocks are of 10 MiB
    cdn = hub.shop.files[f"/cdn/{COMMIT}/model.safetensors"]
    cdn.cuts = [100_000, 200_000, 50_000]
    hub.shop.files["/api/models/org/tiny/revision/main"].refusals = [(503, {})]
    hub.shop.files["/api/models/org/tiny"].refusals = [(503, {})]
    came: list[int] = []
    done = fetch_here("hf://org/tiny", watcher=ProgressWatcher(advance=came.append), attempts=8)
    assert not done.failures
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == hub.weights
    resumed = [one for path, one in hub.shop.ranges if path.startswith("/cdn")]
    assert len([one for one in resumed if not one.startswith("bytes=0-")]) == 3
    assert sum(came) == sum(one.size_bytes or 0 for one in done.files)


def test_bytes_that_are_not_the_hubs_are_refused(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """Weights whose SHA-256 is not the stated one reach no target and do not stay in the cache."""
    hub.shop.files[f"/cdn/{COMMIT}/model.safetensors"].body = bytes(len(hub.weights))
    done = fetch_here("hf://org/tiny")
    assert [one.name for one in done.failures] == ["model.safetensors"]
    assert "Hub (LFS) says" in done.failures[0].problem
    assert not (tmp_path / "out" / "model.safetensors").exists()
    hub.shop.files[f"/cdn/{COMMIT}/model.safetensors"].body = hub.weights
    assert not fetch_here("hf://org/tiny").failures


def test_a_damaged_copy_in_the_cache_is_fetched_again(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """A file of the Hub's cache changed on disk is noticed before it reaches a target."""
    fetch_here("hf://org/tiny", to=())
    (blob,) = [one for one in (tmp_path / "hub").rglob("blobs/*") if one.stat().st_size == len(hub.weights)]
    blob.chmod(0o644)
    with blob.open("r+b") as stream:
        stream.write(b"spoiled")
    said: list[str] = []
    assert not fetch_here("hf://org/tiny", watcher=ProgressWatcher(say=said.append)).failures
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == hub.weights
    assert "damaged" in said[0]


def test_a_moved_branch_is_followed(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """When main names a later commit, the target follows it."""
    fetch_here("hf://org/tiny")
    hub.publish(LATER, {"config.json": b"{}", "model.safetensors": hub.weights})
    fetch_here("hf://org/tiny")
    assert (tmp_path / "out" / "config.json").read_bytes() == b"{}"


def test_offline(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """Offline the cache answers without a request; with our own list gone, the Hub's cache still does."""
    import shutil

    fetch_here("hf://org/tiny", to=(), include=("*.json",))
    asked = sum(hub.shop.asked.values())
    assert not fetch_here("hf://org/tiny", offline=True, include=("*.json",)).failures
    assert {one.name for one in fetch_here("hf://org/tiny", offline=True).failures} == {
        "model.safetensors", "onnx/model.bin",
    }  # fmt: skip
    shutil.rmtree(tmp_path / "cache")
    assert [one.name for one in fetch_here("hf://org/tiny", to="two", offline=True).files] == ["config.json"]
    with pytest.raises(FetchError, match="not in the cache"):
        fetch_here("hf://org/other", offline=True)
    assert sum(hub.shop.asked.values()) == asked


def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: Hub, fetch_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_TOKEN is sent to the endpoint; no file of ours and no result holds it."""
    monkeypatch.setenv("HF_TOKEN", "hf_hushhushhush")
    done = fetch_here("hf://org/tiny")
    assert any(one.get("authorization") == "Bearer hf_hushhushhush" for one in _lowered(hub.shop.seen_headers))
    assert "hushhush" not in repr(done)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hushhush" in path.read_bytes()]


def _lowered(headers: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name.lower(): value for name, value in one.items()} for one in headers]


@pytest.mark.parametrize(("code", "said"), [("RepoNotFound", "no such repository"), ("GatedRepo", "access is gated")])
def test_refusals_of_the_hub_say_what_to_do(hub: Hub, fetch_here: Run, code: str, said: str) -> None:
    """Missing and gated repositories are told apart, with a hint about HF_TOKEN."""
    for path in ("/api/models/org/tiny/revision/main", "/api/models/org/tiny"):
        status = 404 if code == "RepoNotFound" else 403
        hub.shop.files[path].refusals = [(status, {"X-Error-Code": code})] * 9
    with pytest.raises(FetchError, match=said) as caught:
        fetch_here("hf://org/tiny")
    assert "HF_TOKEN" in str(caught.value.hint)


def test_a_name_that_leads_out_is_refused(hub: Hub, fetch_here: Run, tmp_path: Path) -> None:
    """A repository cannot write outside the target."""
    hub.publish(LATER, {"../../evil": b"x"})
    with pytest.raises(FetchError, match="refused"):
        fetch_here("hf://org/tiny")
    assert not list(tmp_path.parent.rglob("evil"))
