"""Tokenizers and models of a run: trained weights, new ones, adapters, a 4-bit base."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.recipes.dealing import is_dealt, reads_weights, where_built
from tonnage.recipes.network import with_network_retries
from tonnage.recipes.precision import choose_device, choose_precision
from tonnage.runs.locations import is_remote
from tonnage.runs.spec import RunSpec

PEFT_TASKS: Final[Mapping[str, str]] = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "causal-lm": "CAUSAL_LM",
    "sequence-to-sequence": "SEQ_2_SEQ_LM",
}  # peft knows no task of images: there the head is named
IMAGES: Final = "AutoModelForImageClassification"
ADAPTERS: Final = "adapter_config.json"  # there, a folder holds adapters and no whole model
_HEADS: Final = ("classifier", "pooler.dense", "score", "qa_outputs", "lm_head", "cls")  # trained, or read in full
_ADAPTER: Final = re.compile(r"lora_|modules_to_save")  # peft's own; the original of a trained head stays beside it


def load_tokenizer(spec: RunSpec, *, words: bool = False) -> Any:
    """The tokenizer beside the weights or the config, or the one named. It must know where its tokens are.

    `words`: it will be given single words, which byte-level tokenizers must be configured for.
    """
    transformers = _transformers()
    place = spec.tokenizer or spec.weights or spec.config
    if place is None:
        raise InputError("the run names no tokenizer", hint="add `run.tokenizer`")
    try:
        tokenizer = _reach(place, lambda: transformers.AutoTokenizer.from_pretrained(_local(place, folder=True)))
        if words and getattr(tokenizer, "add_prefix_space", None) is False:
            tokenizer = transformers.AutoTokenizer.from_pretrained(_local(place, folder=True), add_prefix_space=True)
    except (OSError, ValueError) as error:
        raise InputError(f"no tokenizer at {place}: {_first_line(error)}", hint=_where_from(place)) from error
    if not tokenizer.is_fast:
        raise InputError(f"the tokenizer at {place} has no tokenizer.json", hint="save it as a fast tokenizer first")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer


def longest_input(spec: RunSpec, tokenizer: Any, model: Any = None) -> int:
    """Tokens a text is cut to: as asked, at most what tokenizer and model take."""
    limits = [tokenizer.model_max_length, getattr(getattr(model, "config", None), "max_position_embeddings", None)]
    limit = min((int(one) for one in limits if one and one < 10**9), default=512)
    return limit if spec.training.max_tokens is None else min(limit, spec.training.max_tokens)


def load_model(spec: RunSpec, auto: str, *, padding: int | None, **config: Any) -> Any:
    """The model of a task on the host, with adapters where asked; `auto` is transformers' class, `config` its labels.

    `padding` is the tokenizer's padding token, for models whose config names none. New layers and new weights follow
    from `training.seed`.
    """
    with where_built(spec):
        model = _load_base(spec, auto, padding=padding, **config)
        return with_adapters(model, spec) if spec.training.method != "full" else model


def load_trained(spec: RunSpec, folder: Path, auto: str, *, padding: int | None) -> Any:
    """The finished model of a run, from the folder it was saved in; adapters are put back on their base.

    Adapters on a whole base are added into its weights, which is faster; on a 4-bit base they stay beside it.
    """
    if not (folder / ADAPTERS).exists():
        return _load_base(_whole(spec, weights=str(folder)), auto, padding=padding)
    peft = _peft(spec)
    merged = spec.training.method != "qlora"  # sums of adapter and base are kept in 32 bits
    model = _load_base(_whole(spec) if merged else spec, auto, padding=padding, **_saved_labels(folder))
    try:
        adapted = peft.PeftModel.from_pretrained(model, str(folder))
    except (OSError, ValueError, RuntimeError) as error:
        hint = "the base may have changed since; train it again"
        raise InputError(f"the adapters at {folder} do not fit their base: {_first_line(error)}", hint=hint) from error
    return adapted.merge_and_unload() if merged else adapted


def _whole(spec: RunSpec, **changes: Any) -> RunSpec:
    return replace(spec, training=replace(spec.training, method="full"), **changes)


def _saved_labels(folder: Path) -> dict[str, Any]:
    """The labels beside adapters, as keywords of a config: their base knows nothing of them."""
    config = _transformers().AutoConfig.from_pretrained(str(folder))
    return {"num_labels": config.num_labels, "id2label": config.id2label, "label2id": config.label2id}


def _load_base(spec: RunSpec, auto: str, *, padding: int | None, **config: Any) -> Any:
    import torch

    transformers = _transformers()
    torch.manual_seed(spec.training.seed)
    kind: Any = getattr(torch, base_type(spec))
    options: dict[str, Any] = _attention(spec) if auto != IMAGES or _attends(spec) else {}
    if auto == IMAGES and spec.weights is not None:  # a head of other classes than ours is a new head
        options["ignore_mismatched_sizes"] = True
    loader = getattr(transformers, auto)
    try:
        if spec.weights is None:
            model = loader.from_config(_new_config(spec, **config), **options)
        elif not reads_weights(spec):
            shape = transformers.AutoConfig.from_pretrained(_local(spec.weights), **config)
            options.pop("ignore_mismatched_sizes", None)
            model = loader.from_config(shape, dtype=kind, **options)
        else:
            if is_dealt(spec) and spec.training.method == "full":
                kind = "auto"  # as they are stored: each device widens its own part
            if spec.training.method == "qlora":
                options |= _four_bit(spec)
            if spec.launch.device_map is not None:
                options["device_map"] = spec.launch.device_map
            weights = _local(spec.weights)
            model = _reach(spec.weights, lambda: loader.from_pretrained(weights, dtype=kind, **options, **config))
    except (OSError, ValueError, ImportError) as error:
        place = spec.weights or spec.config
        raise InputError(f"no model at {place}: {_first_line(error)}", hint=_where_from(str(place))) from error
    if getattr(model.config, "pad_token_id", None) is None:  # a decoder judges at the last token that is no padding
        model.config.pad_token_id = padding
    return model


def base_type(spec: RunSpec) -> str:
    """What weights are loaded in, as torch names it. A frozen base under adapters is kept in the 16 bits it is
    multiplied in, as it is planned (`sizing.training_memory`); what is trained is kept in 32."""
    if spec.training.method != "lora":
        return "float32"
    precision = choose_precision(spec.training.precision, choose_device(spec.launch.device))
    return {"fp16": "float16", "bf16": "bfloat16", "bf16-true": "bfloat16"}.get(precision, "float32")


def with_adapters(model: Any, spec: RunSpec) -> Any:
    """The model with LoRA adapters on it; all else frozen but the task's own head."""
    peft = _peft(spec)
    lora = spec.training.lora
    if spec.training.method == "qlora":
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    settings = peft.LoraConfig(
        task_type=PEFT_TASKS.get(spec.task),
        modules_to_save=["classifier"] if spec.task == "image-classification" else None,
        r=lora.rank,
        lora_alpha=2 * lora.rank,
        lora_dropout=0.05,
        target_modules="all-linear" if lora.targets == "all-linear" else None,
    )
    try:
        adapted = peft.get_peft_model(model, settings)
    except ValueError as error:
        hint = "write `train: {lora: {targets: all-linear}}`"
        raise InputError(f"no adapters for {type(model).__name__}: {_first_line(error)}", hint=hint) from error
    for module in adapted.modules():  # autocast narrows what peft would widen: a copy in 32 bits for nothing
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = False
    for parameter in adapted.parameters():  # peft widens the adapters; a head that is trained beside them stays 16-bit
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Weights (adapters alone, where there are some), config and tokenizer, as `from_pretrained` reads them."""
    save_whole(model, folder)
    tokenizer.save_pretrained(folder)


def save_whole(model: Any, folder: Path) -> None:
    """Weights and config alone."""
    model.save_pretrained(folder)
    model.config.save_pretrained(folder)  # adapters come without: the names of the classes would be lost


def shape_of(model: Any) -> Mapping[str, Any]:
    """Shape of a transformer in the columns of measured rows, as its config states it."""
    config = model.config  # adapters pass the attribute on
    parameters = sum(_size(one) for name, one in model.named_parameters() if not _ADAPTER.search(name))
    columns = {
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_kv_heads": "num_key_value_heads",
        "d_ff": "intermediate_size",
        "vocab": "vocab_size",
        "family": "model_type",
    }
    found = {column: getattr(config, name, None) for column, name in columns.items()}
    return {"params": parameters, **{column: value for column, value in found.items() if value is not None}}


def _size(parameter: Any) -> int:
    """Values of a parameter; two are in each byte of a 4-bit one."""
    packed = getattr(parameter, "quant_state", None)
    return int(parameter.numel() if packed is None else packed.shape.numel())


def _new_config(spec: RunSpec, **config: Any) -> Any:
    if spec.config is None:
        raise InputError("new weights need a config.json", hint="let `model:` be a path to one")
    return _transformers().AutoConfig.from_pretrained(_local(spec.config), **config)


def _attention(spec: RunSpec) -> dict[str, Any]:
    name = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}[spec.training.attention]
    return {"attn_implementation": name}


def _attends(spec: RunSpec) -> bool:
    """Whether a model of images has attention: a convolutional one takes no choice of it."""
    place = spec.weights or spec.config
    if place is None:
        return False
    config = _reach(place, lambda: _transformers().AutoConfig.from_pretrained(_local(place)))
    return getattr(config, "num_attention_heads", None) is not None


def _four_bit(spec: RunSpec) -> dict[str, Any]:
    """Settings of the 4-bit base, NF4 quantised twice as in the QLoRA paper (arXiv:2305.14314); heads stay whole."""
    import torch

    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise MissingExtra("a 4-bit base (`method: qlora`)", "qlora") from error
    settings = _transformers().BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float16 if spec.training.precision == "fp16" else torch.bfloat16,
        llm_int8_skip_modules=list(_HEADS),
    )
    on_gpu = spec.launch.device != "cpu" and torch.cuda.is_available()
    place: Any = int(os.environ.get("LOCAL_RANK", "0")) if on_gpu else "cpu"
    return {"quantization_config": settings, "device_map": {"": place}}


def _reach(place: str, load: Callable[[], Any]) -> Any:
    """What `load` gives: with retries, where it comes from a hub."""
    return with_network_retries(load, place) if is_remote(place) else load()


def _local(place: str, *, folder: bool = False) -> str:
    if place.startswith("hf://"):
        return place.removeprefix("hf://")
    path = Path(place)
    return str(path.parent if folder and path.is_file() else path)


def _where_from(place: str) -> str:
    if place.startswith("hf://"):
        return f"check the name; offline, `tonnage fetch {place}` while there is a network"
    return "a folder with config.json, the weights and tokenizer.json is expected"


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("running a model", "train") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # a new head is no news: the task says what it makes
    return transformers


def _peft(spec: RunSpec) -> Any:
    """peft. As it is imported it looks for kernels of 4-bit weights, whose lack is no news to other methods."""
    before = logging.root.manager.disable
    if spec.training.method != "qlora":
        logging.disable(logging.WARNING)
    try:
        import peft
    except ImportError as error:
        raise MissingExtra("adapters", "train") from error
    finally:
        logging.disable(before)
    return peft


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
