"""Which model of a table lies in a folder or a file, and whether it may be read."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tonnage.errors import InputError
from tonnage.features.tables import FILE
from tonnage.values import dataclass

Library = Literal["xgboost", "lightgbm", "network", "pickle"]
OF_RUNS: Final[dict[str, Library]] = {"model.ubj": "xgboost", "model.safetensors": "network"}
ENDINGS: Final = (".ubj", ".json", ".xgb", ".txt", ".lgb", ".pkl", ".pickle", ".joblib", ".model", ".bst")
_LIGHTGBM: Final = b"tree\n"
_PICKLED: Final = tuple(bytes((0x80, number)) for number in range(2, 6))
_HEAD: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """The file of a model; `run`: the folder that a run saved it in, with how its rows become numbers."""

    library: Library
    file: Path
    run: Path | None = None

    @property
    def parts(self) -> tuple[Path, ...]:
        """All files that its answers follow from."""
        return (self.file,) if self.run is None else tuple(sorted(one for one in self.run.iterdir() if one.is_file()))


def find_table(path: Path, *, trust: bool) -> TableFile | None:
    """The model of a table that `path`, a file or a folder, is; None for a folder that holds none.

    InputError for a file that is not one, for several in one folder, for a pickle without `trust`.
    """
    if path.is_file():
        return _file(path, trust=trust)
    if (path / FILE).is_file():
        found = next((name for name in OF_RUNS if (path / name).is_file()), None)
        if found is None:
            raise InputError(f"{path} has {FILE} and no model", hint=f"one of {', '.join(OF_RUNS)} is expected")
        return TableFile(library=OF_RUNS[found], file=path / found, run=path)
    if not path.is_dir() or (path / "config.json").is_file():
        return None
    kinds = {one: kind for one in sorted(path.iterdir()) if one.suffix in ENDINGS and (kind := _library(one))}
    if len(kinds) > 1:
        raise InputError(f"{path} has several models: {', '.join(one.name for one in kinds)}", hint="name one file")
    return _file(next(iter(kinds)), trust=trust) if kinds else None


def _file(file: Path, *, trust: bool) -> TableFile:
    library = _library(file)
    if library is None:
        raise InputError(f"{file} is not a model of XGBoost or LightGBM",
                         hint="save it with save_model: .ubj or .json of XGBoost, .txt of LightGBM")  # fmt: skip
    if library == "pickle" and not trust:
        raise InputError(f"{file} is a pickle, which can run any program when it is read",
                         hint="save it with save_model; or --trust, where you know who wrote it")  # fmt: skip
    return TableFile(library=library, file=file)


def _library(file: Path) -> Library | None:
    """By how the file begins."""
    try:
        with file.open("rb") as content:
            head = content.read(_HEAD)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    if head.startswith(_PICKLED):
        return "pickle"
    if head.startswith(_LIGHTGBM):
        return "lightgbm"
    return "xgboost" if head.startswith(b"{") and b"learner" in head else None


def check_whole(file: Path) -> None:
    """InputError for a file of LightGBM that is cut short: its library would end the process that reads it."""
    content = file.read_bytes()
    header, _, _ = content.partition(b"\nTree=0")
    sizes = next((line for line in header.splitlines() if line.startswith(b"tree_sizes=")), None)
    said = (sizes or b"").removeprefix(b"tree_sizes=").split()
    begin = content.find(b"Tree=0")
    end = begin + sum(int(one) for one in said if one.isdigit())
    if not said or begin < 0 or not content[end:].startswith(b"end of trees"):
        raise InputError(f"{file} is cut short: its trees are not as long as it says", hint="save the model again")
