"""Model folders: what is read of them, and which are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.serving.encoder.export import digest_of, exported
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.runtimes import OnnxModel
from tonnage.serving.encoder.service import EncoderService, dump_service, load_service


@pytest.fixture
def copied(encoders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoders["classification"], tmp_path / "model"))


def test_the_task_is_the_heads(encoders: dict[str, Path]) -> None:
    """What the weights were saved for, unless embeddings are asked of them; positions bound the length."""
    for task, folder in encoders.items():
        found = read_folder(folder)
        assert (found.task, found.most_tokens) == (task, 64)
    assert read_folder(encoders["classification"], task="embedding").task == "embedding"
    assert read_folder(encoders["classification"]).labels == ("neg", "pos", "none")


def test_pooling_is_as_saved(encoders: dict[str, Path], tmp_path: Path) -> None:
    """sentence-transformers' own files say which; without them the mean."""
    folder = Path(shutil.copytree(encoders["embedding"], tmp_path / "model"))
    assert read_folder(folder).pooling == "mean"
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert read_folder(folder).pooling == "cls"


def test_what_is_no_model_is_refused(copied: Path) -> None:
    """Each refusal names the file that is missing, or why it is not read."""
    with pytest.raises(InputError, match="no such head"):
        read_folder(copied, task="question-answering")
    weights = copied / "model.safetensors"
    weights.rename(copied / "pytorch_model.bin")
    with pytest.raises(InputError, match="is a pickle"):
        read_folder(copied)
    (copied / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="has no weights"):
        read_folder(copied)
    (copied / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json cannot be read"):
        read_folder(copied)
    with pytest.raises(InputError, match="not a folder of a model"):
        read_folder(copied / "config.json")


def test_corrupt_weights_are_refused(copied: Path, tmp_path: Path) -> None:
    """A file that was cut short is bad input, and leaves nothing behind in the cache."""
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"weights of .* cannot be read"):
        exported(read_folder(copied), tmp_path / "cache", weights="fp32")
    assert not list((tmp_path / "cache").rglob("*.onnx"))


def test_an_export_is_made_once_for_the_same_bytes(copied: Path, cache: Path) -> None:
    """The second time the file is taken as it is; other weights are another file."""
    folder = read_folder(copied)
    first = exported(folder, cache, weights="fp32")
    changed = first.stat().st_mtime_ns
    assert exported(folder, cache, weights="fp32") == first
    assert first.stat().st_mtime_ns == changed
    before = digest_of(folder)
    (copied / "tokenizer_config.json").write_text("{}")
    assert digest_of(folder) != before


def test_a_service_is_read_back(tmp_path: Path) -> None:
    """What is written is read; a key that cannot be used is named."""
    service = EncoderService(model="m", name="n", p95_s=0.5)
    file = tmp_path / "service.json"
    file.write_text(dump_service(service))
    assert load_service(file) == service
    file.write_text(dump_service(service).replace('"fp32"', '"fp8"'))
    with pytest.raises(InputError, match="weights"):
        load_service(file)


def test_adapters_answer_as_with_their_base(encoders: dict[str, Path], tmp_path: Path, cache: Path) -> None:
    """LoRA beside nothing but the name of its base: served merged, the same as peft computes it."""
    import numpy as np

    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    base = transformers.AutoModelForSequenceClassification.from_pretrained(encoders["classification"])
    made = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=2, init_lora_weights=False)).eval()
    made.save_pretrained(tmp_path / "adapters")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(encoders["classification"] / name, tmp_path / "adapters" / name)
    folder = read_folder(tmp_path / "adapters")
    assert (folder.task, folder.base) == ("classification", str(encoders["classification"]))
    ids = np.array([[2, 4, 7, 3]])
    model = OnnxModel(exported(folder, cache, weights="fp32"), threads=1)
    with torch.inference_mode():
        expected = made(torch.from_numpy(ids)).logits.numpy()
    assert model.outputs(ids, np.ones_like(ids), np.zeros_like(ids)) == pytest.approx(expected, abs=1e-5)


def test_a_kept_embedding_holds_nothing_else(encoders: dict[str, Path]) -> None:
    """An answer is a copy: what is kept of a batch of 32 is one row, not the batch."""
    import numpy as np

    from tonnage.serving.encoder.batching import EncodedText
    from tonnage.serving.encoder.tasks import computing

    class Fixed:
        device = "cpu"

        def outputs(self, ids: Any, mask: Any, segments: Any) -> Any:  # noqa: ARG002
            return np.ones((*ids.shape, 8), np.float32)

    answers = computing(read_folder(encoders["embedding"]), Fixed(), padding=0)([EncodedText(ids=[1, 2])] * 32)
    assert answers[0].base is None
    assert len(answers) == 32
