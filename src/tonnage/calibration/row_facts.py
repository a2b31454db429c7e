"""What a training row's program did, filled into its columns once: what its file states, what its source documents,
and what clauses of its note state.

Four steps, each filling only cells that are still blank:

1. `key=value` in the note, for every optional column (`loss=chunked; channels_last=y`).
2. The source: `row_sources` knows of each documented source which program ran, how it was set, and in which words its
   tables say so.
3. Clauses of the note that say nothing else: a named program (`PROGRAM_WORDS`), a named feature or number
   (`VOCABULARY`). Remarks of whoever wrote the row down decide nothing. A rate in Gbit/s is its network.
4. Words of the source's own name: a named program.

Last, cells that the scripts of the source contradict are put right (`corrected_facts`).

After this no prediction looks at a note, a source or a source group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tonnage.calibration.columns import PROGRAM_COLUMNS
from tonnage.calibration.note_words import NoteWords, clauses_of, stated_in_clauses, words
from tonnage.calibration.row_sources import corrected_facts, documented_facts, words_of_source
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

_TASK: Final = r"(?:squad(?: v?[12]\.[01])?|glue|sst-?2|mrpc)"
# Features and numbers by their names, as clauses of any note.
VOCABULARY: Final[tuple[NoteWords, ...]] = (
    words(
        "kernels",
        r"fused (?:\w+/)*(?:layer ?norm|rms ?norm|swiglu|rotary|rope|mlp)(?:/\w+)*(?: kernels?)?",
        "fused",
    ),
    words("kernels", r"transformer engine(?: kernels?)?", "fused"),
    words("kernels", r"liger(?:[- ]kernels?)?", "fused"),
    words(
        "attention",
        r"transformer engine(?: kernels?)?|flash[- ]?att(?:entio)?n(?:[- ]?v?[23])?(?: kernels?)?|FA-?[23]",
        "flash",
    ),
    words("attention", r"SDPA|scaled[_ ]dot[_ ]product(?: attention)?|xformers|memory[- ]efficient attention", "sdpa"),
    words("loss", r"chunked (?:cross[- ]entropy(?: loss)?|CE(?: loss)?|loss)", "chunked"),
    words(
        "loss",
        r"fused (?:\w+/)*(?:CE|cross[- ]entropy|loss)(?: loss)?(?:/\w+)*|cut[- ]cross[- ]entropy(?: loss)?",
        "fused",
    ),
    words("loss", r"liger(?:[- ]kernels?)?", "fused"),
    words("channels_last", r"(?:NHWC|channels[_ -]last)(?: (?:memory )?(?:layout|format))?", "y"),
    words("sequence_parallel", r"sequence[ -]parallel(?:ism)?", "y"),
    words("optimizer_in_backward", r"optimizer[_ -]in[_ -](?:bwd|backward)|optimizer step fused in backward", "y"),
    words(
        "flop_counted",
        r"(?:(?:so )?it is an )?HFU(?:(?: of)? \d+(?:\.\d+)?(?: ?%)?)?(?: not an MFU)?|\d+(?:\.\d+)? ?% HFU",
        "hardware",
    ),
    words(
        "adapter_targets",
        r"(?:LoRA on )?all[- ]linear(?: layers)?|LoRA(?: r=\d+)? on all (?:linear )?layers(?: incl.*)?",
        "all-linear",
    ),
    words(
        "adapter_targets",
        r"LoRA(?: r=\d+)? on (?:q(?:_proj)?, ?v(?:_proj)?|(?:the )?attention)(?: (?:only|layers|matrices))?",
        "attention",
    ),
    words(
        "objective",
        r"(?:(?!no\b|not\b|without\b|after\b|before\b|from\b)[\w-]+ ){0,2}pre-?train(?:ing)?",
        "language-model",
    ),
    words("objective", rf"{_TASK}|(?:{_TASK} )?fine-?tun(?:e|ing)(?: packed to \d+)?", "classification"),
    words("cached_tokens", r"mem_len=(\d+)"),
    words("target_tokens", r"target (\d+)"),
    words("batch_tokens", r"batch (?:is|of) (\d+) tokens(?: (?:per|a) GPU)?"),
    words("image_side", r"image (\d{2,3})|(\d{2,3})x\d{2,3}"),
    words("vocab", r"vocab(?:ulary)?(?: size)?(?: of)? (\d+)(k?)(?: padded)?"),
)
KEY_VALUE: Final = re.compile(rf"\b({'|'.join(PROGRAM_COLUMNS)})=([\w.,+-]+)")
RATE: Final = re.compile(
    r"(?:(\d+)\s*(?:ports?|NICs?)?\s*[x×]\s*)?(\d+(?:\.\d+)?)\s*([GT])b(?:ps|/s|it/s)(?:\s*[x×]\s*(\d+))?",
    re.IGNORECASE,
)
PER_GPU: Final = re.compile(r"(?:per|/|each|\ba)[\s-]*GPU", re.IGNORECASE)


def with_facts(row: TrainingRow) -> TrainingRow:
    """The row with its blank columns filled from its note and its source; the same row where it is filled already."""
    for facts in (_stated, words_of_source, _named, documented_facts, _named_by_source, _network_of):
        row = _filled(row, facts(row))
    return replace(row, **corrected_facts(row))


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


def _named(row: TrainingRow) -> dict[str, Any]:
    """The program, the features and the numbers that clauses of the note name and say nothing else, but for a program
    before a feature: «MXNet NHWC», «JAX/Paxml 23.08»."""
    named: list[dict[str, Any]] = []
    clauses = list(clauses_of(row.note))
    for clause in tuple(clauses):
        program, rest = _headed(clause)
        following = _program(rest, whole=True)
        if program and (not rest or following or any(known.pattern.fullmatch(rest) for known in VOCABULARY)):
            named += [following, program] if following else [program]
            clauses += [rest] if rest else []
    order = [name for name, _ in PROGRAM_WORDS]
    first = min(named, key=lambda found: order.index(found["program"]), default={})
    return {**stated_in_clauses(clauses, VOCABULARY), **first}


def _headed(clause: str) -> tuple[dict[str, Any], str]:
    """The program that a clause begins with, with its version, and the words that follow it."""
    for name, known in PROGRAM_WORDS:
        stated = re.match(rf"(?:{known.pattern})(?:[ =@]*v?\d[\d.]*)?(?:[ /+]+|$)", clause, known.flags)
        if stated:
            return {"program": name, "program_version": _version(stated[0], name)}, clause[stated.end() :]
    return {}, clause


def _named_by_source(row: TrainingRow) -> dict[str, Any]:
    """The program that the source's name names, where nothing else does."""
    return {} if row.program else _program(row.source)


def _program(text: str, *, whole: bool = False) -> dict[str, Any]:
    """The program that a text names, with its version; `whole`: the text must say nothing else."""
    for name, known in PROGRAM_WORDS:
        stated = re.fullmatch(rf"(?:{known.pattern})(?:[ =@]*v?\d[\d.]*)?", text, known.flags) if whole else None
        if stated or (not whole and known.search(text)):
            return {"program": name, "program_version": _version(text, name)}
    return {}


def _version(text: str, name: ProgramName) -> str:
    """`4.36` of «transformers 4.36»; "" where none follows the name."""
    words = dict(PROGRAM_WORDS)[name].pattern
    stated = re.search(rf"{words}[ =@]*v?(\d+\.\d+(?:\.\d+)?)", text, re.IGNORECASE)
    return stated[1] if stated else ""


def _network_of(row: TrainingRow) -> dict[str, Any]:
    return _network(row.note)


def _network(note: str) -> dict[str, Any]:
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
