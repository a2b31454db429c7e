"""int8 with fixed scales: batches allowed, the change of the answers measured and said."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.serving.encoder.calibration import read_texts
from tonnage.serving.encoder.export import quantise, quantise_static

Served = Callable[..., Any]
WORDS = ("good", "bad", "the", "film", "was", "who", "wrote", "it", "anna")
TEXTS = [" ".join(WORDS[(at * step) % 9] for at in range(3 + step % 11)) for step in range(1, 25)]


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(TEXTS))
    return file


@pytest.mark.parametrize("task", ["embedding", "classification"])
def test_int8_in_batches_gives_the_answers_of_texts_alone(served: Served, texts: Path, task: str) -> None:
    """Among others of all lengths and alone, to 1e-6; near those of fp32, by as much as is said."""
    path = "/embed" if task == "embedding" else "/predict"

    async def all_of(**service: Any) -> tuple[list[Any], list[Any], Any]:
        async with served(task, batch_tokens=512, workers=1, **service) as client:
            alone = [(await client.post(path, json={"inputs": [text]})).json()[0] for text in TEXTS]
            together = (await client.post(path, json={"inputs": TEXTS})).json()
            return alone, together, (await client.get("/info")).json()

    alone, together, told = asyncio.run(all_of(weights="int8", calibration=str(texts)))
    _, whole, plain = asyncio.run(all_of())
    numbers = [[flat(one) for one in some] for some in (alone, together, whole)]
    assert numbers[0] == [pytest.approx(one, abs=1e-6) for one in numbers[1]]
    assert numbers[1] != numbers[2]
    assert "change" not in plain
    assert told["change"]["texts"] == 6
    if task == "embedding":
        cosines = [sum(a * b for a, b in zip(one, other, strict=True)) for one, other in zip(*numbers[1:], strict=True)]
        assert min(cosines[::4]) == pytest.approx(told["change"]["least_cosine"], abs=1e-4)
        assert min(cosines) > 0.9
    else:
        changed = [max(abs(a - b) for a, b in zip(one, other, strict=True))
                   for one, other in zip(numbers[1][::4], numbers[2][::4], strict=True)]  # fmt: skip
        assert max(changed) == pytest.approx(told["change"]["largest_probability_change"], abs=1e-4)


def flat(answer: Any) -> list[float]:
    """A vector, or the probabilities of the classes in the order of their names."""
    if isinstance(answer[0], float):
        return list(answer)
    return [one["score"] for one in sorted(answer, key=lambda one: one["label"])]


def test_texts_are_read_from_lines_or_json(tmp_path: Path) -> None:
    """Pairs too; too few, and what is no text, are named with their line."""
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in ["a", ["b", "c"]] * 8))
    assert read_texts(file)[:2] == ["a", ("b", "c")]
    file.write_text('"a"\n{"text": 3}\n')
    with pytest.raises(InputError, match=r"texts.jsonl:2 is no text"):
        read_texts(file)
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="has 2 texts"):
        read_texts(tmp_path / "few.txt")


def test_texts_to_calibrate_with_belong_to_int8(served: Served, texts: Path) -> None:
    """Nothing is ignored silently."""

    async def opened() -> None:
        async with served("embedding", calibration=str(texts)):
            pass

    with pytest.raises(InputError, match="belong to int8"):
        asyncio.run(opened())


def test_only_line_feeds_end_a_text(tmp_path: Path) -> None:
    """A text keeps the other separators that Unicode knows; a line that is wrong is named as editors count it."""
    file = tmp_path / "texts.txt"
    texts = [f"one\u2028two\x0bthree\x85 {number}" for number in range(20)]
    file.write_bytes("\r\n".join(texts).encode())
    assert read_texts(file) == texts
    lines = tmp_path / "texts.jsonl"
    lines.write_text("\n\n" + "\n".join(json.dumps(text) for text in texts) + "\n{\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"texts\.jsonl:23"):
        read_texts(lines)


def test_quantising_silences_one_advice_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Warnings of another thread pass meanwhile; the root logger is afterwards as it was."""
    onnx, numpy = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(numpy.eye(4, dtype="float32"), "weights")
    given, answer = (helper.make_tensor_value_info(name, number, [1, 4]) for name in ("given", "answer"))
    node = helper.make_node("MatMul", ["given", "weights"], ["answer"], name="product")
    graph = helper.make_graph([node], "graph", [given], [answer], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    before = logging.root.level, list(logging.root.filters)

    def fed() -> Any:
        yield {"given": numpy.ones((1, 4), "float32")}
        for logger in (logging.getLogger("other"), logging.root):
            thread = threading.Thread(target=logger.warning, args=("meanwhile in %s", logger.name))
            thread.start()
            thread.join()

    quantise_static(tmp_path / "a.onnx", tmp_path / "b.onnx", fed())
    quantise(tmp_path / "a.onnx", tmp_path / "c.onnx")
    assert [one for one in caplog.messages if "meanwhile" in one or "pre-processing" in one] == [
        "meanwhile in other", "meanwhile in root",
    ]  # fmt: skip
    assert (logging.root.level, list(logging.root.filters)) == before
