"""Labels of a classification: what they are, checked, and numbered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import DataError
from tonnage.recipes.data.rows import DatasetRows
from tonnage.values import dataclass

FEW_IS_MEANT: Final = "for numbers to predict, use `kind: tabular` with `objective: regression`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The classes in the order of their numbers, as they are in the data."""

    values: tuple[Any, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(value) for value in self.values)

    def config(self) -> Mapping[str, Any]:
        """The keywords by which a transformers config carries them."""
        names = dict(enumerate(self.names))
        return {"num_labels": len(names), "id2label": names, "label2id": {name: at for at, name in names.items()}}

    def number(self, rows: DatasetRows, column: str) -> list[int]:
        """Each row's class as a number. DataError names a row whose class train does not have."""
        numbers = {value: at for at, value in enumerate(self.values)}
        found = []
        for position, value in enumerate(rows.column(column, "label")):
            if value not in numbers:
                raise DataError(
                    f"{rows.where(position)}: label {value!r} in {rows.name} never occurs in train",
                    hint="give train rows of that class, or remove the row",
                )
            found.append(numbers[value])
        return found


def trained_labels(model: Any) -> Labels:
    """The classes of a finished model, by the names its config carries."""
    names = {int(number): str(name) for number, name in model.config.id2label.items()}
    return Labels(values=tuple(names[number] for number in sorted(names)))


def number_trained(names: Sequence[str], rows: DatasetRows, column: str) -> list[int]:
    """Each row's class as the number a finished model gives it. DataError names a row whose class it never learned."""
    numbers = {name: at for at, name in enumerate(names)}
    found = []
    for position, value in enumerate(rows.column(column, "label")):
        if str(value) not in numbers:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise DataError(
                f"{rows.where(position)}: the model never learned the label {value!r}",
                hint=f"its labels: {listed}; correct the row, remove it, or train with rows of that class",
            )
        found.append(numbers[str(value)])
    return found


def find_labels(splits: Iterable[DatasetRows], column: str) -> Labels:
    """The classes of the training rows, which come first.

    DataError for a value in any split that is no class, for values of two types, and where train has but one class.
    """
    train, *others = splits
    kinds: dict[type, str] = {}
    for rows in (train, *others):
        for position, value in enumerate(rows.column(column, "label")):
            if type(value) not in kinds or value == "":
                kinds[_kind(value, column, rows, position)] = rows.where(position)
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise DataError(
            f"labels in '{column}' are of two types: {one.__name__} ({first}) and {other.__name__} ({second})",
            hint="write them all in one way",
        )
    return Labels(values=_at_least_two(train.column(column, "label"), train, column))


def _kind(value: Any, column: str, rows: DatasetRows, position: int) -> type:
    if value is None or value == "":
        raise DataError(f"{rows.where(position)}: no label in '{column}'", hint="label the row, or remove it")
    if not isinstance(value, (str, int, bool)):
        what = f"'{column}' holds {value!r}, a {type(value).__name__}"
        raise DataError(f"{rows.where(position)}: {what}; a class is a text or a whole number", hint=FEW_IS_MEANT)
    return type(value)


def _at_least_two(values: Sequence[Any], rows: DatasetRows, column: str) -> tuple[Any, ...]:
    classes = tuple(sorted(set(values)))
    if len(classes) < 2:
        raise DataError(
            f"every row of {rows.name} has the label {classes[0]!r} in '{column}': there is nothing to tell apart",
            hint="give rows of at least two classes, or name another column in `run.data.columns`",
        )
    return classes


def check_texts(rows: DatasetRows, column: str, role: str) -> Sequence[str]:
    """A column of texts. DataError names a row that holds something else."""
    values = rows.column(column, role)
    for position, value in enumerate(values):
        if not isinstance(value, str):
            found = "nothing" if value is None else f"{value!r}, a {type(value).__name__}"
            raise DataError(f"{rows.where(position)}: '{column}' ({role}) holds {found}", hint="text is expected there")
    return values
