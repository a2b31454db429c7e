"""What a gateway keeps of requests, encrypted: nothing of it is readable on the disk, and its key is not beside it."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, streamed, words
from tests.gateway.test_request_log import written

import tonnage
from tonnage.api.gateway import load_gateway_file
from tonnage.api.gateway_keys import read_encryption_notes, with_state_keys
from tonnage.encryption.data_keys import DataKeys, new_wrapped, open_keys, rewrapped
from tonnage.errors import DataError, InputError, WorkloadError
from tonnage.gateway.caching import SharedAnswer, SharedCache
from tonnage.gateway.file.kept_entries import RequestLogEntry
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.observing.request_log import RequestLogWriter, opened_line
from tonnage.gateway.state_keys import open_state_keys, rotate_state_keys
from tonnage.settings import current_settings

pytest.importorskip("cryptography")
FIRST, SECOND = "a first key of 20 characters", "a second key of 20 characters"
ASKED, ANSWERED = "planted-question-7391", "planted-answer-7391"
NOW = datetime(2026, 11, 27, tzinfo=UTC)


def door_with(keys: DataKeys | None) -> type[GatewayHarness]:
    class Encrypting(GatewayHarness):
        STATE_KEYS = keys

    return Encrypting


def on_the_disk(folder: Path, *texts: str) -> list[str]:
    """The files under a folder, what SQLite has not checkpointed among them, in which one of the texts stands."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "gateway.yaml"]
    assert files
    return [path.name for path in files if any(text.encode() in path.read_bytes() for text in texts)]


async def asked_and_repeated(folder: Path, keys: DataKeys | None) -> bytes:
    """A request with an idempotency key, logged with its bodies, and its repeat by another worker: the answer."""
    async with Scripted(said(ANSWERED)) as up:
        async with door_with(keys)(folder, {"a": up}) as harness:
            entry = RequestLogEntry(folder=str(folder / "log"), bodies=True)
            harness.handler.observer = Observer(RequestLogWriter(entry, harness.measures, lambda _: None, keys=keys))
            first = await harness.ask(chat(ASKED), Idempotency_Key="one")
            harness.handler.observer.close()
        async with door_with(keys)(folder, {"a": up}) as harness:
            again = await harness.ask(chat(ASKED), Idempotency_Key="one")
            assert (again.status, again.body, again.header("idempotent-replayed")) == (200, first.body, "true")
        assert len(up.seen) == 1
    return first.body


def test_nothing_planted_is_found_in_the_files(tmp_path: Path) -> None:
    """Neither question nor answer, in the store, its journal of writes or the log; without keys both are found."""
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    for folder in (plain, sealed):
        folder.mkdir()
    play(asked_and_repeated(plain, None))
    assert len(on_the_disk(plain, ASKED, ANSWERED)) >= 2
    keys = open_state_keys(str(sealed / "gateway" / "accounts.db"), FIRST, what="encrypt.key")
    play(asked_and_repeated(sealed, keys))
    assert on_the_disk(sealed, ASKED, ANSWERED, FIRST) == []
    assert all(not any(key in path.read_bytes() for path in sealed.rglob("*") if path.is_file())
               for key in keys.keys.values())  # fmt: skip
    (log,) = (sealed / "log").glob("*.jsonl")
    line = json.loads(log.read_text())
    assert line["body"].startswith("sealed:")
    opened = opened_line(line, keys)
    assert (ASKED in opened["body"], ANSWERED in opened["answer"]) == (True, True)
    with pytest.raises(DataError, match="changed, or is of another place"):
        opened_line({**line, "body": line["answer"]}, keys)


