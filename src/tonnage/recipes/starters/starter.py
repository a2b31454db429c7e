"""What `tonnage init TASK` writes: workload file, rows, model folder, all as texts by relative path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from tonnage.recipes.starters import models, rows
from tonnage.recipes.starters.models import PIECE
from tonnage.values import dataclass
from tonnage.workload.run_terms import Task

Files = dict[str, str | bytes]

_SEED: Final = """\
  seed: 0                  # of all that is random: the same seed, the same result
  # runner: torchrun       # several worker processes; `processes:` says how many
  # device: cuda           # cpu, cuda or auto (a GPU where there is one)
"""
_CHECKPOINT: Final = """\
  checkpoint:
    every_steps: 50        # saved that often; `every: 15m` counts time. A killed run goes on from the newest
"""
_LIMITS: Final = """\
  # limits: {max_hours: 2, max_cost_usd: 5, usd_per_hour: 1.2}   # saves and stops there
  # tracking: {register_as: my-model}                            # MLflow's model registry
"""
_LOG: Final = """\
  log_every: 5             # steps between lines of metrics
"""
_WEIGHTS: Final = """\
  weights: new             # random, of the shape above. To fine-tune: hf://org/name, a folder, or pkg://package/folder
"""


@dataclass(frozen=True, slots=True)
class Starter:
    """One task's starter: what it shows, and how its files are made."""

    summary: str
    make: Callable[[Random], Files]


def make_starter(task: Task) -> Files:
    """The files of a task by relative path, the same each time."""
    return STARTERS[task].make(Random(0))


def _text_file(task: Task, what: str, data: str, *, samples: int, lengths: Sequence[int], columns: str) -> str:
    mean, longest = sum(lengths) / len(lengths), max(lengths)
    rate = {"question-answering": "3e-3"}.get(task, "2e-3")
    epochs = {"question-answering": 6, "causal-lm": 4, "sequence-to-sequence": 8}.get(task, 3)
    return f"""\
# {what}
# Run it: tonnage run {task}.tonnage.yaml   What it would cost elsewhere: tonnage plan {task}.tonnage.yaml
kind: train
model: ./model             # its config.json: the shape that is planned for. Also a known name or hf://org/name

data:
  samples: {samples}             # rows of one pass, for the plan
  seq_len: {{mean: {mean:.1f}, max: {longest}}}   # tokens; texts are cut at max
  epochs: {epochs}

train:
  method: full             # or lora, qlora: adapters on pretrained weights
  global_batch: 16         # samples per step over all processes, whatever fits a device at a time
  precision: fp32          # auto: 16 bit where the device has it

run:
  task: {task}
{_WEIGHTS}  data:
    train: {data}    # JSONL, CSV or Parquet; a pattern, a list, hf://data-set, or a database with `query:`
{columns}    validation_fraction: 0.15   # held out of train; or name files: `validation:`, `test:`
  learning_rate: {rate}      # peak; 2e-5 to 5e-5 suit the fine-tuning of pretrained weights
{_LOG}{_SEED}{_CHECKPOINT}{_LIMITS}"""


def _columns(names: Mapping[str, str]) -> str:
    listed = ", ".join(f"{role}: {name}" for role, name in names.items())
    return f"    columns: {{{listed}}}   # role: your column\n"


def _length(text: str, *, special: int) -> int:
    return len(PIECE.findall(text)) + special


def _model(files: Mapping[str, str | bytes]) -> Files:
    return {f"model/{name}": content for name, content in files.items()}


def _sequence_classification(draw: Random) -> Files:
    found = rows.messages(400, draw)
    texts = [row["text"] for row in found]
    file = _text_file(
        "sequence-classification",
        "Sort messages to a help desk by what they are about.",
        "data/messages.jsonl",
        samples=340,
        lengths=[_length(text, special=2) for text in texts],
        columns=_columns({"text": "text", "label": "label"}),
    )
    return {
        "sequence-classification.tonnage.yaml": file,
        "data/messages.jsonl": rows.as_jsonl(found),
        **_model(models.encoder(texts)),
    }


def _token_classification(draw: Random) -> Files:
    found = rows.sentences(400, draw)
    texts = [" ".join(row["tokens"]) for row in found]
    file = _text_file(
        "token-classification",
        "Find the names of people and places (tags in IOB2).",
        "data/sentences.jsonl",
        samples=340,
        lengths=[_length(text, special=2) for text in texts],
        columns=_columns({"tokens": "tokens", "tags": "tags"}),
    )
    return {
        "token-classification.tonnage.yaml": file,
        "data/sentences.jsonl": rows.as_jsonl(found),
        **_model(models.encoder(texts)),
    }


def _question_answering(draw: Random) -> Files:
    found = rows.questions(600, draw)
    texts = [f"{row['question']} {row['context']}" for row in found]
    file = _text_file(
        "question-answering",
        "Mark the answer to a question in a text.",
        "data/questions.jsonl",
        samples=510,
        lengths=[_length(text, special=3) for text in texts],
        columns=_columns({"question": "question", "context": "context", "answers": "answers"}),
    )
    return {
        "question-answering.tonnage.yaml": file,
        "data/questions.jsonl": rows.as_jsonl(found),
        **_model(models.encoder(texts)),
    }


def _causal_lm(draw: Random) -> Files:
    found = rows.stories(600, draw)
    texts = [row["text"] for row in found]
    tokens = sum(_length(text, special=1) for text in texts)
    file = _text_file(
        "causal-lm",
        "Learn to go on with a text. Texts are packed into full blocks (`packing: false`: one by one).",
        "data/stories.jsonl",
        samples=round(tokens * 0.85 / 32),
        lengths=[32],
        columns=_columns({"text": "text"}),
    )
    return {
        "causal-lm.tonnage.yaml": file,
        "data/stories.jsonl": rows.as_jsonl(found),
        **_model(models.decoder(texts)),
    }


