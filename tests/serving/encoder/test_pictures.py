"""Models of pictures served: the model's own answers, files and pixels, and every bad picture named."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.features.pixels import SETTINGS, View, fitted, read_view
from tonnage.serving.encoder.faults import BadPicture, Overloaded
from tonnage.serving.encoder.pictures.reading import Picture, PictureReader

pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image", reason="the extra `serve`")

SIDE = 16
INFER = "/v2/models/tiny/infer"


def write_vit(folder: Path, *, classes: bool = True) -> Path:
    """A ViT of one layer, as a run saves it."""
    import torch
    import transformers

    from tonnage.recipes.data.images import Pixels

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=SIDE, patch_size=8,
        id2label={0: "disc", 1: "cross", 2: "frame"}, label2id={"disc": 0, "cross": 1, "frame": 2},
    )  # fmt: skip
    kind = transformers.ViTForImageClassification if classes else transformers.ViTModel
    kind(config).eval().save_pretrained(folder)
    Pixels(side=SIDE, mean=(0.4, 0.5, 0.6), sd=(0.2, 0.3, 0.4)).save(folder)
    return folder


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vit(tmp_path_factory.mktemp("vit"))


def picture(seed: int = 0, size: tuple[int, int] = (40, 24)) -> Any:
    """Squares of colours."""
    small = np.random.default_rng(seed).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size)


def file_of(made: Any, kind: str = "PNG") -> bytes:
    held = io.BytesIO()
    made.save(held, kind)
    return held.getvalue()


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def calls(model: Path, exports: Path, *asked: tuple[str, Any], **service: Any) -> list[httpx.Response]:
    """The answers to (path, body) pairs, all at once; a body of bytes has tensors behind its JSON."""
    from tonnage.serving.encoder.app import App
    from tonnage.serving.encoder.engine import Encoder
    from tonnage.serving.encoder.service import EncoderService
    from tonnage.serving.encoder.versions import Versions

    fields: dict[str, Any] = {"workers": 1, "batch_tokens": 4, "exports": str(exports), **service}
    app = App(Versions(encoder := Encoder(EncoderService(model=str(model), name="tiny", **fields)), Encoder))

    async def all_of() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://served") as client:
            made = []
            for path, body in asked:
                if isinstance(body, tuple):
                    head, tail = json.dumps(body[0]).encode(), body[1]
                    length = {"inference-header-content-length": str(len(head))}
                    made.append(client.post(path, content=head + tail, headers=length))
                else:
                    made.append(client.post(path, json=body))
            return list(await asyncio.gather(*made))

    try:
        return asyncio.run(all_of())
    finally:
        assert encoder.drain(timeout_s=10)


def own(model: Path, *pictures: bytes) -> Any:
    """Probabilities as `tonnage predict` computes them: its own decoding, its own batches."""
    import torch
    import transformers

    from tonnage.recipes.data.images import Images, pixels_of
    from tonnage.recipes.tasks.image_classification import collate

    loaded = transformers.AutoModelForImageClassification.from_pretrained(model).eval()
    pixels = pixels_of(loaded.config, str(model))
    items = Images(pictures, [""] * len(pictures), [0] * len(pictures), pixels)
    with torch.inference_mode():
        batch = collate([items[at] for at in range(len(pictures))], pixels=pixels)
        return loaded(pixel_values=batch["pixel_values"]).logits.softmax(-1).numpy()


def tensor(kind: str, shape: list[int], content: bytes) -> Any:
    document = {"name": "image", "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(content)}}
    return {"inputs": [document]}, content


def test_classes_are_those_of_predict(vit: Path, tmp_path: Path) -> None:
    """Files as base64 and as bytes, in any format; pixels; several requests in one batch: one answer."""
    files = [file_of(picture(0)), file_of(picture(1), "BMP"), file_of(picture(2, (16, 90)), "WEBP")]
    raw = b"".join(struct.pack("<I", len(one)) + one for one in files)
    pixels = np.asarray(picture(0))
    plain, as_url, tensors, as_pixels, fewer = calls(
        vit, tmp_path, ("/predict", {"images": [text_of(one) for one in files]}),
        ("/predict", {"images": [f"data:image/png;base64,{text_of(files[0])}"], "top_k": 1}),
        (INFER, tensor("BYTES", [3], raw)), (INFER, tensor("UINT8", [1, *pixels.shape], pixels.tobytes())),
        (INFER, {"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": [[text_of(files[1])]]}]}),
    )  # fmt: skip
    expected = own(vit, *files)
    names = ("disc", "cross", "frame")
    for row, answer in zip(expected, plain.json(), strict=True):
        assert {one["label"]: one["score"] for one in answer} == pytest.approx(
            dict(zip(names, row, strict=True)), abs=1e-5
        )
        assert answer[0]["label"] == names[row.argmax()]
    assert as_url.json() == [plain.json()[0][:1]]
    scores = np.array(tensors.json()["outputs"][1]["data"]).reshape(3, 3)
    assert scores == pytest.approx(expected, abs=1e-5)
    assert as_pixels.json()["outputs"][1]["data"] == pytest.approx(scores[0].tolist(), abs=1e-6)
    assert fewer.json()["outputs"][0]["data"] == [names[expected[1].argmax()]]


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_vectors_of_pictures(vit: Path, tmp_path: Path, runtime: str) -> None:
    """The token for the whole picture, of length 1 unless asked otherwise; a classifier gives them too."""
    import torch
    import transformers

    file = file_of(picture(3))
    unit, plain, wrong = calls(
        vit, tmp_path, ("/embed", {"images": [text_of(file)]}),
        ("/embed", {"images": [text_of(file)], "normalize": False}), ("/predict", {"images": [text_of(file)]}),
        task="image-embedding", runtime=runtime,
    )  # fmt: skip
    view = read_view(json.loads((vit / SETTINGS).read_text()))
    seen = torch.from_numpy(view.values(fitted(picture(3), view)[None]))
    with torch.inference_mode():
        hidden = transformers.AutoModel.from_pretrained(vit).eval()(pixel_values=seen).last_hidden_state[0, 0].numpy()
    assert plain.json()[0] == pytest.approx(hidden.tolist(), abs=1e-5)
    assert unit.json()[0] == pytest.approx((hidden / np.linalg.norm(hidden)).tolist(), abs=1e-5)
    assert (wrong.status_code, wrong.json()["error_type"]) == (424, "model_type")


def png_that_claims(width: int, height: int) -> bytes:
    """A file of a few bytes whose head says it is so large, with nothing in it."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(b"\0" * 99)) + part(b"IEND", b"")


