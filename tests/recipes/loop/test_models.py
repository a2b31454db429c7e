"""What the loop does with models of transformers: recomputation, adapters, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tonnage.recipes.batches import label_weight
from tonnage.recipes.checkpoints import read_checkpoint
from tonnage.recipes.optimizers import rate_factor
from tonnage.recipes.task import Evaluation
from tonnage.runs.states import WorkerExit

MakeRun = Callable[..., Any]
Program = Callable[[Any], Any]


@pytest.fixture
def bert(tiny: Any) -> Program:
    """The tiny task with a small BERT in place of its model."""

    def program(spec: Any) -> Any:
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=tiny.WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=64, num_labels=tiny.CLASSES, attn_implementation="sdpa",
        )  # fmt: skip
        return replace(tiny.prepare(spec), model=BertForSequenceClassification(config))

    return program


@pytest.fixture
def adapted(bert: Program) -> Program:
    """The same under adapters of low rank."""

    def program(spec: Any) -> Any:
        from peft import LoraConfig, TaskType, get_peft_model

        prepared = bert(spec)
        config = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query", "value"], lora_dropout=0.1)
        return replace(prepared, model=get_peft_model(prepared.model, config))

    return program


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_changes_no_loss(make_run: MakeRun, bert: Program, recompute: str) -> None:
    """Activations done again, dropout and all, give the losses of kept ones."""
    kept, again = make_run("kept", max_steps=4), make_run("again", max_steps=4, recompute=recompute)
    assert kept.work(bert) == again.work(bert) == WorkerExit.DONE
    for step, said in kept.curve().items():
        assert again.curve()[step] == pytest.approx(said, abs=1e-6)


def test_adapters_go_on_to_the_same_bits(make_run: MakeRun, adapted: Program, tiny: Any) -> None:
    """LoRA stopped and started again; its checkpoint holds adapters and head and no base weight."""
    whole, run = (make_run(name, max_steps=6, method="lora") for name in ("whole", "run"))
    assert whole.work(adapted) == WorkerExit.DONE

    def stopping(spec: Any) -> Any:
        prepared = adapted(spec)
        passes = iter(range(100))

        def collate(items: Any) -> Any:
            if next(passes) == 4:
                run.folder.stop_request.touch()
            return tiny.collate(items)

        return replace(prepared, collate=collate)

    assert run.work(stopping) == WorkerExit.STOPPED
    run.folder.stop_request.unlink()
    assert run.work(adapted) == WorkerExit.DONE
    assert run.curve() == whole.curve()
    names = read_checkpoint(run.folder.checkpoints / "step-00000006").weights()
    assert names
    assert all("lora_" in name or "classifier" in name for name in names)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_learning_rates_are_those_of_transformers(schedule: Any, warmup: int) -> None:
    """Ours is set beside `get_scheduler` step by step; `constant` alone differs, since ours is warmed up."""
    from transformers.optimization import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(schedule, optimizer, num_warmup_steps=warmup, num_training_steps=20)
    for step in range(21):
        said = rate_factor(step, schedule=schedule, warmup=warmup, steps=20)
        assert said == pytest.approx(theirs.get_last_lr()[0], abs=1e-12), step
        optimizer.step()
        theirs.step()
    assert rate_factor(1, schedule="constant", warmup=4, steps=20) == 0.25
    assert rate_factor(9, schedule="constant", warmup=4, steps=20) == 1.0


@pytest.mark.parametrize("task", ["token-classification", "causal-lm"])
def test_the_mean_is_over_labels_however_the_batch_is_cut(make_run: MakeRun, tiny: Any, task: str) -> None:
    """Rows have labels for few or many tokens, one micro-batch perhaps for none: each label counts the same."""

    def program(spec: Any) -> Any:
        from transformers import BertConfig, BertForTokenClassification, GPT2Config, GPT2LMHeadModel

        if task == "causal-lm":
            model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=tiny.WORDS, n_embd=32, n_layer=1, n_head=2))
        else:
            model = BertForTokenClassification(BertConfig(
                vocab_size=tiny.WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=4,
            ))  # fmt: skip
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0

        def collate(items: Any) -> Any:
            batch = tiny.collate(items)
            ids = batch["input_ids"]
            labels = ids if task == "causal-lm" else ids % 4
            kept = batch["attention_mask"].bool() & (torch.arange(ids.shape[1]) < ids[:, :1] % 20 - 3)
            return {**batch, "labels": labels.masked_fill(~kept, -100)}

        return replace(tiny.prepare(spec), model=model, collate=collate, evaluate=lambda *_: still)

    still = Evaluation(metrics={}, samples=0)
    whole, pieces = (make_run(f"by-{size}", task=task, max_steps=4, micro_batch=size) for size in (16, 1))
    assert whole.work(program) == pieces.work(program) == WorkerExit.DONE
    for step, said in whole.curve().items():
        assert pieces.curve()[step] == pytest.approx(said, rel=2e-5)


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(make_run: MakeRun, bert: Program) -> None:
    """torch.compile on a CPU, without dropout in the comparison's tolerance."""
    plain, compiled = make_run("plain", max_steps=3), make_run("compiled", max_steps=3, compile=True)

    def still(spec: Any) -> Any:
        prepared = bert(spec)
        for module in prepared.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        prepared.model.config.attention_probs_dropout_prob = 0.0
        for layer in prepared.model.bert.encoder.layer:
            layer.attention.self.dropout.p = 0.0
        return prepared

    assert plain.work(still) == compiled.work(still) == WorkerExit.DONE
    for step, said in plain.curve().items():
        assert compiled.curve()[step] == pytest.approx(said, abs=1e-4)


@pytest.mark.parametrize(
    ("batch", "shifted", "weight"),
    [
        ({"labels": torch.tensor([1, 0, 2])}, False, 3),
        ({"labels": torch.tensor([[1, -100, 2], [-100, -100, 4]])}, False, 3),
        ({"labels": torch.tensor([[1, -100, 2], [-100, -100, 4]])}, True, 2),
        ({"labels": torch.tensor([0.5, 1.5])}, False, 2),
        ({"input_ids": torch.ones(4, 7), "start_positions": torch.zeros(4)}, False, 4),
    ],
)
def test_a_batch_weighs_as_many_labels_as_its_loss_is_over(batch: Any, shifted: bool, weight: int) -> None:
    """Classes, tags, tokens to predict, figures, spans."""
    assert label_weight(batch, shifted=shifted) == weight


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """transformers logs what it does; its level is a global."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(level)