def _sequence_to_sequence(draw: Random) -> Files:
    found = rows.translations(600, draw)
    texts = [text for row in found for text in row.values()]
    file = _text_file(
        "sequence-to-sequence",
        "Translate sentences: any text written from a text, such as summaries, by an encoder-decoder.",
        "data/translations.jsonl",
        samples=510,
        lengths=[_length(text, special=1) for text in texts],  # each ends with a token of its own
        columns=_columns({"source": "source", "target": "target"}),
    )
    return {
        "sequence-to-sequence.tonnage.yaml": file,
        "data/translations.jsonl": rows.as_jsonl(found),
        **_model(models.encoder_decoder(texts)),
    }


def _image_classification(draw: Random) -> Files:
    pictures = rows.pictures(400, draw)
    file = f"""\
# Tell figures in pictures apart.
# Run it: tonnage run image-classification.tonnage.yaml
# What it would cost elsewhere: tonnage plan image-classification.tonnage.yaml
kind: train
model: ./model             # its config.json: the shape that is planned for. Also a known name or hf://org/name

data:
  samples: 340             # images of one pass, for the plan
  epochs: 12

train:
  method: full             # or lora: adapters on pretrained weights
  global_batch: 16         # images per step over all processes, whatever fits a device at a time
  precision: fp32          # auto: 16 bit where the device has it

run:
  task: image-classification
{_WEIGHTS}  data:
    train: data/*/*.png    # a folder for each class; or rows with the columns of `columns:`, hf://data-set
    columns: {{image: image, label: label}}   # role: your column; an image is a path (from the file of rows) or bytes
    validation_fraction: 0.15   # held out of train; or name files: `validation:`, `test:`
  learning_rate: 2e-3      # peak; 1e-5 to 1e-4 suit the fine-tuning of pretrained weights
{_LOG}{_SEED}{_CHECKPOINT}{_LIMITS}"""
    return {
        "image-classification.tonnage.yaml": file,
        **{f"data/{path}": content for path, content in pictures.items()},
        **_model(models.image_encoder(rows.PICTURE)),
    }


def _text_generation(draw: Random) -> Files:
    texts = [row["text"] for row in rows.stories(600, draw)]
    file = f"""\
# Write 200 synthetic sentences, each kept once: generated.jsonl in the run's folder.
# Run it: tonnage run text-generation.tonnage.yaml
kind: batch
model: ./model             # the shape that is planned for

batch:
  items: 200               # texts to write
  input_tokens: 4          # longest prompt; it is cut there
  output_tokens: {{mean: 4, max: 8}}   # max: where a text is cut
  weights: fp16            # what a plan holds them in

run:
  task: text-generation
  weights: ./model         # a trained model: a folder, hf://org/name or pkg://package/folder
  data:
    train: data/prompts.jsonl   # taken in turn until enough texts are written
    columns: {{prompt: prompt}}
  temperature: 0.9         # 0: the likeliest words
  top_p: 0.95
  texts_at_once: 16
{_SEED}{_LIMITS}"""
    return {
        "text-generation.tonnage.yaml": file,
        "data/prompts.jsonl": rows.as_jsonl(rows.beginnings(40, draw)),
        **_model(models.speaking_decoder(texts)),
    }


def _table(method: Task, settings: str, rate: str) -> Callable[[Random], Files]:
    def make(draw: Random) -> Files:
        found = rows.flats(1500, draw)
        file = f"""\
# Predict the rent of a flat from a table.
# Run it: tonnage run {method}.tonnage.yaml   What it would cost elsewhere: tonnage plan {method}.tonnage.yaml
kind: tabular

tabular:
  rows: 1275               # of one pass, for the plan
  features: 4
  method: {method}
{settings}
run:
  data:
    train: data/flats.csv  # JSONL, CSV or Parquet; a pattern, a list, hf://data-set, or a database with `query:`
    columns: {{label: rent}}
    features: [area, age, district, lift]   # left out: all columns but the label; texts are categories
    validation_fraction: 0.15               # held out of train; or name files: `validation:`, `test:`
  objective: regression    # or classification, or auto
  learning_rate: {rate}      # lower: slower, often better
{_LOG}{_SEED}{_CHECKPOINT}{_LIMITS}"""
        return {f"{method}.tonnage.yaml": file, "data/flats.csv": rows.as_csv(found)}

    return make


_TREES: Final = "  trees: 100\n  depth: 4\n  bins: 256\n"
_NETWORK: Final = "  hidden_layers: [64, 32]\n  epochs: 30\n  global_batch: 128\n"
STARTERS: Final[Mapping[Task, Starter]] = {
    "sequence-classification": Starter("texts (or pairs of texts) into classes", _sequence_classification),
    "token-classification": Starter("names in a text, tagged word by word", _token_classification),
    "question-answering": Starter("answers marked in a text", _question_answering),
    "causal-lm": Starter("the next word learned", _causal_lm),
    "sequence-to-sequence": Starter("texts written from texts: translation, summary", _sequence_to_sequence),
    "image-classification": Starter("images into classes", _image_classification),
    "text-generation": Starter("synthetic texts from a trained model", _text_generation),
    "boosted-trees": Starter("a table, by XGBoost", _table("boosted-trees", _TREES, "0.1")),
    "mlp": Starter("a table, by a multi-layer perceptron", _table("mlp", _NETWORK, "3e-3")),
}
