"""Words of a sentence sorted into classes: entities tagged IOB2, or plain tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import DataError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.recipes.data.splits import Splits, load_splits
from tonnage.recipes.task import Evaluation, Items, Prepared
from tonnage.recipes.tasks.items import IGNORED, answers, encode, of_texts, pad, pad_widths
from tonnage.recipes.tasks.labels import Labels
from tonnage.recipes.tasks.metrics import tagging_metrics
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input, save_model, shape_of
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

if TYPE_CHECKING:
    from torch.nn import Module

    from tonnage.recipes.trained import TrainedModel

OUTSIDE: Final = "O"
Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Tagged:
    """One split: the words of each sentence and their tags."""

    words: Sentences
    tags: Sentences


def prepare(spec: RunSpec) -> Prepared:
    """Roles: `tokens` and `tags`, lists of equal length, or texts with a space between words (and tags)."""
    splits = read(spec)
    parts = [_read(rows, spec) for rows in splits]
    labels = _find_tags(parts, splits.train.name)
    tokenizer = load_tokenizer(spec, words=True)
    model = load_model(spec, "AutoModelForTokenClassification", padding=tokenizer.pad_token_id, **labels.config())
    longest = longest_input(spec, tokenizer, model)
    # every sentence knows its place in `known`, so that words cut off by `longest` are still counted, as missed
    known = [tags for part in parts for tags in part.tags]
    starts = [sum(len(part.tags) for part in parts[:at]) for at in range(len(parts))]
    encoded = [_encode(part, start, labels, tokenizer, longest) for part, start in zip(parts, starts, strict=True)]
    collate = partial(pad, tokenizer=tokenizer, labels=IGNORED, widths=pad_widths(spec.training.compile, longest))
    return Prepared(
        model=model,
        **of_texts(encoded, collate),
        evaluate=partial(_evaluate, collate=collate, names=labels.names, known=known),
        save=partial(_save, tokenizer=tokenizer),
        baseline=partial(_baseline, parts[0], parts[-1]),
        shape=shape_of(model),
    )


def read(spec: RunSpec) -> Splits:
    """The rows of a run."""
    return load_splits(spec.data, roles=("tokens", "tags"), same=("tokens",))


def judge(trained: TrainedModel, rows: DatasetRows, batch: int) -> Evaluation:
    """Figures of a finished model on tagged rows."""
    part = _read(rows, trained.spec)
    names = trained.labels.names
    for position, marks in enumerate(part.tags):
        if unknown := set(marks) - set(names):
            raise DataError(
                f"{rows.where(position)}: the model never learned the tag '{min(unknown)}'",
                hint=f"its tags: {', '.join(names[:20])}; correct the row, or train with rows of that tag",
            )
    items = _encode(part, 0, trained.labels, trained.tokenizer, trained.longest)
    collate = partial(pad, tokenizer=trained.tokenizer, labels=IGNORED)
    return _evaluate(trained.model, items, batch, collate=collate, names=names, known=part.tags)


def _read(rows: DatasetRows, spec: RunSpec) -> _Tagged:
    words_in, tags_in = (spec.column(role) or role for role in ("tokens", "tags"))
    words, tags = [], []
    for position, (found, marks) in enumerate(
        zip(rows.column(words_in, "tokens"), rows.column(tags_in, "tags"), strict=True)
    ):
        words.append(_texts(found, rows, position, words_in))
        tags.append(_texts(marks, rows, position, tags_in))
        if len(words[-1]) != len(tags[-1]):
            raise DataError(
                f"{rows.where(position)}: {len(words[-1])} words in '{words_in}', {len(tags[-1])} tags in '{tags_in}'",
                hint="one tag for each word",
            )
    _check_iob(tags, rows)
    return _Tagged(words, tags)


def _texts(value: Any, rows: DatasetRows, position: int, column: str) -> Sequence[str]:
    found = value.split() if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(one, (str, int)) for one in found):
        shown = "nothing" if value in (None, [], "") else repr(value)[:60]
        raise DataError(
            f"{rows.where(position)}: '{column}' holds {shown}",
            hint="a list of texts is expected, or words with spaces",
        )
    return [str(one) for one in found]


def _is_entity(tag: str) -> bool:
    return tag[:2] in ("B-", "I-")


def _check_iob(tags: Sentences, rows: DatasetRows) -> None:
    """IOB2: every entity begins with B-. Plain tags, none of which reads as B- or I-, are let pass."""
    if not any(_is_entity(tag) for marks in tags for tag in marks):
        return
    for position, marks in enumerate(tags):
        for before, tag in zip((OUTSIDE, *marks), marks, strict=False):
            if tag != OUTSIDE and not _is_entity(tag):
                hint = "entities are tagged O, B-NAME, I-NAME"
                raise DataError(f"{rows.where(position)}: '{tag}' beside entity tags", hint=hint)
            if tag.startswith("I-") and before[2:] != tag[2:]:
                hint = f"IOB2 begins each entity with B-: write 'B-{tag[2:]}' for its first word"
                raise DataError(f"{rows.where(position)}: '{tag}' after '{before}'", hint=hint)


def _find_tags(parts: Sequence[_Tagged], name: str) -> Labels:
    train = {tag for marks in parts[0].tags for tag in marks}
    begun = {f"I-{tag[2:]}" for tag in train if tag.startswith("B-")}  # a longer entity may come
    if len(train) < 2:
        raise DataError(f"every word of {name} has the tag '{min(train)}'", hint="give rows with at least two tags")
    for part in parts[1:]:
        if unknown := {tag for marks in part.tags for tag in marks} - train - begun:
            hint = "give train rows with that tag, or remove the rows"
            raise DataError(f"the tag '{min(unknown)}' never occurs in train", hint=hint)
    return Labels(values=tuple(sorted(train | begun, key=lambda tag: (tag != OUTSIDE, tag[2:], tag))))


def _encode(part: _Tagged, start: int, labels: Labels, tokenizer: Any, longest: int) -> Items:
    """The first piece of a word carries its tag; the loss leaves out other pieces and special tokens."""
    numbers = {name: at for at, name in enumerate(labels.names)}

    def rows(some: range) -> Mapping[str, Sequence[Any]]:
        words = [list(part.words[at]) for at in some]
        encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=longest)
        places = [encoded.word_ids(at) for at in range(len(words))]
        marks = [
            [
                IGNORED if word is None or word == before else numbers[part.tags[at][word]]
                for before, word in zip((None, *ids), ids, strict=False)
            ]
            for at, ids in zip(some, places, strict=True)
        ]
        return {**encoded, "labels": marks, "row": [start + at for at in some]}

    return encode(len(part.words), rows)


def _evaluate(
    model: Module, items: Items, batch_size: int, *, collate: Any, names: Sequence[str], known: Sentences
) -> Evaluation:
    true, said = [], []
    for positions, batch, output in answers(model, items, batch_size, collate):
        chosen = output.logits.argmax(dim=-1).tolist()
        for at, marks, found in zip(positions, batch["labels"].tolist(), chosen, strict=True):
            tags = known[items[at]["row"]]
            answer = [names[one] for mark, one in zip(marks, found, strict=True) if mark != IGNORED]
            true.append(tags)
            said.append(answer + [OUTSIDE] * (len(tags) - len(answer)))
    return Evaluation(metrics=tagging_metrics(true, said), samples=len(true))


def _save(model: Module, folder: Path, *, tokenizer: Any) -> None:
    save_model(model, tokenizer, folder)


def _baseline(train: _Tagged, judged: _Tagged) -> Evaluation:
    """Each word's commonest tag in train; O, or the commonest tag of all, for a word never seen."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in zip(train.words, train.tags, strict=True):
        for word, tag in zip(words, tags, strict=True):
            seen[word][tag] += 1
    overall = sum(seen.values(), Counter())
    unknown = OUTSIDE if OUTSIDE in overall else overall.most_common(1)[0][0]
    commonest = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    said = [[commonest.get(word, unknown) for word in words] for words in judged.words]
    found = tagging_metrics(judged.tags, said)
    return Evaluation(metrics={f"commonest_tag_{name}": value for name, value in found.items()}, samples=len(said))
