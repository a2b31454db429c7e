"""Files and batches of all keys, in a folder that every worker and the runner of batches see.

A file is its content and a description beside it; a batch is a description that the runner alone changes. Whoever asks
for the end of a batch leaves a mark beside it. Whatever names an owner is seen by that key alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import Any, Final, Literal

import orjson

from tonnage.files import make_private_folder, sync, write_whole

Document = dict[str, Any]
Kind = Literal["files", "batches"]
ENDED: Final = ("completed", "failed", "expired", "cancelled")
_NAME: Final = re.compile(r"(?:file-|batch_)[0-9a-f]{24}")
OWNER: Final = "owner"  # of a description
ENDING: Final = "ending"  # of a batch: what it becomes once its files are there


class BatchStore:
    """`folder` is made for the user alone. Methods use the disk: in a thread, not in an event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind in ("files", "batches", "work"):
            make_private_folder(folder / kind)

    # files

    def add_file(self, owner: str, name: str, purpose: str, content: bytes, *, keep_s: float) -> Document:
        """Keep an upload. Raises OSError; nothing is left then."""
        made = new_name("file-")
        write_whole(self.content(made), content)
        return self.describe_file(owner, made, name, purpose, len(content), keep_s=keep_s)

    def describe_file(self, owner: str, made: str, name: str, purpose: str, size: int, *, keep_s: float) -> Document:
        """The description of a content that is in its place."""
        now = int(time())
        document = {
            "id": made, "object": "file", "bytes": size, "created_at": now, "expires_at": now + int(keep_s),
            "filename": name, "purpose": purpose, "status": "processed", OWNER: owner,
        }  # fmt: skip
        self.save("files", document)
        return document

    def content(self, name: str) -> Path:
        return self.folder / "files" / f"{name}.jsonl"

    def remove_file(self, name: str) -> None:
        (self.folder / "files" / f"{name}.json").unlink(missing_ok=True)
        self.content(name).unlink(missing_ok=True)

    def bytes_of(self, owner: str) -> int:
        """What a key's files take on the disk."""
        return sum(one["bytes"] for one in self.all_of("files", owner))

    # batches

    def work(self, name: str) -> Path:
        """Where the answers of a batch gather."""
        return self.folder / "work" / f"{name}.jsonl"

    def ask_to_cancel(self, name: str) -> None:
        with suppress(FileExistsError):
            os.close(os.open(self._mark(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            sync(self.folder / "batches")

    def cancel_asked_at(self, name: str) -> int | None:
        """When a client asked for the end of a batch; None: it did not."""
        try:
            return int(self._mark(name).stat().st_mtime)
        except FileNotFoundError:
            return None

    def shown_batch(self, document: Document) -> Document:
        """A batch as its client sees it."""
        asked_at = self.cancel_asked_at(document["id"])
        if asked_at is not None and document["status"] not in ENDED:
            document = {**document, "status": "cancelling", "cancelling_at": asked_at}
        return shown(document)

    def remove_batch(self, name: str) -> None:
        (self.folder / "batches" / f"{name}.json").unlink(missing_ok=True)
        self._mark(name).unlink(missing_ok=True)

    # both

    def save(self, kind: Kind, document: Document, *, durable: bool = True) -> None:
        """Raises OSError."""
        write_whole(self.folder / kind / f"{document['id']}.json", orjson.dumps(document), durable=durable)

    def load(self, kind: Kind, name: str) -> Document | None:
        """None: there is none of that name."""
        if _NAME.fullmatch(name) is None:
            return None
        try:
            found: Document = orjson.loads((self.folder / kind / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None
        return found

    def load_of(self, kind: Kind, name: str, owner: str) -> Document | None:
        """None also where it is another key's."""
        found = self.load(kind, name)
        return found if found is not None and found[OWNER] == owner else None

    def all_of(self, kind: Kind, owner: str) -> list[Document]:
        """The newest first."""
        return sorted((one for one in self.every(kind) if one[OWNER] == owner), key=_newest_first)

    def every(self, kind: Kind) -> Iterator[Document]:
        for path in (self.folder / kind).glob("*.json"):
            found = self.load(kind, path.stem)
            if found is not None:
                yield found

    def _mark(self, name: str) -> Path:
        return self.folder / "batches" / f"{name}.cancel"


def new_name(prefix: str) -> str:
    return prefix + os.urandom(12).hex()


def made_name(batch: str, what: str) -> str:
    """The name of a file that a batch makes: the same whenever it is asked for."""
    return "file-" + blake2b(f"{batch}/{what}".encode(), digest_size=12).hexdigest()


def shown(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in (OWNER, ENDING)}


def _newest_first(document: Document) -> tuple[int, str]:
    return -int(document["created_at"]), str(document["id"])