def test_a_rotated_key_opens_what_was_kept_before(tmp_path: Path) -> None:
    """A stream that was kept is repeated after a rotation; what is kept then is under the new data key; the key of
    before opens nothing any more."""
    store = str(tmp_path / "gateway" / "accounts.db")
    before = open_state_keys(store, FIRST, what="encrypt.key")

    async def scenario() -> None:
        async with Scripted(streamed(*words(3)), always=said()) as up:
            async with door_with(before)(tmp_path, {"a": up}) as harness:
                first = await harness.ask(chat(stream=True), Idempotency_Key="one")
            assert rotate_state_keys(store, FIRST, SECOND, what="--from") == 2
            after = open_state_keys(store, SECOND, what="encrypt.key")
            assert after.newest != before.newest
            async with door_with(after)(tmp_path, {"a": up}) as harness:
                assert (await harness.ask(chat(stream=True), Idempotency_Key="one")).body == first.body
                await harness.ask(chat(), Idempotency_Key="two")
            async with door_with(before)(tmp_path, {"a": up}) as harness:
                again = await harness.ask(chat(), Idempotency_Key="two")
                assert (again.status, b"idempotency_answer_not_kept" in again.body) == (409, True)
            async with door_with(None)(tmp_path, {"a": up}) as harness:
                assert (await harness.ask(chat(stream=True), Idempotency_Key="one")).status == 409
            assert len(up.seen) == 2

    play(scenario())
    with pytest.raises(DataError, match=r"encrypt\.key does not open the data keys"):
        open_state_keys(store, FIRST, what="encrypt.key")
    with pytest.raises(DataError, match="--from does not open"):
        rotate_state_keys(store, FIRST, SECOND, what="--from")
    assert len(open_state_keys(store, SECOND, what="encrypt.key").keys) == 2  # as it was


def test_answers_that_were_kept_in_the_clear_are_still_repeated(tmp_path: Path) -> None:
    """Encryption that is switched on makes no answer of before unreadable."""

    async def scenario() -> None:
        async with Scripted(said()) as up:
            async with GatewayHarness(tmp_path, {"a": up}) as harness:
                first = await harness.ask(chat(), Idempotency_Key="one")
            keys = open_state_keys(harness.gateway.store, FIRST, what="encrypt.key")
            async with door_with(keys)(tmp_path, {"a": up}) as harness:
                assert (await harness.ask(chat(), Idempotency_Key="one")).body == first.body

    play(scenario())


def test_values_are_of_their_context_and_whole() -> None:
    """Moved to another place, changed by a bit, cut, or of an unknown key: refused; keys are in no representation."""
    keys = open_keys([new_wrapped(FIRST, now=NOW)], FIRST, what="k")
    sealed = keys.seal(b"value", b"here")
    assert keys.open(sealed, b"here") == b"value"
    assert b"value" not in sealed
    other = open_keys([new_wrapped(FIRST, now=NOW)], FIRST, what="k")
    flipped = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for wrong, context, by in ((sealed, b"there", keys), (flipped, b"here", keys), (sealed[:30], b"here", keys),
                               (sealed, b"here", other), (b"value", b"here", keys)):  # fmt: skip
        with pytest.raises(DataError):
            by.open(wrong, context)
    assert all(key.hex() not in repr(keys) and repr(key)[2:-1] not in repr(keys) for key in keys.keys.values())


def test_a_rotation_wraps_and_changes_no_data_key() -> None:
    """All of them, in their order; the newest is the one made last."""
    first = new_wrapped(FIRST, now=NOW)
    second = new_wrapped(FIRST, now=NOW + timedelta(days=1), like=first)
    kept = rewrapped([second, first], FIRST, SECOND, what="k")
    found = open_keys(kept, SECOND, what="k")
    assert found == open_keys([first, second], FIRST, what="k")
    assert found.newest == second.identity


def test_answers_in_redis_are_encrypted(redis_url: str, redis_server: Any) -> None:
    """What Redis has is readable with the keys alone, and at its own place."""
    keys = open_keys([new_wrapped(FIRST, now=NOW)], FIRST, what="k")
    measures = GatewayMeasures()

    async def scenario() -> None:
        answer = SharedAnswer(200, b"text/plain", ANSWERED.encode(), 1, "a", 60.0)
        sealing, without = SharedCache(redis_url, measures, keys), SharedCache(redis_url, measures)
        await sealing._put(b"place", answer)
        content = redis_server.get("place")
        assert ANSWERED.encode() not in content
        found = await sealing.get(b"place")
        assert found is not None
        assert found.body == answer.body
        redis_server.set("elsewhere", content, ex=10)
        assert await sealing.get(b"elsewhere") is None
        assert await without.get(b"place") is None
        await without._put(b"clear", answer)
        assert await sealing.get(b"clear") is None
        await sealing.close()
        await without.close()

    play(scenario())


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("env:NONE_7391", "encrypt.key: env:NONE_7391 is empty"),
        ("env:SHORT_7391", "the key has 5 characters, and can be guessed"),
        ("file:{home}/gateway/key", "lies beside what it encrypts"),
        ("file:{link}", "lies beside what it encrypts"),
        ("file:{log}/key", "lies beside what it encrypts"),
        ("file:{away}", None),
    ],
)
def test_where_the_key_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str | None) -> None:
    """Not missing, not guessable, not in the home or beside the log, through a link neither; else the gateway has it.

    The error names the reference and never the key.
    """
    home, log, link, away = (tmp_path / name for name in ("home", "log", "link", "away"))
    monkeypatch.setenv("TONNAGE_HOME", str(home))
    monkeypatch.setenv("SHORT_7391", "short")
    for place in (home / "gateway", log):
        place.mkdir(parents=True)
        (place / "key").write_text(FIRST)
    link.symlink_to(home / "gateway" / "key")
    away.write_text(FIRST)
    named = key.format(home=home, log=log, link=link, away=away)
    store = str(home / "gateway" / "accounts.db")
    file = written(tmp_path, store=store, encrypt={"key": named}, request_log={"folder": str(log)})
    settings = current_settings()
    gateway = load_gateway_file(file, settings=settings)
    if said is None:
        assert with_state_keys(gateway, settings).state_keys is not None
        return
    with pytest.raises(InputError, match=said) as caught:
        with_state_keys(gateway, settings)
    assert FIRST not in f"{caught.value} {caught.value.hint}"
    assert caught.value.hint