def one(content: bytes | str) -> dict[str, Any]:
    return {"images": [content if isinstance(content, str) else text_of(content)]}


BAD: list[tuple[str, Any, int, str, str]] = [
    ("/predict", {"images": []}, 400, "invalid_request", "batch is empty"),
    ("/predict", {"images": [3]}, 400, "invalid_request", "images[0]"),
    ("/predict", {"inputs": "text"}, 400, "invalid_request", "`images` is a list"),
    ("/predict", {**one(b""), "top_k": 0}, 400, "invalid_request", "`top_k`"),
    ("/predict", one("no base64!"), 400, "invalid_image", "no base64"),
    ("/predict", one(b"text, no picture"), 400, "image_format", "PNG, JPEG"),
    ("/predict", one(file_of(picture(), "TIFF")), 400, "image_format", "images[0] is not a picture"),
    ("/predict", one(file_of(picture())[:200]), 400, "invalid_image", "cannot be decoded"),
    ("/predict", one(file_of(picture(), "JPEG")[:300]), 400, "invalid_image", "cannot be decoded"),
    ("/predict", one(png_that_claims(8000, 8000)), 413, "too_large", "8,000 x 8,000 pixels"),
    ("/predict", one(png_that_claims(60_000, 60_000)), 413, "too_large", "images[0]"),
    ("/predict", one(png_that_claims(1, 9_000_000)), 413, "too_large", "once scaled"),
    ("/predict", {"images": [text_of(b"x")] * 300}, 413, "too_large", "300 pictures in one request, at most 256"),
    ("/embed", one(b""), 424, "model_type", "needs image-embedding"),
    ("/rerank", {"query": "it", "texts": ["was"]}, 424, "model_type", "task is image-classification"),
    (INFER, tensor("UINT8", [1, 2, 2], b"\0" * 4), 400, "wrong_shape", "[n, rows, columns, 3]"),
    (INFER, tensor("FP32", [1], b"\0" * 4), 400, "wrong_type", "BYTES or UINT8"),
    (INFER, tensor("BYTES", [1], b"\xff\0\0\0ab"), 400, "wrong_shape", "ends within an element"),
]  # fmt: skip


