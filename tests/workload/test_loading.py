"""Workload files on disk: what cannot be read, and where a model's shape may come from."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tonnage.catalog import load_catalog
from tonnage.errors import WorkloadError
from tonnage.units import MIB
from tonnage.workload.file.text import load_text
from tonnage.workload.jobs import TrainJob
from tonnage.workload.loading import load_workload, parse_workload
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape
from tonnage.workload.tables.reading import InputColumn, load_table

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
OWN = Path(__file__).parents[1] / "data" / "workloads" / "own_config"
DATA = "data: {samples: 10, seq_len: 128}\n"


def shape_of(model: str, **options: Any) -> ModelShape:
    text = f"kind: train\nmodel: {model}\n" + DATA
    workload = parse_workload(text, file="f.yaml", folder=options.pop("folder", None), as_of=AS_OF, **options)
    assert isinstance(workload.job, TrainJob)
    return workload.job.model


def refusal_of(path: Path | str) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        load_workload(path, as_of=AS_OF)
    assert caught.value.file == str(path)
    assert caught.value.hint
    return caught.value


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    """A misspelt name brings up the file that was meant."""
    (tmp_path / "bert.tonnage.yaml").touch()
    error = refusal_of(tmp_path / "brt.tonnage.yaml")
    assert "no such file" in str(error)
    assert "'bert.tonnage.yaml'" in (error.hint or "")


def test_a_folder_names_the_files_inside(tmp_path: Path) -> None:
    """A folder is not a workload; the hint says what lies in it."""
    (tmp_path / "a.tonnage.yaml").touch()
    error = refusal_of(tmp_path)
    assert "is a folder" in str(error)
    assert "a.tonnage.yaml" in (error.hint or "")


def test_a_folder_that_may_not_be_listed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be entered, so that the file is not found; there are no names to compare with."""

    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(WorkloadError, match="no such file") as caught:
        load_text(tmp_path / "prices.csv")
    assert caught.value.hint == f"looked for in {tmp_path}, whose files cannot be listed: Permission denied"


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """10 MB is refused, also where it would be a good workload but for its length; 1 MB of comment is not."""
    path = tmp_path / "large.yaml"
    good = f"kind: train\nmodel: gpt2\n{DATA}#"
    path.write_text(good + "x" * 10 * MIB)
    assert "over 1 MB" in str(refusal_of(path))
    path.write_text(good + "x" * (MIB - len(good)))
    assert load_workload(path, as_of=AS_OF).name == "large"