def no_room(path: Path, text: str) -> None:
    raise OSError(errno.ENOSPC, f"no room for {len(text)} characters", str(path))


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`gateway rotate --from` and `gateway log`, and what they say where nothing is encrypted."""
    from tonnage.cli import run

    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLD_7391", FIRST)
    monkeypatch.setenv("NEW_7391", SECOND)
    plain = written(tmp_path)
    assert run(["gateway", "rotate", str(plain)]) == 2
    assert "encrypts nothing" in capsys.readouterr().err
    old = written(tmp_path, encrypt={"key": "env:OLD_7391"})
    assert run(["gateway", "rotate", str(old)]) == 2
    assert "nothing is encrypted here yet" in capsys.readouterr().err
    keys = with_state_keys(load_gateway_file(old), current_settings()).state_keys
    assert keys is not None
    log = tmp_path / "requests.jsonl"
    context = b"request log\0r1\x001.5\0body"
    from base64 import b64encode

    body = "sealed:" + b64encode(keys.seal(ASKED.encode(), context)).decode()
    log.write_text(json.dumps({"request": "r1", "at_s": 1.5, "body": body}) + "\n")
    new = written(tmp_path, encrypt={"key": "env:NEW_7391"})
    assert run(["gateway", "log", str(new), str(log)]) == 2
    assert "encrypt.key does not open the data keys" in capsys.readouterr().err
    assert run(["gateway", "rotate", str(new), "--from", "env:OLD_7391"]) == 0
    assert "2 data keys" in capsys.readouterr().err
    (note,), fault = read_encryption_notes(tmp_path / "home")
    assert fault is None
    assert (note.file, note.key_from, note.keys, note.plain) == (str(new), "env", 2, ())
    with monkeypatch.context() as full:
        full.setattr("tonnage.api.gateway_keys.write_whole", no_room)
        assert run(["gateway", "rotate", str(new)]) == 0
    said = capsys.readouterr().err
    assert "3 data keys" in said
    assert "not noted for `tonnage compliance`: [Errno 28]" in said
    assert run(["gateway", "log", str(new), str(log)]) == 0
    assert json.loads(capsys.readouterr().out)["body"] == ASKED
    log.write_text(json.dumps({"request": "r2", "at_s": 1.5, "body": body}) + "\n")
    assert run(["gateway", "log", str(new), str(log)]) == 2
    assert f"{log}:1: " in capsys.readouterr().err


def test_files_of_batches_are_named_as_plain(tmp_path: Path) -> None:
    """They hold requests, and nothing encrypts them: a file that takes batches says that it knows."""
    with pytest.raises(WorkloadError, match="does not encrypt the files of `batches`"):
        tonnage.check_gateway(written(tmp_path, encrypt={"key": "env:X"}, batches={}))
    assert tonnage.check_gateway(written(tmp_path, encrypt={"key": "env:X", "plain": ["batches"]}, batches={}))
    with pytest.raises(WorkloadError, match="names what is not there"):
        tonnage.check_gateway(written(tmp_path, encrypt={"key": "env:X", "plain": ["batches"]}))