def test_bad_pictures_are_named(vit: Path, tmp_path: Path) -> None:
    """Each with its status and words; those in the same batch are answered."""
    good = ("/predict", one(file_of(picture())))
    found = calls(vit, tmp_path, *((path, body) for path, body, *_ in BAD), good)
    for (path, _, status, kind, words), answer in zip(BAD, found, strict=False):
        assert (answer.status_code, answer.json().get("error_type")) == (status, kind), (path, words, answer.text)
        assert words in answer.json()["error"]
    assert found[-1].status_code == 200


def test_more_pictures_than_may_wait_are_turned_away(vit: Path, tmp_path: Path) -> None:
    """While others are decoded: 429 with the time to wait."""
    body = {"images": [text_of(file_of(picture(0, (900, 900))))] * 3}
    found = calls(vit, tmp_path, *[("/predict", body)] * 8, queue_items=4)
    assert {one.status_code for one in found} == {200, 429}
    assert all("retry-after" in one.headers for one in found if one.status_code == 429)


def test_a_bad_picture_does_not_free_the_places_of_those_still_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a bad picture is answered at once: those of it not begun are not decoded, those that are under way
    count until they end, and then the bound is as before."""
    view = read_view(
        {"image_processor_type": "ViTImageProcessor", "size": {"height": SIDE, "width": SIDE}, "do_normalize": False}
    )
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    reader = PictureReader(view, most_pixels=10**6, most_waiting=4)
    begun, go_on, decoded = threading.Event(), threading.Event(), list[bytes]()

    def read(given: bytes, at: int) -> Picture:
        if given == b"bad":
            assert begun.wait(10)
            raise BadPicture(f"images[{at}]")
        begun.set()
        assert go_on.wait(10)
        decoded.append(given)
        return Picture(np.zeros((3, SIDE, SIDE), dtype=np.uint8))

    monkeypatch.setattr(reader, "read", read)

    async def asked() -> None:
        with pytest.raises(BadPicture):
            await reader.read_all([b"slow", b"bad", b"slow as well", b"not begun"], truncate=True)
        with pytest.raises(Overloaded):
            await reader.read_all([b"more"] * 4, truncate=True)
        go_on.set()
        while reader.waiting:
            await asyncio.sleep(0.001)
        assert len(await reader.read_all([b"more"] * 4, truncate=True)) == 4

    asyncio.run(asyncio.wait_for(asked(), 20))
    assert b"not begun" not in decoded


PROCESSORS = ["ViT", "CLIP", "DeiT", "ConvNext", "Bit"]


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_picture_is_seen_as_its_processor_does(name: str) -> None:
    """By the settings that transformers saves: the same pixels, but for the last bit of a byte."""
    import transformers

    kind = getattr(transformers, f"{name}ImageProcessorPil", None)
    if kind is None:
        pytest.skip("this release has another name for it")
    processor = kind()
    made = picture(5, (640, 480))
    view = read_view(json.loads(processor.to_json_string()))
    seen = view.values(fitted(made, view)[None])
    expected = processor(made, return_tensors="np")["pixel_values"]
    assert seen.shape == expected.shape
    assert np.abs(seen - expected).max() < 0.02


def test_what_is_not_known_is_refused(vit: Path, tmp_path: Path) -> None:
    """A processor of another kind, settings that are missing, pickled weights, a number format."""
    for said, words in (
        ({"image_processor_type": "OtherImageProcessor"}, "are not served"),
        ({"image_processor_type": "ViTImageProcessor", "image_mean": [0] * 3, "image_std": [1] * 3}, "how large"),
        ({"image_processor_type": "ViTImageProcessor", "size": 8}, "`image_mean`"),
    ):
        with pytest.raises(InputError, match=words):
            read_view(said)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((vit / name).read_bytes())
    with pytest.raises(InputError, match=f"no {SETTINGS}"):
        calls(tmp_path, tmp_path)
    (tmp_path / SETTINGS).write_bytes((vit / SETTINGS).read_bytes())
    with pytest.raises(InputError, match="not computed in int8"):
        calls(tmp_path, tmp_path, weights="int8")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="is a pickle"):
        calls(tmp_path, tmp_path)


def test_a_small_picture_is_put_on_black() -> None:
    """What is cut beyond an edge is 0, as transformers pads."""
    seen = fitted(Image.new("RGB", (2, 2), (9, 9, 9)), View(cut=(4, 4)))
    assert seen.sum() == 9 * 3 * 4
    assert seen[:, 1:3, 1:3].min() == 9