def test_a_binary_file_is_refused_with_its_line(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are told with line and offset; a byte-order mark is harmless."""
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"kind: train\nname: \xff\xfe\n")
    error = refusal_of(path)
    assert error.line == 2
    assert "not UTF-8 text (byte 18)" in str(error)
    path.write_bytes(b"\xef\xbb\xbf" + f"kind: train\nmodel: gpt2\n{DATA}".encode())
    assert load_workload(path, as_of=AS_OF).kind == "train"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    """The system's reason is passed on."""
    path = tmp_path / "secret.yaml"
    path.touch(mode=0)
    assert "cannot be read: Permission denied" in str(refusal_of(path))


def test_odd_names_are_refused_like_any_other() -> None:
    """A zero byte or a name beyond the system's limit is an error about that file."""
    assert "cannot be read" in str(refusal_of("a\0b.yaml"))
    assert "cannot be read" in str(refusal_of("a" * 5000 + ".yaml"))


def test_a_config_is_found_from_the_workload_file_not_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`model: .` is the folder of the workload file, whatever the working directory."""
    monkeypatch.chdir(tmp_path)
    workload = load_workload(OWN / "own.tonnage.yaml", as_of=AS_OF)
    assert isinstance(workload.job, TrainJob)
    assert (workload.job.model.layers, workload.job.model.hidden) == (4, 256)
    assert (workload.name, workload.file) == ("own", str(OWN / "own.tonnage.yaml"))


@pytest.mark.parametrize("model", ["./config.json", "config.json", "../own_config", "own_config"])
def test_a_path_may_be_the_file_or_its_folder(model: str) -> None:
    """With or without a leading dot, also a folder whose name is no known model."""
    folder = OWN.parent if model == "own_config" else OWN
    assert shape_of(model, folder=folder).hidden == 256


def test_the_limit_of_a_config_holds() -> None:
    """The learned positions of a config.json bound the lengths as those of a known model do."""
    with pytest.raises(WorkloadError, match="learned positions for 512"):
        parse_workload(
            "kind: train\nmodel: .\ndata: {samples: 1, seq_len: 513}", file="f.yaml", folder=OWN, as_of=AS_OF
        )


def test_a_broken_config_is_told_with_both_places(tmp_path: Path) -> None:
    """The error stands on the workload's `model:` line and names the config.json and the field it lacks."""
    config = json.loads((OWN / "config.json").read_text())
    del config["n_layer"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WorkloadError) as caught:
        shape_of(".", folder=tmp_path)
    assert (caught.value.file, caught.value.line, caught.value.key) == ("f.yaml", 2, "model")
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "n_layer" in str(caught.value)


def test_a_hub_model_goes_through_the_function_given() -> None:
    """`hf://` asks `fetch_config` for that repository and reads what it returns."""
    asked: list[str] = []

    def fetch(repository: str) -> Mapping[str, Any]:
        asked.append(repository)
        config: Mapping[str, Any] = json.loads((OWN / "config.json").read_text())
        return config

    shape = shape_of("hf://acme/tiny", fetch_config=fetch)
    assert asked == ["acme/tiny"]
    assert (shape.name, shape.layers) == ("acme/tiny", 4)


def test_a_config_from_the_hub_that_lacks_a_field_is_a_workload_error() -> None:
    """What was fetched is held to the same rules as what lies on disk."""
    with pytest.raises(WorkloadError, match=r"hf://acme/tiny/config\.json") as caught:
        shape_of("hf://acme/tiny", fetch_config=lambda _: {"model_type": "gpt2"})
    assert caught.value.line == 2


INLINE = [  # shape, published or hand-counted parameters
    (
        "{architecture: decoder, layers: 12, hidden: 768, heads: 12, vocab: 50257, max_positions: 1024}",
        124_439_808,  # GPT-2, 124M: huggingface.co/openai-community/gpt2
    ),
    (
        "{architecture: decoder, layers: 32, hidden: 4096, heads: 32, vocab: 32000, ffn: 11008,"
        " gated_mlp: true, tied_embeddings: false, positions: rotary, max_positions: 4096, norm: rms,"
        " bias: false}",
        6_738_415_616,  # Llama 2 7B
    ),
    (
        "{architecture: encoder, layers: 1, hidden: 4, heads: 2, vocab: 10, max_positions: 128, token_types: 2}",
        (10 + 128 + 2) * 4 + 8 + 4 * (4 * 4 + 4) + (4 * 16 + 16) + (16 * 4 + 4) + 2 * 8,
    ),
]


@pytest.mark.parametrize(("written", "parameters"), INLINE)
def test_an_inline_shape_has_the_parameters_of_the_model_it_describes(written: str, parameters: int) -> None:
    """Defaults fill in what a plain transformer leaves unsaid, so that the count is exact."""
    assert count_parameters(shape_of(written)).total == parameters


def test_an_inline_convolution_carries_its_layers() -> None:
    """Channels, kernels and strides arrive; the classifier reads the last width."""
    layers = "[{in_channels: 3, out_channels: 8, kernel: 3, output_side: 16}]"
    model = f"{{architecture: convolution, image_side: 32, classes: 10, convolutions: {layers}}}"
    text = f"kind: train\nmodel: {model}\ndata: {{samples: 10}}\n"
    job = parse_workload(text, file=None, folder=None, as_of=AS_OF).job
    assert isinstance(job, TrainJob)
    assert count_parameters(job.model).total == 3 * 8 * 9 + 2 * 8 + 8 * 10 + 10


def test_gpu_names_are_those_of_the_catalog_given() -> None:
    """A filter that matches no device is an error with the nearest name; another catalog may be given."""
    text = f"kind: train\nmodel: gpt2\n{DATA}constraints:\n  gpus: [T4, H10O]\n"
    with pytest.raises(WorkloadError) as caught:
        parse_workload(text, file="f.yaml", folder=None, as_of=AS_OF)
    assert (caught.value.line, caught.value.key) == (5, "constraints.gpus[1]")
    assert "'H10O'" in str(caught.value)
    assert "'H100-" in (caught.value.hint or "")
    catalog = load_catalog()
    renamed = tuple(
        dataclasses.replace(device, name="H10O") if device.name == "H100-SXM" else device
        for device in catalog.accelerators
    )
    own = dataclasses.replace(catalog, accelerators=renamed)
    constraints = parse_workload(text, file=None, folder=None, as_of=AS_OF, catalog=own).constraints
    assert constraints.gpus[1].name == "H10O"


def test_a_table_is_refused_as_a_workload_is(tmp_path: Path) -> None:
    """No UTF-8: line and byte. No file: names beside it that are like its own."""
    columns = (InputColumn(name="name", required=True),)
    path = tmp_path / "mine.csv"
    path.write_bytes(b"name\n\xff\n")
    with pytest.raises(WorkloadError, match=r"not UTF-8 text \(byte 5\)") as caught:
        load_table(path, columns)
    assert caught.value.line == 2
    with pytest.raises(WorkloadError, match="no such file") as caught:
        load_table(tmp_path / "min.csv", columns)
    assert "mine.csv" in (caught.value.hint or "")
