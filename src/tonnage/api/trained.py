"""The finished model of a run: `tonnage.evaluate` judges it, `tonnage.predict` answers rows with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_pairs
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.recipes.judging import Judgement
    from tonnage.recipes.predicting import Answered
    from tonnage.reports.rendering import Report
    from tonnage.runs.spec import Device

_COLUMNS: Final = "A role's column in FILE; may be repeated."
_BATCH: Final = "Samples at once. [default: 32, on a GPU 128]"
_DEVICE: Final = "auto, cpu or cuda."
DEVICES: Final = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions(Options):
    """What `evaluate` judges a model on, and how. `columns`: role -> column, where it has another name there."""

    data: str | None = option("--data", "Labelled rows. [default: the run's test rows]", default=None, metavar="FILE")
    columns: Mapping[str, str] | None = option(
        "--column", _COLUMNS, default=None, metavar="ROLE=COLUMN", repeated=True, read=read_pairs
    )
    baseline: bool = option(
        "--baseline", "Also the simple models, which learn from the run's rows again.", default=False
    )
    batch: int | None = option("--batch", _BATCH, default=None, metavar="N", least=1)
    device: str = option("--device", _DEVICE, default="auto", metavar="NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions(Options):
    """How `predict` answers. `keep`: column -> its key in the answers; `columns`: role -> column."""

    keep: Mapping[str, str] | None = option(
        "--keep", "A column that is passed on; may be repeated.",
        default=None, metavar="COLUMN[=NAME]", repeated=True, read=partial(read_pairs, alone=True),
    )  # fmt: skip
    columns: Mapping[str, str] | None = option(
        "--column", _COLUMNS, default=None, metavar="ROLE=COLUMN", repeated=True, read=read_pairs
    )
    limit: int | None = option("--limit", "Only the first rows.", default=None, metavar="N", least=1)
    batch: int | None = option("--batch", _BATCH, default=None, metavar="N", least=1)
    max_new_tokens: int = option("--max-new-tokens", "Of a model that writes text.", default=64, metavar="N", least=1)
    device: str = option("--device", _DEVICE, default="auto", metavar="NAME")


def evaluate(
    run: str, options: EvaluateOptions | None = None, *, settings: Settings | None = None
) -> Answer[Judgement]:
    """How good the finished model of a run is, on its test rows (its validation rows where it has none) or on `data`.

    Raises UnknownName where there is no such run, InputError for a run that has not finished and for rows whose columns
    or labels the model does not know.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.recipes.judging import judge_run

    options = options or EvaluateOptions()
    found = judge_run(
        find_run(settings or current_settings(), run),
        data=options.data,
        columns=options.columns,
        batch=options.batch,
        device=known_device(options.device),
        baseline=options.baseline,
    )
    return Answer(found, _evaluation)


def predict(
    run: str,
    data: str,
    out: Path | str,
    options: PredictOptions | None = None,
    *,
    settings: Settings | None = None,
    on_rows: Callable[[int, float | None], None] | None = None,
) -> Answer[Answered]:
    """What the finished model of a run says of each row of `data` (a file, a URL, `hf://NAME`, or `-` for JSON lines on
    stdin), written to `out`: one line of JSON a row, in order.

    Memory does not grow with the rows. After a kill the same call goes on with what was written. `on_rows` is called
    with the rows done and their rate per second. Raises UnknownName where there is no such run, InputError for a run
    that has not finished, a file without rows, a missing column, an output that cannot be written.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.recipes.predicting import PredictionRequest
    from tonnage.recipes.predicting import predict as answer_rows

    options = options or PredictOptions()
    asked = PredictionRequest(
        data=data,
        out=Path(out),
        columns=options.columns or {},
        keep=options.keep or {},
        batch=options.batch,
        limit=options.limit,
        max_new_tokens=options.max_new_tokens,
        device=known_device(options.device),
    )
    folder = find_run(settings or current_settings(), run)
    found = answer_rows(folder, asked, progress=on_rows or _silent)
    anew = "what was in the .part file came of another model, other rows or settings: started again"
    return Answer(
        found, partial(_predicted, run=run, data=data, out=str(out)), remarks=(anew,) if found.thrown_away else ()
    )


def known_device(name: str) -> Device:
    """A device's name checked. InputError where it is not one."""
    for one in ("auto", "cpu", "cuda"):
        if one == name:
            return one
    raise InputError(f"no device is named '{name}'", hint="auto, cpu or cuda")


def _evaluation(found: Judgement) -> Report:
    from tonnage.reports.answers import evaluation_report

    return evaluation_report({**asdict(found), "seconds": round(found.seconds, 3)})


def _predicted(found: Answered, **asked: Any) -> Report:
    from tonnage.reports.answers import predicted_rows_report

    return predicted_rows_report(
        {
            "run": asked["run"],
            "rows": found.rows,
            "resumed_at_row": found.resumed_at,
            "seconds": round(found.seconds, 3),
            "rows_per_s": found.rows_per_s,
            "device": found.device,
            "data": asked["data"],
            "out": asked["out"],
        }
    )


def _silent(done: int, rate: float | None) -> None:
    del done, rate
