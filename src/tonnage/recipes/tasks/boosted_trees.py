"""Gradient-boosted trees by XGBoost, round by round, on a CPU or a GPU; each round can be the last before a kill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.errors import InputError, MissingExtra
from tonnage.features.tables import TableCoder
from tonnage.recipes.alone import SingleProcess
from tonnage.recipes.interrupts import Interrupts
from tonnage.recipes.precision import choose_device
from tonnage.recipes.tasks.tables import LearningTable, TableSplit, judge, load_table, table_baseline
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import Device, RunSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL: Final = "model.ubj"


def run(folder: RunFolder) -> int:
    """Carry the run out, from its newest checkpoint if it has one; the worker's exit code."""
    spec = folder.spec()
    with Interrupts(folder.path) as interrupts, SingleProcess(folder, spec, interrupts) as alone:
        with interrupts.interruptible():
            table = load_table(spec)
            boosting = _Boosting(spec, table)
        done = 0
        if (checkpoint := alone.newest_checkpoint()) is not None:
            done = checkpoint.step
            boosting.load(bytearray(checkpoint.weights()["content"].numpy().tobytes()))
        alone.begin(spec.tabular.trees, done)
        code = _boost(boosting, alone, spec, done)
        if code is not None:
            return code
        with interrupts.interruptible():
            judged = judge(table.coder, table.judged.labels, boosting.predict(table.judged))
            baseline = table_baseline(table)
        return alone.finish(
            judged,
            baseline,
            steps=spec.tabular.trees,
            samples=spec.tabular.trees * len(table.train.labels),
            device=boosting.device,
            save=partial(boosting.save, coder=table.coder),
        )


def _boost(boosting: _Boosting, alone: SingleProcess, spec: RunSpec, done: int) -> int | None:
    """All rounds that are left; an exit code where it was asked to end before."""
    trees, rows = spec.tabular.trees, len(boosting.table.train.labels)
    while done < trees:
        if (code := alone.left()) is not None:
            alone.save(done, boosting.content())
            return alone.leave(code, done)
        alone.times.begin()
        boosting.round(done)
        done += 1
        alone.stepped(done, samples=rows)
        if done % spec.training.log_every_steps == 0 or done == trees:
            alone.log(done, loss=boosting.loss(), epoch=done / trees, learning_rate=spec.training.learning_rate)
        if alone.due(done) or done == trees:
            alone.save(done, boosting.content())
    return None


class _Boosting:
    """A booster and its data. Features are binned once; a round is one `update`."""

    def __init__(self, spec: RunSpec, table: LearningTable) -> None:
        self._xgboost = _xgboost()
        self.table, self.device = table, device_of_trees(spec.launch.device, self._xgboost.build_info())
        coder = table.coder
        self._train = self._xgboost.QuantileDMatrix(
            coder.codes(table.train.rows.columns),
            label=table.train.labels,
            feature_names=[_plain(feature.name) for feature in coder.features],
            feature_types=_kinds(coder),
            enable_categorical=True,
            max_bin=spec.tabular.bins,
            nthread=spec.launch.threads,
        )
        self._booster = self._xgboost.Booster(_settings(spec, coder, self.device), [self._train])

    def load(self, content: bytearray) -> None:
        self._booster.load_model(content)

    def content(self) -> bytes:
        return bytes(self._booster.save_raw(raw_format="ubj"))

    def round(self, number: int) -> None:
        self._booster.update(self._train, iteration=number)

    def loss(self) -> float:
        """What is minimised, on train."""
        return float(self._booster.eval(self._train, name="train").rpartition(":")[2])

    def predict(self, part: TableSplit) -> NDArray[Any]:
        """Values, or a probability for each class."""
        return predict_rows(self._booster, self.table.coder, part.rows.columns)

    def save(self, folder: Path, *, coder: TableCoder) -> None:
        self._booster.save_model(folder / MODEL)
        coder.save(folder)


def device_of_trees(asked: Device, build: Mapping[str, Any]) -> Literal["cpu", "cuda"]:
    """What trees are grown on. InputError where a GPU is asked for and this build of XGBoost knows none: it would warn
    and go on on the processor, under the GPU's name."""
    if build.get("USE_CUDA"):
        return choose_device(asked)
    if asked == "cuda":
        raise InputError(
            "the run asks for a CUDA device and this build of XGBoost has no CUDA (xgboost-cpu is one)",
            hint="pip uninstall xgboost-cpu && pip install xgboost, or set `device: cpu`",
        )
    return "cpu"


def load_booster(folder: Path) -> Any:
    """The finished trees of a run."""
    booster = _xgboost().Booster()
    booster.load_model(folder / MODEL)
    return booster


def answering_device(asked: Device) -> Literal["cpu", "cuda"]:
    """What finished trees answer on."""
    return device_of_trees(asked, _xgboost().build_info())


def predict_rows(booster: Any, coder: TableCoder, columns: Mapping[str, Sequence[Any]]) -> NDArray[Any]:
    """A value for each row, or a probability for each class."""
    import numpy as np

    codes = coder.codes(columns)
    rows = _xgboost().DMatrix(
        codes,
        feature_names=[_plain(feature.name) for feature in coder.features],
        feature_types=_kinds(coder),
        enable_categorical=True,
    )
    found = np.asarray(booster.predict(rows))
    return found if coder.objective == "regression" else found.reshape(len(codes), -1)


def _kinds(coder: TableCoder) -> list[str]:
    """For XGBoost: a feature is a quantity or a category."""
    return ["q" if feature.categories is None else "c" for feature in coder.features]


def _settings(spec: RunSpec, coder: TableCoder, device: str) -> dict[str, Any]:
    classes = {"objective": "multi:softprob", "num_class": len(coder.classes), "eval_metric": "mlogloss"}
    values = {"objective": "reg:squarederror", "eval_metric": "rmse"}
    threads = {} if spec.launch.threads is None else {"nthread": spec.launch.threads}
    return {
        **(values if coder.objective == "regression" else classes),
        **threads,
        "tree_method": "hist",
        "device": device,
        "max_depth": spec.tabular.depth,
        "max_bin": spec.tabular.bins,
        "eta": spec.training.learning_rate,
        "seed": spec.training.seed,
    }


def _plain(name: str) -> str:
    """A feature's name without the signs XGBoost takes for its own."""
    return name.translate(str.maketrans("[]<", "()_"))


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise MissingExtra("boosted trees", "tabular") from error
    return xgboost
