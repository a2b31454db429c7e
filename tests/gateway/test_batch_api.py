"""Files and batches of clients: taken, carried through the gateway's own routes and money, kept apart by key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, late, play, said, whole

import tonnage
from tonnage.api.gateway_batches import BatchRunner
from tonnage.errors import InputError
from tonnage.gateway.batch_api.endpoints import BatchEndpoints
from tonnage.gateway.batch_api.store import BatchStore
from tonnage.gateway.forms import read_parts
from tonnage.gateway.proxy.asked import UnreadableRequest

SECRET = "a-secret"
KEYS = {"web": {"key": "env:KEY_A", "team": "web"}, "other": {"key": "env:KEY_B"}}


def rows(*texts: str, **more: Any) -> str:
    """The lines of a batch file."""
    found = [
        {"custom_id": f"r{index}", "method": "POST", "url": "/v1/chat/completions", "body": chat(text), **more}
        for index, text in enumerate(texts)
    ]
    return "".join(json.dumps(one) + "\n" for one in found)


class Batches:
    """A gateway with batches, its runner, and a client of one key."""

    def __init__(self, harness: GatewayHarness, client: httpx.AsyncClient) -> None:
        self.handler, self.client = harness, client
        store = BatchStore(harness.folder / "batches")
        entry = harness.gateway.batches
        assert entry is not None
        harness.handler.batches = BatchEndpoints(store, SECRET)
        self.messages: list[str] = []
        self.runner = BatchRunner(store, entry, f"http://127.0.0.1:{harness.port}", SECRET, self.messages.append)

    async def upload(self, content: str, **fields: str) -> httpx.Response:
        return await self.client.post(
            "/v1/files", files={"file": ("in.jsonl", content.encode())}, data={"purpose": "batch", **fields}
        )

    async def create(self, content: str, **more: Any) -> dict[str, Any]:
        file = (await self.upload(content)).json()["id"]
        asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", **more}
        answer = await self.client.post("/v1/batches", json=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def run(self) -> None:
        """Carry what waits, to its end."""
        self.runner.look()
        for one in tuple(self.runner._running.values()):
            await asyncio.wrap_future(one)
        self.runner.look()

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def lines(self, file: str) -> list[dict[str, Any]]:
        text = (await self.client.get(f"/v1/files/{file}/content")).text
        return sorted((json.loads(line) for line in text.splitlines()), key=lambda one: one["custom_id"])


@asynccontextmanager
async def opened(folder: Path, upstream: Scripted, **keys: Any) -> AsyncIterator[Batches]:
    file = {"keys": KEYS, "batches": {}, **keys}
    async with GatewayHarness(folder, {"a": upstream}, **file) as harness:
        base = f"http://127.0.0.1:{harness.port}"
        head = {"authorization": "Bearer secret-a"}
        async with httpx.AsyncClient(base_url=base, headers=head, trust_env=False) as client:
            made = Batches(harness, client)
            try:
                yield made
            finally:
                await asyncio.to_thread(made.runner.close)


def test_a_batch_from_upload_to_output(tmp_path: Path) -> None:
    """Each row is a request of the key that gave it, in the ledger with its cost; answers and faults become files."""

    async def scenario() -> None:
        bad = whole({"error": {"message": "no", "type": "invalid_request_error"}}, status=400)
        async with (
            Scripted(said("one"), bad, always=said("more")) as upstream,
            opened(tmp_path, upstream, batches={"concurrency": 1}) as here,
        ):
            made = await here.create(rows("a", "b", "c"), metadata={"night": "1"})
            assert (made["status"], made["object"], made["metadata"]) == ("validating", "batch", {"night": "1"})
            assert "owner" not in made
            await here.run()
            done = await here.get(f"/v1/batches/{made['id']}")
            assert (done["status"], here.messages) == ("completed", [])
            assert done["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
            assert set(done) == set(made)
            answers = await here.lines(done["output_file_id"])
            assert len(answers) == 2
            assert answers[0]["response"]["status_code"] == 200
            assert answers[0]["response"]["body"]["choices"][0]["message"]["content"] == "one"
            (fault,) = await here.lines(done["error_file_id"])
            assert fault["response"]["status_code"] == 400
            listed = await here.get("/v1/files")
            assert {one["purpose"] for one in listed["data"]} == {"batch", "batch_output"}
            ledger = await here.handler.rows()
            assert [one["key"] for one in ledger] == ["web"] * 3
            assert sum(one["usd_pico"] for one in ledger) == 2 * 15 * 10**6
            output = await here.client.delete(f"/v1/files/{done['output_file_id']}")
            assert output.json()["deleted"] is True
            assert (await here.client.get(f"/v1/files/{done['output_file_id']}")).status_code == 404

    play(scenario())


def test_another_key_sees_nothing(tmp_path: Path) -> None:
    """Neither lists, nor contents, nor the end of a batch; and a secret that is wrong opens nothing."""

    async def scenario() -> None:
        async with Scripted(always=said()) as upstream, opened(tmp_path, upstream) as here:
            made = await here.create(rows("a"))
            other = {"authorization": "Bearer secret-b"}
            for path in (f"/v1/batches/{made['id']}", f"/v1/files/{made['input_file_id']}",
                         f"/v1/files/{made['input_file_id']}/content"):  # fmt: skip
                assert (await here.client.get(path, headers=other)).status_code == 404
            assert (await here.client.get("/v1/batches", headers=other)).json()["data"] == []
            assert (await here.client.post(f"/v1/batches/{made['id']}/cancel", headers=other)).status_code == 404
            asked = {"input_file_id": made["input_file_id"], "endpoint": "/v1/chat/completions",
                     "completion_window": "24h"}  # fmt: skip
            assert (await here.client.post("/v1/batches", json=asked, headers=other)).status_code == 400
            forged = {"authorization": "", "x-tonnage-batch": f"wrong {made['id']} web"}
            assert (await here.client.get("/v1/batches", headers=forged)).status_code == 401
            assert (await here.client.get("/v1/files/..%2fbatches", headers={})).status_code == 404

    play(scenario())


def test_a_restart_goes_on(tmp_path: Path) -> None:
    """A runner that stops in the middle leaves its rows; the next one asks those that have no answer, and no other."""

    async def scenario() -> None:
        async with (
            Scripted(said("first"), late(said("second"), 0.3), always=said("rest")) as upstream,
            opened(tmp_path, upstream, batches={"concurrency": 1}) as here,
        ):
            made = await here.create(rows("a", "b", "c", "d"))
            here.runner.look()
            while len(upstream.seen) < 2:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(here.runner.close)
            state = await here.get(f"/v1/batches/{made['id']}")
            assert state["status"] == "in_progress"
            sent = len(upstream.seen)
            again = Batches(here.handler, here.client)
            await again.run()
            done = await again.get(f"/v1/batches/{made['id']}")
            assert (done["status"], done["request_counts"]["completed"]) == ("completed", 4)
            assert sent < 4
            assert len(upstream.seen) == 4
            again.runner.close()

    play(scenario())


def test_cancelled_and_expired(tmp_path: Path) -> None:
    """What was answered stays; what was not sent stands among the errors with the reason."""

    async def scenario() -> None:
        async with (
            Scripted(said("first"), always=late(said("slow"), 0.2)) as upstream,
            opened(tmp_path, upstream, batches={"concurrency": 1}) as here,
        ):
            made = await here.create(rows(*"abcdef"))
            here.runner.look()
            while len(upstream.seen) < 2:
                await asyncio.sleep(0.005)
            asked = (await here.client.post(f"/v1/batches/{made['id']}/cancel")).json()
            assert asked["status"] == "cancelling"
            await here.run()
            done = await here.get(f"/v1/batches/{made['id']}")
            counts = done["request_counts"]
            assert done["status"] == "cancelled"
            assert counts["completed"] + counts["failed"] == 6
            assert counts["completed"] >= 1
            faults = await here.lines(done["error_file_id"])
            assert faults[-1]["error"]["code"] == "batch_cancelled"
            assert (await here.client.post(f"/v1/batches/{made['id']}/cancel")).status_code == 409
            late_one = await here.create(rows("a"))
            document = here.runner.store.load("batches", late_one["id"])
            assert document is not None
            here.runner.store.save("batches", {**document, "expires_at": 1})
            await here.run()
            found = await here.get(f"/v1/batches/{late_one['id']}")
            assert found["status"] == "expired"
            assert (await here.lines(found["error_file_id"]))[0]["error"]["code"] == "batch_expired"

    play(scenario())


@pytest.mark.parametrize(
    ("content", "said_of_it"),
    [
        ("{\n", "no JSON"),
        (rows("a", url="/v1/embeddings"), "is not the batch's endpoint"),
        (rows("a") * 2, "one custom_id"),
        (rows(*"abcd"), "over 3 requests"),
        (rows("a").replace('"max_tokens"', '"stream": true, "max_tokens"'), "does not stream"),
    ],
)
def test_inputs_that_cannot_be_carried(tmp_path: Path, content: str, said_of_it: str) -> None:
    """The batch fails before anything is sent, and says the line."""

    async def scenario() -> None:
        async with Scripted(always=said()) as upstream, opened(tmp_path, upstream, batches={"rows": 3}) as here:
            made = await here.create(content)
            await here.run()
            done = await here.get(f"/v1/batches/{made['id']}")
            assert done["status"] == "failed"
            assert said_of_it in done["errors"]["data"][0]["message"]
            assert upstream.seen == []

    play(scenario())


def test_uploads_and_creations_that_are_refused(tmp_path: Path) -> None:
    """Each with the field that is at fault."""

    async def scenario() -> None:
        limits = {"file_mb": 0.001, "key_mb": 0.0015, "longest": "24h"}
        async with Scripted(always=said()) as upstream, opened(tmp_path, upstream, batches=limits) as here:
            assert (await here.upload(rows("a"), purpose="fine-tune")).json()["error"]["param"] == "purpose"
            assert (await here.upload("")).json()["error"]["message"] == "the file is empty"
            assert (await here.upload("x" * 1001)).status_code == 413
            assert (await here.client.post("/v1/files", content=b"x")).json()["error"]["param"] == "file"
            file = (await here.upload("x" * 900)).json()["id"]
            full = await here.upload("x" * 900)
            assert (full.status_code, "delete some" in full.text) == (413, True)
            asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            for wrong in ({"endpoint": "/v1/images"}, {"completion_window": "25h"}, {"completion_window": "soon"},
                          {"input_file_id": "file-x"}, {"metadata": {"a": 1}}):  # fmt: skip
                answer = await here.client.post("/v1/batches", json={**asked, **wrong})
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(wrong)))
            assert (await here.client.put("/v1/files")).status_code == 405
            assert (await here.client.post("/v1/batches", json=asked)).status_code == 200
            busy = await here.client.delete(f"/v1/files/{file}")
            assert (busy.status_code, "cancel it first" in busy.text) == (409, True)

    play(scenario())


def test_lists_have_pages(tmp_path: Path) -> None:
    """As clients of OpenAI's API walk through them."""

    async def scenario() -> None:
        async with Scripted(always=said()) as upstream, opened(tmp_path, upstream) as here:
            for _ in range(3):
                await here.upload("x")
            first = await here.get("/v1/files?limit=2&purpose=batch")
            assert (len(first["data"]), first["has_more"]) == (2, True)
            rest = await here.get(f"/v1/files?limit=2&after={first['last_id']}")
            assert (len(rest["data"]), rest["has_more"]) == (1, False)
            assert {one["id"] for one in first["data"]}.isdisjoint(one["id"] for one in rest["data"])

    play(scenario())


