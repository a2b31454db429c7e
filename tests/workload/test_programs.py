"""Programs that train: documented defaults, what a file states over them, and what they cost."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tonnage.calibration.training_methods import adapters_of
from tonnage.errors import WorkloadError
from tonnage.planning.summary import summarise
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.program_profiles import KNOWN_MEMORY, UNSTATED_MEMORY, memory_group, trainer_of
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.units import to_gib
from tonnage.workload.adapters import adapter_parameters
from tonnage.workload.jobs import Lora, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.loading import parse_workload
from tonnage.workload.programs import DOCUMENTED, PROGRAMS, Program, documented

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


def job_of(train: str, model: str = "llama-3.1-8b", rest: str = "") -> TrainJob:
    text = f"kind: train\nmodel: {model}\ndata: {{samples: 1000, seq_len: 2048}}\ntrain: {train}\n{rest}"
    job = parse_workload(text, file="w.yaml", folder=None, as_of=AS_OF).job
    assert isinstance(job, TrainJob)
    return job


def test_every_program_has_defaults_with_a_source() -> None:
    """The table names each program of the key once, and where its defaults are documented."""
    assert set(DOCUMENTED) == set(PROGRAMS)
    assert all(entry.source.strip() for entry in DOCUMENTED.values())


def test_a_named_program_sets_what_the_file_leaves_out() -> None:
    """torchtune holds 16-bit weights and makes its loss in chunks; a stated key goes before its documentation."""
    job = job_of("{program: torchtune, method: qlora}")
    assert (job.program.loss, job.precision, job.attention) == ("chunked", "bf16-true", "sdpa")
    stated = job_of("{program: torchtune, method: qlora, loss: plain, attention: flash, precision: fp16}")
    assert (stated.program.loss, stated.precision, stated.attention) == ("plain", "fp16", "flash")


@pytest.mark.parametrize(
    ("model", "attention"), [("bloom-7b1", "eager"), ("gpt-oss-20b", "eager"), ("llama-3.1-8b", "sdpa")]
)
def test_transformers_has_no_kernel_for_scores_with_a_bias_or_sink(model: str, attention: str) -> None:
    """BLOOM's ALiBi and the sinks of gpt-oss are eager in transformers (`_supports_sdpa`), unless the file says
    otherwise."""
    assert job_of("{program: transformers}", model).attention == attention
    assert job_of("{program: transformers, attention: sdpa}", model).attention == "sdpa"
    assert job_of("{program: megatron}", model).program.attention is None


def test_one_gpu_takes_the_configuration_for_one() -> None:
    """All weights on one GPU: torchtune's paged 8-bit optimizer, stepped in backward; on several: AdamW."""
    one = job_of("{program: torchtune}", rest="constraints: {max_gpus: 1}")
    several = job_of("{program: torchtune}")
    assert (one.optimizer, one.program.offload, one.program.optimizer_in_backward) == (
        "adamw-8bit", ("optimizer",), True,
    )  # fmt: skip
    assert (several.optimizer, several.program.offload) == ("adamw", None)


def test_versions_differ() -> None:
    """transformers attends eagerly before 4.36."""
    found = [job_of(f"{{program: transformers, program_version: '{v}'}}").attention for v in ("4.35.2", "4.36", "5.0")]
    assert found == ["eager", "sdpa", "sdpa"]


def test_chunked_loss_fits_eight_billion_parameters_on_24_gib() -> None:
    """QLoRA of Llama-3.1-8B at micro-batch 2 of 2,048 tokens fits 24 GB with a chunked loss (torchtune's README: 7.4,
    and 16.2 with a 16-bit base); the plain loss takes several GiB more."""
    layout = one_layout(micro_batch=2, recompute="full")

    def needed(loss: str) -> float:
        job = job_of(f"{{program: torchtune, method: qlora, loss: {loss}}}")
        return to_gib(float(estimate_training_memory(job, layout).needed_bytes[0]))

    assert needed("chunked") < 12.0
    assert needed("plain") > needed("chunked") + 3.0


@pytest.mark.parametrize(
    ("train", "habit"),
    [
        ("{loss: fused}", "loss_bytes"),
        ("{offload: optimizer}", "offloaded_optimizer"),
        ("{offload: [optimizer, parameters]}", "offloaded_state"),
        ("{offload: activations}", "offloaded_activations"),
        ("{optimizer_in_backward: true}", "gradients_in_backward"),
        ("{kernels: fused}", "fused"),
    ],
)
def test_each_key_reaches_the_physics(train: str, habit: str) -> None:
    """A stated feature changes the habit that sizing reads, with no program named."""
    plain, stated = trainer_of(job_of("{}")), trainer_of(job_of(train))
    assert getattr(plain, habit) != getattr(stated, habit)


