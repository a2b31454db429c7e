"""What a training row's program did, filled into its columns once: what its file states, what its source documents,
and what the words of its note name.

Four steps, each filling only cells that are still blank:

1. `key=value` in the note, for every optional column (`loss=chunked; channels_last=y`).
2. Words of the note: a named program (`PROGRAM_WORDS`), and named features (`FEATURE_WORDS`). Remarks of whoever wrote
   the row down name neither and decide nothing.
3. The source: `row_sources` knows of each documented source which program ran, and how it was set.
4. Words of the source's own name: a named program.

After this no prediction looks at a note, a source or a source group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tonnage.calibration.columns import PROGRAM_COLUMNS
from tonnage.calibration.row_sources import documented_facts
from tonnage.calibration.rows import TrainingRow
from tonnage.workload.programs import ProgramName

# A program by its name; the most particular first, since a trainer names what it is built on too.
_NAMES: Final[tuple[tuple[ProgramName, str], ...]] = (
    ("unsloth", r"unsloth(?:ai)?"),
    ("axolotl", r"axolotl"),
    ("torchtune", r"torchtune"),
    ("torchtitan", r"torchtitan"),
    ("litgpt", r"lit-?_?gpt|lit-?llama"),
    ("llm-foundry", r"llm-?foundry"),
    ("nemo", r"nemo|megatron[- ]bridge"),
    ("megatron-deepspeed", r"megatron-deepspeed|gpt-?neox"),
    ("megatron", r"megatron(?:-lm|-core)?|mcore"),
    ("oneflow", r"oneflow"),
    ("nanogpt", r"nano-?gpt|nanochat"),
    ("jax", r"jax|paxml|maxtext|flax"),
    ("tensorflow", r"tf[12]?(?!\d)|tensorflow2?"),
    ("mxnet", r"mxnet"),
    ("paddle", r"paddle(?:paddle)?"),
    ("transformers", r"hugging ?face|hf|trl|peft|llama-?factory|run_(?:clm|mlm|glue|squad)(?:\.py)?|transformers"),
    ("deepspeed", r"deepspeed"),
    ("lightning", r"lightning"),
    ("pytorch", r"py-?torch|fairseq"),
)
PROGRAM_WORDS: Final = tuple(
    (name, re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)) for name, words in _NAMES
)

# A feature by its name: column, value, words.
FEATURE_WORDS: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = tuple(
    (column, value, re.compile(words, re.IGNORECASE))
    for column, value, words in (
        ("kernels", "fused", r"transformer engine|fused (?:layer ?norm|rms ?norm|swiglu|rotary|rope|mlp)|liger"),
        ("attention", "flash", r"transformer engine|flash[- ]?att(?:entio)?n|\bFA-?[23]\b"),
        ("attention", "sdpa", r"\bSDPA\b|scaled[_ ]dot[_ ]product|xformers|memory[- ]efficient attention"),
        ("loss", "chunked", r"chunked (?:cross|CE|loss)"),
        ("loss", "fused", r"fused[\w/ ,]*(?:\bCE\b|cross)|cut[- ]cross|liger"),
        ("channels_last", "y", r"\bNHWC\b|channels[_ -]last"),
        ("sequence_parallel", "y", r"sequence[ -]parallel"),
        ("optimizer_in_backward", "y", r"(?:step|optimizer) fused in backward|optimizer[_ -]in[_ -](?:bwd|backward)"),
        ("flop_counted", "hardware", r"\bHFU\b"),
        ("adapter_targets", "all-linear", r"LoRA on all|all[- ]linear"),
        ("adapter_targets", "attention", r"LoRA on q, ?v|LoRA on (?:the )?attention"),
        ("objective", "language-model", r"pre-?train"),
        ("objective", "classification", r"fine-?tun|squad|glue|\bsst|mrpc|few-shot"),
    )
)
NUMBERS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("cached_tokens", re.compile(r"mem_len=(\d+)")),
    ("target_tokens", re.compile(r"target (\d+)")),
    ("batch_tokens", re.compile(r"batch is (\d+) tokens", re.IGNORECASE)),
    ("image_side", re.compile(r"image (\d{2,3})|(\d{2,3})x\d{2,3}(?!\d)")),
)
VOCABULARY: Final = re.compile(r"vocab(?:ulary)?(?: size)?(?: of)? (\d+)(k?)", re.IGNORECASE)
KEY_VALUE: Final = re.compile(rf"\b({'|'.join(PROGRAM_COLUMNS)})=([\w.,+-]+)")
RATE: Final = re.compile(
    r"(?:(\d+)\s*(?:ports?|NICs?)?\s*[x×]\s*)?(\d+(?:\.\d+)?)\s*([GT])b(?:ps|/s|it/s)(?:\s*[x×]\s*(\d+))?",
    re.IGNORECASE,
)
PER_GPU: Final = re.compile(r"(?:per|/|each|\ba)[\s-]*GPU", re.IGNORECASE)


def with_facts(row: TrainingRow) -> TrainingRow:
    """The row with its blank columns filled from its note and its source; the same row where it is filled already."""
    for facts in (_stated, _named, documented_facts, _named_by_source, _numbers):
        row = _filled(row, facts(row))
    return row


def _filled(row: TrainingRow, found: Mapping[str, Any]) -> TrainingRow:
    blank = {name: value for name, value in found.items() if getattr(row, name) in ("", None)}
    return replace(row, **blank) if blank else row


def _stated(row: TrainingRow) -> dict[str, Any]:
    """`key=value` of the note."""
    kinds = TrainingRow.__annotations__
    found: dict[str, Any] = {}
    for name, text in KEY_VALUE.findall(row.note):
        kind = str(kinds[name])
        try:
            found[name] = int(text) if kind.startswith("int") else float(text) if kind.startswith("float") else text
        except ValueError:
            continue
    return found


def _named(row: TrainingRow) -> dict[str, str]:
    """The program and the features that words of the note name."""
    found = _program(row.note)
    for column, value, words in FEATURE_WORDS:
        if column not in found and words.search(row.note):
            found[column] = value
    return found


def _named_by_source(row: TrainingRow) -> dict[str, str]:
    """The program that the source's name names, where nothing else does."""
    return {} if row.program else _program(row.source)


