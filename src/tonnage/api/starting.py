"""`tonnage.init`: a starting point in files, for a task or for a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass

TASKS: Final = (
    "sequence-classification", "token-classification", "question-answering", "causal-lm",
    "sequence-to-sequence", "image-classification", "text-generation", "boosted-trees", "mlp",
)  # fmt: skip
COMPARE: Final = "compare"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions(Options):
    """Where the files go, and what a compare file names."""

    out: Path | None = option("--out", "Folder to write to. [default: TASK]", default=None, metavar="DIR")
    force: bool = option("--force", "Write over files that are there.", default=False)
    compare: tuple[str, ...] = option(
        "--compare", "With compare: a platform; may be repeated.", default=(), metavar="PROFILE"
    )
    workloads: tuple[str, ...] = option(
        "--workload", "With compare: work, and its jobs a month; may be repeated.", default=(), metavar="FILE[:JOBS]"
    )
    title: str | None = option("--title", "With compare: its title.", default=None)
    today: str | None = option("--today", "With compare: where the work runs now.", default=None, metavar="PROFILE")
    usd_per_hour: float | None = option(
        "--usd-per-hour", "With compare: an hour of a person.", default=None, least=0.01
    )


def init(task: str, asked: InitOptions | None = None) -> tuple[Path, ...]:
    """Write a starter and give the paths of its files: of a task the workload file, its rows and a small model; of
    `compare` a compare file. Raises InputError where a file is there already (without `force`) or cannot be written.
    """
    asked = asked or InitOptions()
    if task == COMPARE:
        return (_write_compare_file(asked),)
    if asked.compare or asked.workloads or asked.title or asked.today or asked.usd_per_hour:
        said = "--compare, --workload, --title, --today and --usd-per-hour go with compare"
        raise InputError(said, hint="tonnage init compare --compare databricks --compare bedrock --workload FILE:12")
    return _write_task(task, asked)


def _write_task(task: str, asked: InitOptions) -> tuple[Path, ...]:
    """All files of a task's starter, or none where one is there already."""
    from tonnage.files import SHARED, write_whole
    from tonnage.recipes.starters import STARTERS, make_starter

    chosen = next((name for name in STARTERS if name == task), None)
    if chosen is None:
        near = nearest(task, (*TASKS, COMPARE), count=1)
        raise InputError(f"no task is named '{task}'", hint=did_you_mean(near, "`tonnage init --list` shows them all"))
    folder = Path(chosen) if asked.out is None else asked.out
    files = make_starter(chosen)
    there = [name for name in files if (folder / name).exists()]
    if there and not asked.force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InputError(f"{folder / there[0]} is there{more}", hint="name another --out, or write over it by --force")
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, mode=SHARED)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", hint="name another --out") from error
    return tuple(folder / name for name in files)


def _write_compare_file(asked: InitOptions) -> Path:
    """Write the file, which is checked as `tonnage compare` reads it; its path."""
    from tonnage.comparison.profiles import load_profiles
    from tonnage.comparison.request import parse_request
    from tonnage.comparison.starter import check_names, parse_work, render_starter
    from tonnage.files import save_for_user

    if not asked.compare or not asked.workloads:
        raise InputError(
            "name what is compared, and for which work",
            hint="tonnage init compare --compare databricks --compare bedrock --workload tune.tonnage.yaml:12",
        )
    chosen = check_names(asked.compare, sorted(load_profiles()))
    if asked.today is not None and asked.today not in chosen:
        raise InputError(f"'{asked.today}' is not compared", hint=f"--today is one of {', '.join(chosen)}")
    text = render_starter(
        title=asked.title or " or ".join(chosen), names=chosen, works=[parse_work(one) for one in asked.workloads],
        today=asked.today, usd_per_hour=asked.usd_per_hour,
    )  # fmt: skip
    path = asked.out or Path("compare.tonnage.yaml")
    if path.exists() and not asked.force:
        raise InputError(f"{path} is there", hint="name another --out, or write over it by --force")
    parse_request(text, file=str(path), folder=path.parent)
    save_for_user(path, text, hint="name another --out")
    return path