def test_the_summary_says_what_is_assumed() -> None:
    """Reports name the program and what follows from it; a file that states none gets no such line."""
    text = "kind: train\nmodel: gpt2\ndata: {samples: 9, seq_len: 64}\ntrain: {program: unsloth, method: lora}\n"
    rows = dict(summarise(parse_workload(text, file="w.yaml", folder=None, as_of=AS_OF)))
    assert (
        rows["program"] == "unsloth: flash attention, fused loss, adamw-8bit, fused kernels, activations in host memory"
    )
    assert Program().stated() == {}
    plain = parse_workload(text.replace("program: unsloth, ", ""), file="w.yaml", folder=None, as_of=AS_OF)
    assert "program" not in dict(summarise(plain))


BAD: list[tuple[str, str, str]] = [
    ("{program: torchtunes}", "torchtunes", "torchtune"),
    ("{program: transformers, program_version: 4.36}", "4.36", "in quotes"),
    ("{program_version: '4.36'}", "no program is named", "program: transformers"),
    ("{loss: chunky}", "chunky", "chunked"),
    ("{offload: gradients}", "gradients", ""),
    ("{method: qlora, lora: {kind: prefix}}", "16-bit base", "method: lora"),
]


@pytest.mark.parametrize(("train", "says", "hint"), BAD)
def test_bad_values_say_what_to_write(train: str, says: str, hint: str) -> None:
    """File, line, key, the value found and what to write instead."""
    with pytest.raises(WorkloadError) as caught:
        job_of(train)
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert hint in f"{caught.value.message} {caught.value.hint}"
    assert (caught.value.line, caught.value.file) == (4, "w.yaml")


# Published counts: Zhang et al. 2023 (arXiv:2303.16199) print 1.2 M for LLaMA-7B; litgpt's second version adds a scale
# and an offset for 42,496 outputs of each layer and 32,000 logits, and 65 norms of 4,096; PEFT's prefix of 20 virtual
# tokens on GPT-2 is 20 x 12 layers x 2 x 768; a prompt of 20 is 20 x 768.
COUNTS: list[tuple[str, Lora, int]] = [
    ("llama-7b", Lora(kind="llama-adapter", tokens=10), 30 * (10 * 4096 + 32)),
    ("llama-7b", Lora(kind="llama-adapter-v2", tokens=10), 4_279_744),
    ("gpt2", Lora(kind="prefix", tokens=20), 368_640),
    ("gpt2", Lora(kind="prompt", tokens=20), 15_360),
    ("gpt2", Lora(kind="lora", rank=8, targets="attention"), 294_912),
    ("gpt2", Lora(kind="dora", rank=8, targets="attention"), 294_912 + 12 * 2304),
]


@pytest.mark.parametrize(("model", "adapters", "count"), COUNTS)
def test_adapters_of_every_kind_are_counted(model: str, adapters: Lora, count: int) -> None:
    """Trained parameters as the papers and PEFT count them."""
    assert adapter_parameters(find_model(model), adapters) == count


def test_rows_and_files_read_the_same_table() -> None:
    """The defaults that a measured row of a program takes are those of a file that names it."""
    method = adapters_of("qlora", "nf4")
    assert method is not None
    assert job_of("{program: unsloth, method: qlora}").program == documented("unsloth", method=method.method)


RUN = "run: {task: causal-lm, weights: /, data: {train: rows.jsonl}, learning_rate: 1e-4}"


def test_what_tonnage_run_carries_out_is_a_known_program() -> None:
    """A file that says how it is run names its program by that: fused AdamW, plain loss, and the memory interval of
    programs that document what they hold. Without the section, or under a name, it is as the file says."""
    ran, unsaid, named = (
        job_of(said, rest=rest) for said, rest in (("{}", RUN), ("{}", ""), ("{program: transformers}", RUN))
    )
    assert (ran.program.name, ran.program.loss, ran.program.optimizer_fused) == ("tonnage", "plain", True)
    assert [memory_group(one) for one in (ran, unsaid, named)] == [KNOWN_MEMORY, UNSTATED_MEMORY, KNOWN_MEMORY]
    assert named.program.name == "transformers"
    assert job_of("{method: lora}", rest=RUN).program.adapter_dropout


def test_a_task_of_an_installed_package_is_no_known_program() -> None:
    """What another's training loop holds is not ours to say."""
    own = RUN.replace("causal-lm", "own, program: mine")
    assert job_of("{}", rest=own).program.name is None