def _program(text: str) -> dict[str, str]:
    name = next((name for name, words in PROGRAM_WORDS if words.search(text)), None)
    return {} if name is None else {"program": name, "program_version": _version(text, name)}


def _version(text: str, name: ProgramName) -> str:
    """`4.36` of «transformers 4.36»; "" where none follows the name."""
    words = dict(PROGRAM_WORDS)[name].pattern
    stated = re.search(rf"{words}[ =@]*v?(\d+\.\d+(?:\.\d+)?)", text, re.IGNORECASE)
    return stated[1] if stated else ""


def _numbers(row: TrainingRow) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for name, words in NUMBERS:
        stated = words.search(row.note)
        if stated:
            found[name] = int(next(group for group in stated.groups() if group))
    vocabulary = VOCABULARY.search(row.note)
    if vocabulary:
        found["vocab"] = int(vocabulary[1]) * (1000 if vocabulary[2] else 1)
    return found | _network(row.note)


def _network(note: str) -> dict[str, int | float]:
    """Gbit/s as stated: per GPU where the same clause says so, else per node. `8 x 400 Gb/s` is their sum.

    >>> _network("H100, 400 Gb/s per GPU"), _network("nodes of 8 x 400 Gbit/s")
    ({'network_gbit_per_s_per_gpu': 400.0}, {'network_gbit_per_s_per_node': 3200.0})
    """
    for clause in re.split(r"[;,(]\s", note):
        stated = RATE.search(clause)
        if stated is None:
            continue
        ports = float(stated[1] or stated[4] or 1)
        rate = ports * float(stated[2]) * (1000.0 if stated[3] in "Tt" else 1.0)
        return {f"network_gbit_per_s_per_{'gpu' if PER_GPU.search(clause) else 'node'}": rate}
    return {}
