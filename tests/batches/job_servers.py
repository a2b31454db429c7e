"""Platforms of batch jobs as they are documented, on this machine: each look at a job brings it one state further."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tonnage.batches.objects import ObjectStore

STATES = ["Submitted", "Validating", "Scheduled", "InProgress"]
OPENAI_STATES = ["validating", "in_progress", "finalizing"]


def answer_to(text: str) -> tuple[str, int, int]:
    """What the models here say: the text again, its tokens a word, and one token."""
    return f"you said {text}", len(text.split()), 1


class Server:
    """One server and what it was asked. `ends_as`: how the next jobs end."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.ends_as: str | None = None
        self.loses_answers_to = ""  # a path: its next answer is lost, after the deed
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.answer(b"")

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, body: bytes) -> None:
                status, found = server.reply(self.command, self.path, body, self.headers)
                if server.loses_answers_to and self.path.endswith(server.loses_answers_to) and self.command == "POST":
                    server.loses_answers_to = ""
                    self.close_connection = True
                    return
                data = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                if status >= 400:
                    self.send_header("x-amzn-ErrorType", "ValidationException")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def reply(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class Bedrock(Server):
    """CreateModelInvocationJob, GetModelInvocationJob; files in `store`, the bucket of all of them."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__()
        self._store = store

    def reply(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        del headers
        if method == "POST" and path == "/model-invocation-job":
            return self._create(json.loads(body))
        name = re.sub(".*/", "", path.replace("%2F", "/").replace("%3A", ":"))
        job = next((one for one in self.jobs.values() if one["jobArn"].endswith(name)), None)
        if job is None:
            return 404, {"message": "no such job"}
        at = STATES.index(job["status"]) if job["status"] in STATES else -1
        if at >= 0:
            job["status"] = STATES[at + 1] if at + 1 < len(STATES) else self._end(job)
        return 200, job

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        token = asked["clientRequestToken"]
        self.asked[token] += 1
        if token not in self.jobs:
            arn = f"arn:aws:bedrock:us-east-1:123456789012:model-invocation-job/{len(self.jobs):012d}"
            self.jobs[token] = asked | {
                "jobArn": arn, "status": "Submitted", "submitTime": "2026-11-23T00:00:00Z",
            }  # fmt: skip
        return 200, {"jobArn": self.jobs[token]["jobArn"]}

    def _end(self, job: dict[str, Any]) -> str:
        key = job["inputDataConfig"]["s3InputDataConfig"]["s3Uri"].split("/", 3)[3]
        state = self._store.look(key)
        assert state is not None
        lines = b"".join(self._store.read(key, 0, state.version)).splitlines()
        if len(lines) < 100:
            job["message"] = f"the job has {len(lines)} records, 100 at least"
            return "Failed"
        found = [self._record(json.loads(line), job["modelInvocationType"]) for line in lines]
        if self.ends_as == "Expired":
            found = found[: len(found) // 2]
        folder = job["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"].split("/", 3)[3].strip("/")
        name = job["jobArn"].rpartition("/")[2]
        data = "".join(json.dumps(one) + "\n" for one in reversed(found)).encode()
        self._store.create(f"{folder}/{name}/in.jsonl.out", data)
        self._store.create(f"{folder}/{name}/manifest.json.out", b"{}")
        job["processedRecordCount"] = len(found)
        return self.ends_as or "Completed"

    def _record(self, record: dict[str, Any], form: str) -> dict[str, Any]:
        asked = record["modelInput"]
        self.records[record["recordId"]] += 1
        if form == "InvokeModel":
            return record | {
                "modelOutput": {"embedding": [0.5], "inputTextTokenCount": len(asked["inputText"].split())}
            }
        text = asked["messages"][-1]["content"][0]["text"]
        if "refuse" in text:
            return record | {"error": {"errorCode": 400, "errorMessage": "refused as asked"}}
        said, read, written = answer_to(text)
        output = {"message": {"role": "assistant", "content": [{"text": said}]}}
        usage = {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
        return record | {"modelOutput": {"output": output, "stopReason": "end_turn", "usage": usage}}


class OpenAI(Server):
    """`/v1/files` and `/v1/batches`."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}

    def reply(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        if headers["Authorization"] != "Bearer right":
            return 401, {"error": {"message": "wrong key"}}
        path, _, query = path.partition("?")
        if path == "/v1/files":
            boundary = headers["Content-Type"].partition("boundary=")[2].encode()
            part = next(one for one in body.split(b"--" + boundary) if b"filename=" in one)
            assert b"batch" in body
            return 200, {"id": self._file(part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n"))}
        if path == "/v1/batches" and method == "POST":
            name = f"batch_{len(self.jobs)}"
            self.jobs[name] = json.loads(body) | {"id": name, "status": "validating"}
            return 200, self.jobs[name]
        if path == "/v1/batches":
            after = query.partition("after=")[2]
            names = [name for name in self.jobs if not after or name > after]
            return 200, {"data": [self.jobs[name] for name in names[:1]], "has_more": len(names) > 1}
        if path.endswith("/content"):
            return 200, self.files[path.split("/")[3]]
        job = self.jobs[path.rpartition("/")[2]]
        if job["status"] in OPENAI_STATES:
            at = OPENAI_STATES.index(job["status"])
            job["status"] = OPENAI_STATES[at + 1] if at + 1 < len(OPENAI_STATES) else self._end(job)
        return 200, job

    def _end(self, job: dict[str, Any]) -> str:
        lines = [json.loads(line) for line in self.files[job["input_file_id"]].splitlines()]
        good, bad = [], []
        for one in lines:
            self.records[one["custom_id"]] += 1
            text = one["body"]["messages"][-1]["content"]
            said, read, written = answer_to(text)
            body: Any = {"choices": [{"message": {"content": said}}],
                         "usage": {"prompt_tokens": read, "completion_tokens": written}}  # fmt: skip
            status = 400 if "refuse" in text else 200
            body = {"error": {"message": "refused as asked"}} if status == 400 else body
            line = {"custom_id": one["custom_id"], "response": {"status_code": status, "body": body}, "error": None}
            (bad if status == 400 else good).append(json.dumps(line))
        job["output_file_id"] = self._file("\n".join(good).encode())
        job["error_file_id"] = self._file("\n".join(bad).encode()) if bad else None
        return self.ends_as or "completed"

    def _file(self, data: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = data
        return name
