"""The table of known models is sound, and names lead where their users expect."""

from __future__ import annotations

import pytest

from tonnage.errors import UnknownModel
from tonnage.workload.known import find_model, known_models, known_records, model_record, published_parameters


def test_there_are_models_enough_and_each_has_its_sources() -> None:
    """At least 75 models, each with where its shape and where its published count come from."""
    records = known_records()
    assert len(records) >= 75
    for name, record in records.items():
        assert record.shape.name == name
        assert record.shape.source, name
        assert record.published_in, name
        assert record.published_parameters > 1_000_000, name
    assert dict(known_models()) == {name: record.shape for name, record in records.items()}


@pytest.mark.parametrize("name", list(known_models()))
def test_sizes_of_a_shape_agree(name: str) -> None:
    """Heads share the key/value heads evenly, tables have rows, experts chosen exist."""
    shape = known_models()[name]
    assert shape.layers > 0
    assert shape.hidden > 0
    if shape.not_modelled and shape.architecture == "diffusion":
        assert shape.extra_parameters, "a model that is only counted has its count"
        return
    if shape.architecture == "convolution":
        assert shape.convolutions
        assert shape.convolutions[-1].out_channels == shape.hidden
        return
    assert shape.heads % shape.kv_heads == 0
    assert shape.head_dim > 0
    assert shape.ffn > 0
    assert shape.experts_per_token <= shape.experts
    assert shape.reserved_positions <= shape.max_positions
    assert bool(shape.vocab) != bool(shape.image_side)
    assert shape.encoder_layers > 0 or shape.architecture != "encoder-decoder"
    assert shape.full_layers < shape.layers or not shape.sliding_window
    assert shape.sliding_window or not shape.full_layers
    assert shape.dense_layers < shape.layers
    if shape.extra_parameters:
        assert shape.notes, "what the shape cannot express is explained"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("bert-base", "bert-base-uncased"),
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("BERT-large", "bert-large-uncased"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("llama2-70b", "llama-2-70b"),
        ("Llama-2-7B", "llama-2-7b"),
        ("llama3.1-8b", "llama-3.1-8b"),
        ("Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b"),
        ("llama3.3-70b", "llama-3.3-70b"),
        ("LLaMA-33B", "llama-30b"),
        ("llama-7b", "llama-7b"),
        ("gpt2-124m", "gpt2"),
        ("GPT-2", "gpt2"),
        ("gpt-j-6b", "gpt-j-6b"),
        ("EleutherAI/gpt-j-6B", "gpt-j-6b"),
        ("codellama-13b", "codellama-13b"),
        ("vit-b16-224", "vit-base-patch16-224"),
        ("vit-b16-384", "vit-base-patch16-384"),
        ("ViT-B/16", "vit-base-patch16-224"),
        ("resnet50", "resnet-50"),
        ("MPT-7b", "mpt-7b"),
        ("mosaicml/mpt-7b", "mpt-7b"),
        ("distilbert-base", "distilbert-base-uncased"),
        ("xlnet-base", "xlnet-base-cased"),
        ("albert-base-v2", "albert-base-v2"),
        ("TinyLlama-1.1B", "tinyllama-1.1b"),
        ("qwen3-14b", "qwen3-14b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("microsoft/phi-1_5", "phi-1.5"),
        ("bloomz-7b1", "bloom-7b1"),
        ("tiiuae/falcon-40b-instruct", "falcon-40b"),
        ("internlm-20b", "internlm-20b"),
        ("sentence-transformers/all-MiniLM-L6-v2", "all-minilm-l6-v2"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("opt-13b", "opt-13b"),
        ("google/gemma-2b", "gemma-2b"),
        ("google/gemma-2-2b", "gemma-2-2b"),
        (" t5-small ", "t5-small"),
    ],
)
def test_a_spelling_finds_its_model(spelling: str, name: str) -> None:
    """Page names, short names and the spellings of published benchmarks lead to one model."""
    assert find_model(spelling).name == name


@pytest.mark.parametrize("name", ["bert-bas-uncased", "lama-2-7b", "gpt5-huge", "", "/", "resnet-51", "gemma-22b"])
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
    """No name is silently taken for another; the hint says what to do."""
    with pytest.raises(UnknownModel) as caught:
        find_model(name)
    assert caught.value.hint
    assert all(suggestion in known_models() for suggestion in caught.value.suggestions)


def test_the_nearest_names_are_near() -> None:
    """A typing error leads to the model that was meant."""
    with pytest.raises(UnknownModel) as caught:
        find_model("meta-llama/Lama-2-7b")
    assert "llama-2-7b" in str(caught.value.hint)


def test_published_counts_and_dates_come_with_the_row() -> None:
    """`published_parameters` and `model_record` follow aliases like `find_model`."""
    assert published_parameters("meta-llama/Llama-2-7b-hf") == 6_738_415_616
    assert "torchvision" in model_record("resnet50").published_in