def test_what_is_old_goes(tmp_path: Path) -> None:
    """Files past their time, and batches that ended long ago."""

    async def scenario() -> None:
        async with Scripted(always=said()) as upstream, opened(tmp_path, upstream) as here:
            made = await here.create(rows("a"))
            await here.run()
            store = here.runner.store
            here.runner.tidy()
            assert (await here.get("/v1/files"))["data"]
            for one in store.every("files"):
                store.save("files", {**one, "expires_at": 1})
            done = store.load("batches", made["id"])
            assert done is not None
            store.save("batches", {**done, "created_at": 1})
            here.runner.tidy()
            assert (await here.get("/v1/files"))["data"] == (await here.get("/v1/batches"))["data"] == []
            assert not list((tmp_path / "batches" / "files").iterdir())

    play(scenario())


def test_without_batches_there_is_no_such_path(tmp_path: Path) -> None:
    """The file has to ask for them; and its sizes have to go together."""

    async def scenario() -> None:
        async with Scripted(always=said()) as upstream, GatewayHarness(tmp_path, {"a": upstream}) as harness:
            assert (await harness.ask({}, path="/v1/batches")).status == 404

    play(scenario())
    from tests.gateway.test_request_log import written

    with pytest.raises(InputError, match="more than a request may have"):
        tonnage.check_gateway(written(tmp_path, batches={"file_mb": 100}))


@pytest.mark.parametrize("body", [b"", b"--b\r\n", b"--b\r\nx\r\n--b--", b"--b\r\ncontent-type: a\r\n\r\nx\r\n--b--"])
def test_forms_that_are_none(body: bytes) -> None:
    """No end, no name, no head."""
    with pytest.raises(UnreadableRequest):
        read_parts(b"multipart/form-data; boundary=b", body)


def test_a_form_keeps_every_byte() -> None:
    """Also line ends and what looks like the boundary's beginning."""
    content = b"\r\n--x\r\n\r\n{}"
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\".jsonl"\r\n\r\n' + content
    (found,) = read_parts(b'multipart/form-data; boundary="b"', body + b"\r\n--b--\r\n")
    assert (found.name, found.filename, body[found.begin : found.end]) == ("file", 'a "b".jsonl', content)
