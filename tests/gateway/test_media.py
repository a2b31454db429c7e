"""Images and audio: passed byte for byte, bounded before they are sent, priced by what was made or heard."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, whole

from tonnage.errors import InputError
from tonnage.gateway.forms import read_parts
from tonnage.gateway.media.asked import read_media
from tonnage.gateway.proxy.asked import UnreadableRequest

MEDIA = {"usd_per_image": 0.02, "images": {"1024x1024 hd": 0.08, "1024x1024": 0.04}, "usd_per_audio_s": 0.0001,
         "usd_per_character": 0.000015}  # fmt: skip
IMAGE = 2 * 10**10  # pico-dollars of one at 0.02 USD
FORM = b"multipart/form-data; boundary=xx"


def form(*parts: tuple[str, bytes], file: bytes | None = b"\x00\xffRIFF\r\n--x", mark: bytes = b"xx") -> bytes:
    """A form with fields, then a file."""
    lines = [b"--%b\r\nContent-Disposition: form-data; name=\"%b\"\r\n\r\n%b\r\n" % (mark, name.encode(), value)
             for name, value in parts]  # fmt: skip
    if file is not None:
        head = (
            b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
        )
        lines.append(head % mark + file + b"\r\n")
    return b"".join([*lines, b"--%b--\r\n" % mark])


def wav(seconds: float) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(1000)
        file.writeframes(b"\0\0" * int(seconds * 1000))
    return written.getvalue()


class MediaHarness(GatewayHarness):
    """With one deployment of images and audio."""

    def __init__(self, folder: Path, upstream: Scripted, **file: Any) -> None:
        super().__init__(folder, {"a": upstream}, **{"each": {"media": MEDIA, "price": None}, **file})


class Recorded(Scripted):
    """An upstream whose requests need not be JSON."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(line.split(":")[1]) for line in head.lower().splitlines() if "content-length" in line)
                self.heads.append(head)
                self.raw.append(await reader.readexactly(length))
                await self.answers.popleft()(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def test_images_are_priced_by_what_was_made(tmp_path: Path) -> None:
    """Three asked for, two made: two are paid; the size's own price, else the dearest that it could be."""

    async def scenario() -> None:
        two = whole({"created": 1, "data": [{"b64_json": "x"}, {"b64_json": "y"}]})
        async with Recorded(two, two, two) as up, MediaHarness(tmp_path, up, budgets=[{"usd": 1}]) as harness:
            body = {"model": "chat", "prompt": "a cat", "n": 3, "size": "512x512", "quality": "low"}
            answer = await harness.ask(body, "/v1/images/generations")
            assert (answer.status, answer.header("x-tonnage-cost-usd")) == (200, "0.04")
            assert json.loads(up.raw[0]) == {**body, "model": "upstream-model"}
            await harness.ask(
                {"model": "chat", "prompt": "x", "size": "1024x1024", "quality": "hd"}, "/v1/images/generations"
            )
            await harness.ask({"model": "chat", "prompt": "x"}, "/v1/images/generations")
            rows = await harness.rows()
            assert [row["usd_pico"] for row in rows] == [2 * IMAGE, 8 * IMAGE, 8 * IMAGE]
            assert {(row["input_tokens"], row["output_tokens"], row["estimated"]) for row in rows} == {(None, None, 0)}
            (state,) = await harness.book.states()
            assert state.committed == 18 * IMAGE

    play(scenario())


def test_a_form_passes_byte_for_byte(tmp_path: Path) -> None:
    """But for the model's name, whose length changes; the boundary may stand in the file, without its line."""

    async def scenario() -> None:
        sent = form(("prompt", "a café".encode()), ("model", b"chat"), ("n", b"2"))
        async with Recorded(whole({"data": [{}, {}]})) as up, MediaHarness(tmp_path, up) as harness:
            answer = await harness.ask(sent, "/v1/images/edits", content_type=FORM.decode())
            assert answer.status == 200
            assert up.raw[0] == sent.replace(b"\r\nchat\r\n", b"\r\nupstream-model\r\n")
            assert f"content-type: {FORM.decode()}" in up.heads[0]

    play(scenario())


def test_audio_is_priced_by_the_second(tmp_path: Path) -> None:
    """By what the answer tells; by the length of a WAV file; else by estimate, marked so. Plain text passes."""

    async def scenario() -> None:
        async with (
            Recorded(
                whole({"text": "a", "usage": {"type": "duration", "seconds": 9}}),
                whole({"text": "a", "duration": 4.2}),
                whole(b"a plain text"), whole({"text": "a"}),
            ) as up,
            MediaHarness(tmp_path, up, budgets=[{"usd": 1}]) as harness,
        ):  # fmt: skip
            for file in (b"mp3" * 100, b"mp3" * 100, wav(2.5), b"\0" * 24_000):
                answer = await harness.ask(
                    form(("model", b"chat"), file=file), "/v1/audio/transcriptions", content_type=FORM.decode()
                )
                assert answer.status == 200
            rows = await harness.rows()
            assert [(row["usd_pico"] // 10**8, row["estimated"]) for row in rows] == [(9, 0), (5, 0), (3, 0), (3, 1)]
            assert harness.book.open_holds == 0

    play(scenario())


def test_speech_is_priced_by_the_letter(tmp_path: Path) -> None:
    """Whatever sound comes back, its bytes as they are."""

    async def scenario() -> None:
        async with Recorded(whole(b"\xff\xfbsound")) as up, MediaHarness(tmp_path, up) as harness:
            answer = await harness.ask({"model": "chat", "input": "grüße", "voice": "x"}, "/v1/audio/speech")
            assert answer.body == b"\xff\xfbsound"
            assert answer.header("x-tonnage-cost-usd") == "0.000075"

    play(scenario())


def test_what_could_pass_a_budget_is_refused(tmp_path: Path) -> None:
    """The most that it can cost is held: every image asked for, every second that the bytes could be."""

    async def scenario() -> None:
        async with Recorded() as up, MediaHarness(tmp_path, up, budgets=[{"usd": 0.1}]) as harness:
            images = await harness.ask({"model": "chat", "prompt": "x", "n": 2}, "/v1/images/generations")
            assert images.status == 429
            assert b"this request may take 0.16 USD" in images.body
            audio = form(("model", b"chat"), file=b"x" * 1_000_000)
            heard = await harness.ask(audio, "/v1/audio/transcriptions", content_type=FORM.decode())
            assert b"this request may take 0.2 USD" in heard.body
            assert not up.raw

    play(scenario())


def test_only_what_has_a_price_is_asked(tmp_path: Path) -> None:
    """Chat of a deployment of images, images of one of chat, a size without a price: refused, nothing is sent."""

    async def scenario() -> None:
        images = {"price": None, "media": {"images": {"512x512": 0.01}}}
        async with Recorded() as up, MediaHarness(tmp_path, up, each=images) as harness:
            assert (await harness.ask()).status == 400
            speech = await harness.ask({"model": "chat", "input": "x"}, "/v1/audio/speech")
            assert b"can be asked by speech" in speech.body
            sized = await harness.ask(
                {"model": "chat", "prompt": "x", "size": "9x9", "quality": "hd"}, "/v1/images/generations"
            )
            assert (sized.status, json.loads(sized.body)["error"]["code"]) == (400, "unpriced")
            assert not up.raw
        async with Scripted(said()) as up2, GatewayHarness(tmp_path, {"a": up2}) as door2:
            assert (await door2.ask({"model": "chat", "prompt": "x"}, "/v1/images/generations")).status == 400
            assert (await door2.ask(chat())).status == 200

    play(scenario())


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (b"application/json", b"{}", "multipart/form-data"),
        (b"multipart/form-data", form(("model", b"m")), "boundary"),
        (FORM, b"--yy--", "does not begin"),
        (FORM, b"--xx\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm", "ends before its boundary"),
        (FORM, form(("model", b"m"), ("model", b"n")), "stands twice"),
        (FORM, form(("model", b"m"), file=None), "no file"),
        (FORM, form(("model", b"m"), ("n", b"0")), "whole number"),
        (FORM, form(("model", b"\xff")), "no UTF-8"),
        (FORM, form(("model", b"m"), ("stream", b"true")), "passed on whole"),
        (FORM, form(("n", b"1")), "must name a route"),
        (FORM, b"--xx\r\nContent-Type: text/plain\r\n\r\nm\r\n--xx--\r\n", "has no name"),
    ],
)  # fmt: skip
def test_bad_forms(kind: bytes, body: bytes, said: str) -> None:
    """Refused with what is wrong, also what two readers could read differently."""
    with pytest.raises(UnreadableRequest, match=said):
        read_media("image-edits", [(b"content-type", kind)], body)


def test_names_of_parts_cannot_be_smuggled() -> None:
    """A file's name that looks like another field is a file's name."""
    body = b'--xx\r\nContent-Disposition: form-data; filename="a; name=\\"model\\""; name="file"\r\n\r\nm\r\n--xx--\r\n'
    assert [(one.name, one.is_file) for one in read_parts(FORM, body)] == [("file", True)]


@pytest.mark.parametrize(
    ("media", "said"),
    [
        ({}, "is not taken as zero"), ({"images": {"big": 1}}, "is no size"),
        ({"usd_per_image": 1, "longest_audio": "1h"}, "usd_per_audio_s"),
    ],
)  # fmt: skip
def test_prices_are_checked(tmp_path: Path, media: dict[str, Any], said: str) -> None:
    """When the file is read."""
    with pytest.raises(InputError) as error:
        play(GatewayHarness(tmp_path, {"a": Scripted()}, each={"url": "http://h:1/v1", "media": media}).__aenter__())  # type: ignore[arg-type]
    assert said in f"{error.value} {error.value.hint}"


def test_guardrails_read_prompts_and_transcripts(tmp_path: Path) -> None:
    """A secret in a prompt is replaced, in a form refused; one in a plain transcript is replaced too."""

    async def scenario() -> None:
        key = "sk-proj-abcdefghijklmnop1234"
        rules = {"no-keys": {"detect": "secrets", "act": "redact", "on": ["input", "output"]}}
        text = whole(f"the key {key}".encode())

        async def plain(writer: asyncio.StreamWriter) -> None:
            writer.write(
                b"HTTP/1.1 200 x\r\ncontent-type: text/plain\r\ncontent-length: 36\r\n\r\nthe key " + key.encode()
            )

        async with (
            Recorded(whole({"data": [{}]}), plain, text) as up,
            MediaHarness(tmp_path, up, guardrails=rules, route={"guardrails": ["no-keys"]}) as harness,
        ):
            await harness.ask({"model": "chat", "prompt": f"draw {key}"}, "/v1/images/generations")
            assert json.loads(up.raw[0])["prompt"] == "draw [key]"
            refused = await harness.ask(
                form(("model", b"chat"), ("prompt", key.encode())), "/v1/images/edits", content_type=FORM.decode()
            )
            assert refused.status == 400
            heard = await harness.ask(form(("model", b"chat")), "/v1/audio/transcriptions", content_type=FORM.decode())
            assert heard.body == b"the key [key]"

    play(scenario())
