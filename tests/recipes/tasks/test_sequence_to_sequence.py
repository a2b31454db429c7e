"""Texts from texts: learned, written token by token, saved, asked again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `train`")

from tonnage.errors import DataError, InputError
from tonnage.recipes.answering import make_answerer
from tonnage.recipes.starters.models import encoder_decoder
from tonnage.recipes.starters.rows import translations
from tonnage.recipes.tasks.models import load_trained
from tonnage.recipes.tasks.sequence_to_sequence import judge, prepare, read, write
from tonnage.recipes.trained import TrainedModel

ROLES = ("source", "target")


def model_folder(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    for name, content in encoder_decoder([text for row in rows for text in row.values()]).items():
        (folder / name).write_text(content)
    return folder


def test_learned_written_saved_and_asked_again(
    tmp_path: Path, write_rows: Any, run_spec: Any, train_a_little: Any
) -> None:
    """A small dictionary is learned; the saved folder gives the same figures, and writes what it was taught."""
    rows = translations(240, Random(0))
    spec = run_spec("sequence-to-sequence", write_rows("rows.jsonl", rows), config=model_folder(tmp_path, rows),
                    roles=ROLES, data={"validation_fraction": 0.2})  # fmt: skip
    prepared = prepare(spec)
    losses = train_a_little(prepared, steps=60, learning_rate=5e-3)
    assert losses[-1] < 0.5 * losses[0]
    prepared.model.eval()
    found = prepared.evaluate(prepared.model, prepared.validation, 8)
    assert next(iter(found.metrics)) == "rouge_l"
    assert found.metrics["rouge_l"] > prepared.baseline().metrics["copied_source_rouge_l"] + 0.3  # type: ignore[misc]
    (tmp_path / "saved").mkdir()
    prepared.save(prepared.model, tmp_path / "saved")
    model = load_trained(spec, tmp_path / "saved", "AutoModelForSeq2SeqLM", padding=0).eval()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    trained = TrainedModel(spec=spec, model=model, tokenizer=tokenizer, longest=32, device="cpu", precision="fp32")
    assert judge(trained, read(spec).validation, 5).metrics == pytest.approx(dict(found.metrics), abs=1e-4)
    texts = read(spec).validation.column("source", "source")[:3]
    told = make_answerer(trained).answer([("x:1", {"source": text}) for text in texts], 2)
    assert all(one["text"].split()[0] == "le" for one in told)


def test_written_as_transformers_itself_writes(tmp_path: Path, write_rows: Any, run_spec: Any) -> None:
    """Greedy search of the library gives the same tokens, for rows of unlike length side by side."""
    import torch

    rows = [*translations(40, Random(1)), {"source": "the cat", "target": "le chat"}]
    spec = run_spec("sequence-to-sequence", write_rows("rows.jsonl", rows), config=model_folder(tmp_path, rows),
                    roles=ROLES)  # fmt: skip
    prepared = prepare(spec)
    prepared.model.eval()
    batch = prepared.collate([prepared.train[at] for at in range(5)])
    with torch.no_grad():
        ours = write(prepared.model, batch, start=0, end=3, most=12)
        theirs = prepared.model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=12, do_sample=False,
            num_beams=1,
        )  # fmt: skip
    assert ours == [before_end(row.tolist()[1:]) for row in theirs]


def before_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(3)] if 3 in tokens else tokens


def test_what_cannot_be_learned_from(tmp_path: Path, write_rows: Any, run_spec: Any) -> None:
    """An empty text is named by its line; a decoder that nobody starts is told with the key."""
    rows = translations(20, Random(0))
    folder = model_folder(tmp_path, rows)
    empty = run_spec("sequence-to-sequence", write_rows("a.jsonl", [*rows, {"source": "x", "target": " "}]),
                     config=folder, roles=ROLES)  # fmt: skip
    with pytest.raises(DataError, match=r"a.jsonl:21: an empty text"):
        prepare(empty)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"decoder_start_token_id": 0', '"decoder_start_token_id": null'))
    with pytest.raises(InputError, match="begin and end"):
        prepare(run_spec("sequence-to-sequence", write_rows("b.jsonl", rows), config=folder, roles=ROLES))
